"""A folder of classes is taught in one call, which can be stopped and repeated."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from fairshot.cli import app
from fairshot.progress import Reporter
from fairshot.teaching import Store, teach_folder
from fairshot.teaching.errors import ClassesRefused, NestedClassFolders, NoClassFolders
from fairshot.teaching.evaluating import read_folder
from fairshot.teaching.network import Network
from support.pages import parse
from support.stores import drawings, make_store


def write(folder: Path, word: str, count: int, skip: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index, drawing in enumerate(drawings(word, count)[skip:], start=skip):
        Image.fromarray(drawing[..., 0]).save(folder / f"{index}.png")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for word in ("emu", "gnu", "yak"):
        write(tmp_path / "photos" / word, word, 3)
    return tmp_path / "photos"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "shop")


def test_every_sub_folder_is_a_class_taught_as_by_itself(store: Store, photos: Path, tmp_path: Path) -> None:
    done = teach_folder(store, photos)
    assert [(report.name, report.photos, report.created) for report in done.reports] == [
        ("emu", 3, True),
        ("gnu", 3, True),
        ("yak", 3, True),
    ]
    assert not done.refused
    assert [event.kind for event in store.history()] == ["teach"] * 3 + ["new"]  # one transaction per class
    with make_store(tmp_path / "one by one") as other:
        for name in ("yak", "emu", "gnu"):
            other.teach(name, sorted((photos / name).iterdir()))
        assert store.digest() == other.digest()


class _Interrupted(Reporter):
    """Stops like Ctrl-C after so many classes."""

    def __init__(self, classes: int) -> None:
        self.left = classes

    def say(self, text: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_it_goes_on_where_it_was_stopped_and_embeds_no_photo_twice(
    store: Store, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        teach_folder(store, photos, _Interrupted(2))
    embedded = 0
    real = Network.photos

    def counted(network: Network, pictures):  # type: ignore[no-untyped-def]
        nonlocal embedded
        embedded += len(pictures)
        return real(network, pictures)

    monkeypatch.setattr(Network, "photos", counted)
    write(photos / "emu", "emu", 4, skip=3)
    done = teach_folder(store, photos)
    assert [(report.photos, report.known) for report in done.reports] == [(1, 3), (0, 3), (3, 0)]
    assert embedded == 4
    assert "6 more photos were known already" in done.sentence()
    assert teach_folder(store, photos).sentence().startswith("0 classes")
    assert embedded == 4


def test_what_cannot_be_taught_does_not_keep_the_others_from_it(store: Store, photos: Path) -> None:
    write(photos / "unknown", "anything", 2)
    write(photos / "broken", "broken", 1)
    (photos / "broken" / "0.png").write_bytes(b"no image")
    (photos / "yak" / "broken.png").write_bytes(b"no image")
    write(photos / "ox", "yak", 4)  # three of them are those of yak, but come first
    (photos / "empty").mkdir()
    (photos / ".hidden").mkdir()
    done = teach_folder(store, photos)
    assert set(done.refused) == {"unknown", "broken", "yak"}
    assert [report.name for report in done.reports] == ["emu", "gnu", "ox"]
    outcome = CliRunner().invoke(app, ["teach", str(store.folder), str(photos)])
    assert isinstance(outcome.exception, ClassesRefused)
    assert set(outcome.exception.reasons) == {"unknown", "broken", "yak"}
    assert "0 classes" in outcome.output
    assert {info.name for info in store.classes()} == {"ant", "bee", "cow", "emu", "gnu", "ox"}


def test_photos_of_another_class_are_not_taught_and_said_so_once(store: Store, photos: Path) -> None:
    write(photos / "zebra", "yak", 3)
    outcome = CliRunner().invoke(app, ["teach", str(store.folder), str(photos)])
    assert isinstance(outcome.exception, ClassesRefused)
    reason = outcome.exception.reasons["zebra"]
    assert reason.startswith(
        f"all 3 photos are left out: {photos / 'zebra' / '0.png'}: it is stored as 'yak'"
    )
    assert str(outcome.exception) == f"not taught: zebra: {reason}"
    assert "zebra" not in outcome.output  # the exception is printed once, by the command line


def test_a_folder_without_classes_is_refused(store: Store, photos: Path) -> None:
    for folder in (photos / "emu", photos / "nothing"):
        with pytest.raises(NoClassFolders):
            teach_folder(store, folder)
    outcome = CliRunner().invoke(app, ["teach", str(store.folder), "okapi"])
    assert "okapi is not a folder" in str(outcome.exception)
    before = store.digest()
    assert "would be taught: 3 classes" in (
        CliRunner().invoke(app, ["teach", str(store.folder), str(photos), "--dry-run"]).output
    )
    assert store.digest() == before


def test_a_folder_one_too_high_is_refused_and_nothing_is_taught(store: Store, photos: Path) -> None:
    write(photos.parent / "drawings" / "test" / "emu", "emu", 2)
    write(photos.parent / "drawings" / "gnu", "gnu", 2)
    before = store.digest()
    for read in (teach_folder, read_folder):
        with pytest.raises(NestedClassFolders) as refused:
            read(store, photos.parent / "drawings")
        assert refused.value.nested == [photos.parent / "drawings" / "test"]
    assert f"did you mean {photos.parent / 'drawings' / 'test'}?" in str(refused.value)
    assert store.digest() == before
    assert len(teach_folder(store, photos.parent / "drawings" / "test").reports) == 1


def test_photos_in_folders_below_those_of_a_class_belong_to_it(store: Store, photos: Path) -> None:
    write(photos / "yak" / "last year", "yak", 5, skip=3)
    assert {report.name: report.photos for report in teach_folder(store, photos).reports}["yak"] == 5


def test_each_class_is_a_change_of_its_own_and_that_is_said(store: Store, photos: Path) -> None:
    outcome = CliRunner().invoke(app, ["teach", str(store.folder), str(photos)])
    command, last = re.findall(r"fairshot (.*?) takes back the last, (.*?);", outcome.output)[0]
    assert parse(shlex.split(command)) == "undo"
    undone = CliRunner().invoke(app, shlex.split(command))
    assert f"undone: teach {last}, 3 photos" in undone.output
    assert {info.name for info in store.classes()} >= {"emu", "gnu"}
    again = CliRunner().invoke(app, ["teach", str(store.folder), str(photos)])
    assert "takes back" not in again.output  # a single class was taught


def test_what_was_taught_is_asked_next_by_commands_that_the_command_line_takes(tmp_path: Path) -> None:
    write(tmp_path / "photos" / "emu", "emu", 3)
    make_store(tmp_path / "my store").close()  # a name with a space is quoted
    outcome = CliRunner().invoke(app, ["teach", str(tmp_path / "my store"), str(tmp_path / "photos")])
    commands = re.findall(r"fairshot (.*?)(?:,| for )", outcome.output.splitlines()[-1])
    assert [parse(shlex.split(command)) for command in commands] == ["predict", "serve"]
    assert all(str(tmp_path / "my store") in shlex.split(command) for command in commands)
