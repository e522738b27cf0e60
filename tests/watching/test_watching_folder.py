"""Every picture file that comes into a folder is answered once, whole, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from fairshot.teaching import Store
from fairshot.teaching.errors import NoClasses
from fairshot.watching import folder as folder_module
from fairshot.watching.capture import Version
from fairshot.watching.errors import JournalUnusable
from fairshot.watching.file_actions import FileActions, move_to, sidecar_of
from fairshot.watching.folder import FolderSource
from fairshot.watching.journal import Journal
from fairshot.watching.watch import preparation, watch
from support.stores import make_store
from support.watched import put, wait_for, watching

SOON = 0.05  # seconds


def source(store: Store, folder: Path, journal: Journal, **options: object) -> FolderSource:
    return FolderSource(folder, journal, SOON, prepare=preparation(store), **options)  # type: ignore[arg-type]


def test_pictures_are_answered_as_by_predict_once_and_as_they_come(
    shop: Store, journal: Journal, tmp_path: Path
) -> None:
    first = put(tmp_path / "in", "2026/a.png")
    put(tmp_path / "in", ".hidden/no.png")
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    os.mkfifo(tmp_path / "in" / "pipe.png")
    with watching(shop, source(shop, tmp_path / "in", journal), journal) as running:
        wait_for(lambda: len(running.records) == 1)
        put(tmp_path / "in", "b.png", "emu")
        wait_for(lambda: len(running.records) == 2)
        put(tmp_path / "in", "b.png", "yak", 1)  # another picture of the same name
        wait_for(lambda: len(running.records) == 3)
    assert running.images == ["2026/a.png", "b.png", "b.png"]
    assert [record["answer"] for record in running.records] == ["yak", "emu", "yak"]
    (expected,) = shop.predict([first])
    assert running.records[0]["confidence"] == expected.confidence
    assert running.records[0]["sentence"] == expected.sentence()
    assert len({record["id"] for record in running.records}) == 3
    assert json.loads(json.dumps(running.records[0]))["source"] == str(tmp_path / "in")


def test_a_file_is_not_read_while_it_is_written(shop: Store, journal: Journal, tmp_path: Path) -> None:
    content = put(tmp_path, "whole.png").read_bytes()
    inbox = tmp_path / "in"
    inbox.mkdir()
    looking = source(shop, inbox, journal)
    looking.every = 0.2
    with watching(shop, looking, journal) as running, (inbox / "slow.png").open("wb") as file:
        for start in range(0, len(content), len(content) // 8):
            file.write(content[start : start + len(content) // 8])
            file.flush()
            time.sleep(0.05)
        file.flush()
        wait_for(lambda: any(record.get("answer") == "yak" for record in running.records))
    assert not any("error" in record for record in running.records)


def test_a_file_is_at_rest_when_it_has_not_changed_for_a_while(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = FolderSource(tmp_path, journal, every=1.0)
    seen = []
    for now, size in ((0.0, 1), (0.9, 1), (1.0, 2), (1.9, 2), (2.1, 2), (2.2, 3)):
        monkeypatch.setattr(folder_module, "time", SimpleNamespace(monotonic=lambda now=now: now))
        seen.append(len(looking._settled([("a.png", Version(size, 7))])))
    assert seen == [0, 0, 0, 0, 1, 0]


def test_a_half_file_is_given_time_and_then_named(
    shop: Store, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = put(tmp_path, "whole.png").read_bytes()
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "stalled.png").write_bytes(content[:60])
    (inbox / "broken.png").write_bytes(b"never a picture")
    looking = source(shop, inbox, journal)
    with watching(shop, looking, journal) as running:
        wait_for(lambda: len(looking._failed) == 2)
        assert not running.records
        (inbox / "stalled.png").write_bytes(content)  # it comes after all
        wait_for(lambda: len(running.records) == 1)
        monkeypatch.setattr(folder_module, "COMPLETION_SECONDS", 0.0)
        wait_for(lambda: len(running.records) == 2)
    assert running.records[0]["answer"] == "yak"
    assert running.records[1]["image"] == "broken.png"
    assert "cannot be read as an image" in running.records[1]["error"]


def test_the_folder_may_go_away_and_come_back(shop: Store, journal: Journal, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.png")
    with watching(shop, source(shop, tmp_path / "in", journal), journal) as running:
        wait_for(lambda: len(running.records) == 1)
        os.rename(tmp_path / "in", tmp_path / "away")
        wait_for(lambda: any("cannot be read" in line for line in running.said.lines))
        put(tmp_path / "away", "b.png")
        os.rename(tmp_path / "away", tmp_path / "in")
        wait_for(lambda: len(running.records) == 2)
    assert running.images == ["a.png", "b.png"]
    assert any("is there again" in line for line in running.said.lines)


class _Killed(BaseException):
    pass


def test_a_watch_that_is_killed_goes_on_and_loses_nothing(shop: Store, tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path / "in", f"{number:02}.png")
    seen: list[str] = []

    def emit(record: dict[str, str]) -> None:
        if len(seen) == 11:
            raise _Killed
        seen.append(record["image"])

    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal, pytest.raises(_Killed):
        watch(shop, source(shop, tmp_path / "in", journal, once=True), journal, [], emit, Event())
    assert len(seen) == 11
    again: list[str] = []
    with Journal(path) as journal:
        looking = source(shop, tmp_path / "in", journal, once=True)
        watch(shop, looking, journal, [], lambda record: again.append(record["image"]), Event())
        assert set(seen) | set(again) == {f"{number:02}.png" for number in range(20)}
        assert len(again) == 12  # the batch that was not recorded, and those after it
        watch(shop, source(shop, tmp_path / "in", journal, once=True), journal, [], emit, Event())


def test_a_few_files_are_in_memory_at_a_time(
    shop: Store, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "WAITING", 3)
    for number in range(10):
        os.utime(put(tmp_path / "in", f"{number}.png"), (number, number))
    looking = source(shop, tmp_path / "in", journal, once=True)
    seen = []
    for batch in looking.batches(Event()):
        assert len(looking._waiting) <= 3
        seen += [capture.image for capture in batch]
        journal.record(batch, [{}] * len(batch))
    assert seen == [f"{number}.png" for number in range(10)]


def test_files_are_moved_and_tagged_and_never_overwritten(
    shop: Store, journal: Journal, tmp_path: Path
) -> None:
    inbox, out = tmp_path / "in", tmp_path / "in" / "sorted"
    for folder in ("monday", "tuesday"):
        put(inbox, f"{folder}/a.png", "yak", int(folder == "tuesday"))
    put(inbox, "noted.png", "emu")
    sidecar_of(inbox / "noted.png").write_text("<xmp of another program/>")
    (inbox / "broken.png").write_bytes(b"no picture")
    actions = FileActions(journal, out, tag=True)
    looking = source(shop, inbox, journal, once=True, without=[out])
    with watching(shop, looking, journal, [actions]) as running:
        wait_for(lambda: len(running.records) == 4 and not journal.count_waiting())
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*.*"))
    assert found == [
        *("emu/noted.png", "emu/noted.png.xmp"),
        *("yak/a (2).png", "yak/a (2).png.xmp", "yak/a.png", "yak/a.png.xmp"),
    ]
    assert "<rdf:li>yak</rdf:li>" in (out / "yak" / "a.png.xmp").read_text()
    assert (out / "emu" / "noted.png.xmp").read_text() == "<xmp of another program/>"
    assert any("another program" in line for line in running.said.lines)
    assert [path.name for path in inbox.iterdir() if path.is_file()] == ["broken.png"]


def test_a_file_that_changed_since_it_was_answered_stays(
    shop: Store, journal: Journal, tmp_path: Path
) -> None:
    path = put(tmp_path / "in", "a.png")
    batch = next(source(shop, tmp_path / "in", journal, once=True).batches(Event()))
    actions = FileActions(journal, tmp_path / "out")
    message = actions.message({"answer": None}, batch[0])
    assert message is not None
    put(tmp_path / "in", "a.png", "emu")
    actions.deliver(message)
    assert path.exists()
    path.unlink()
    actions.deliver(message)  # gone: nothing to do
    assert not (tmp_path / "out").exists()
    assert move_to(put(tmp_path / "in", "b.png"), tmp_path / "out" / "unknown").read_bytes()


def test_one_watch_at_a_time_uses_a_journal(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(JournalUnusable, match="another watch"):
        Journal(journal.path)
    (tmp_path / "damaged.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(JournalUnusable):
        Journal(tmp_path / "damaged.sqlite")
    (tmp_path / "file").touch()
    with pytest.raises(JournalUnusable):
        Journal(tmp_path / "file" / "journal.sqlite")


def test_a_store_without_classes_has_nothing_to_answer(journal: Journal, tmp_path: Path) -> None:
    with make_store(tmp_path / "empty", base=(), sr_width=None) as store, pytest.raises(NoClasses):
        watch(store, source(store, tmp_path, journal), journal, [], print, Event())
