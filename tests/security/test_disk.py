"""Full disks and read-only folders: reading goes on, writing says what could not be, and changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fairshot import cli, files
from fairshot.errors import CannotWrite, UserError
from fairshot.files import PARTIAL, remove_partial, write_atomically
from fairshot.server.errors import status_of
from fairshot.teaching import Records, Store, database, export_archive, folders, import_archive
from fairshot.teaching.database import DATABASE
from fairshot.teaching.network import EMBEDDER
from support.commands import fairshot
from support.stores import drawings, make_store, network, store_spec

YAKS = drawings("yak", 3)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nobody write into a folder: by its mode or, for root, whom that does not stop, by a mount."""
    if os.geteuid():
        modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
        for path, mode in modes.items():
            path.chmod(mode & 0o555)
        yield
        for path, mode in modes.items():
            path.chmod(mode)
        return
    with mounted("--bind", folder, folder, then=("-o", "remount,bind,ro", folder)):
        yield


@contextmanager
def mounted(*arguments: object, then: tuple[object, ...] = ()) -> Iterator[None]:
    """Mount something at the last argument, if this system lets us."""
    for some in filter(None, (arguments, then)):
        done = subprocess.run(["mount", *map(str, some)], check=False, capture_output=True)
        if done.returncode:
            subprocess.run(["umount", str(arguments[-1])], check=False, capture_output=True)
            pytest.skip("nothing may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(arguments[-1])], check=True)


def all_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def as_on_a_read_only_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite refuse to open a database for writing, as it does where it cannot make files beside it."""
    opened = database._open

    def refuse(path: Path, how: str) -> sqlite3.Connection:
        if how == "mode=rw":
            problem = sqlite3.OperationalError("unable to open database file")
            problem.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise problem
        return opened(path, how)

    monkeypatch.setattr(database, "_open", refuse)


def check_reading_and_refusals(folder: Path, digest: str, elsewhere: Path) -> None:
    before = all_of(folder)
    with Store(folder) as store:
        assert store.digest() == digest
        assert store.predict(YAKS)
        assert store.classes()
        assert store.history()
        for change in (
            lambda: store.teach("emu", drawings("emu", 2)),
            lambda: store.forget("yak"),
            store.undo,
            lambda: store.set_confidence(store.snapshot().confidence),
        ):
            with pytest.raises(CannotWrite, match="nothing was changed") as refused:
                change()
            assert refused.value.path.name == DATABASE
            assert status_of(refused.value) == 503
        assert store.digest() == digest
    export_archive(folder, elsewhere / "store.zip")
    assert all_of(folder) == before
    import_archive(elsewhere / "store.zip", elsewhere / "imported")
    with Store(elsewhere / "imported") as copy:
        assert copy.digest() == digest


def test_a_store_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_store(tmp_path / "store") as store:
        store.teach("yak", YAKS)
        digest = store.digest()
    with monkeypatch.context() as patched:
        as_on_a_read_only_disk(patched)
        with Store(tmp_path / "store") as store:
            assert store.digest() == digest
            with pytest.raises(CannotWrite, match="nothing was changed"):
                store.forget("yak")
    with Store(tmp_path / "store") as store:
        store.forget("yak")
        shutil.copytree(store.folder, tmp_path / "killed")
    as_on_a_read_only_disk(monkeypatch)
    with pytest.raises(UserError, match="not completed"):
        Store(tmp_path / "killed")


def test_a_store_that_was_changed_without_its_network_and_cannot_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("store", "other"):
        with make_store(tmp_path / name, base=(), sr_width=None) as store:
            store.teach("yak", YAKS)
            store.teach("emu", drawings("emu", 3))
    with Records(tmp_path / "store") as records, Store(tmp_path / "other") as expected:
        records.rename("yak", "ox")
        expected.rename("yak", "ox")
        answers, digest = expected.predict(YAKS), expected.digest()
    before = all_of(tmp_path / "store")
    as_on_a_read_only_disk(monkeypatch)
    with Store(tmp_path / "store") as store:
        assert store.predict(YAKS) == answers
        assert store.digest() == digest
        assert [event.kind for event in store.history()] == ["rename", "teach", "teach", "new"]
        with pytest.raises(CannotWrite, match="nothing was changed"):
            store.forget("ox")
        assert store.digest() == digest
    assert all_of(tmp_path / "store") == before


def test_a_store_in_a_read_only_folder_is_read(tmp_path: Path) -> None:
    with make_store(tmp_path / "store") as store:
        store.teach("yak", YAKS)
        digest = store.digest()
    (tmp_path / "elsewhere").mkdir()
    with read_only(tmp_path / "store"):
        check_reading_and_refusals(tmp_path / "store", digest, tmp_path / "elsewhere")
    with Store(tmp_path / "store") as store:
        store.forget("yak")


def test_commands_on_a_read_only_store(tmp_path: Path) -> None:
    with make_store(tmp_path / "store") as store:
        store.teach("yak", YAKS)
    for name in ("yak", "emu"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index, drawing in enumerate(drawings(name, 3)):
            Image.fromarray(drawing[:, :, 0]).save(tmp_path / "photos" / name / f"{index}.png")
    with read_only(tmp_path / "store"):
        for command in (
            ("predict", "store", "photos/yak"),
            ("classes", "store"),
            ("history", "store"),
            ("evaluate", "store", "photos"),
            ("export", "store", "store.zip"),
        ):
            done = fairshot(tmp_path, *command)
            assert done.wait() == 0, (command, done.stderr)
        refused = fairshot(tmp_path, "teach", "store", "emu", "photos/emu")
        assert refused.wait() == 2
        assert "store.sqlite cannot be written" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """SQLite says the same where a database may not grow."""
    with make_store(tmp_path / "store") as store:
        before = store.digest(), store.history()
        pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(CannotWrite, match="the disk is full") as refused:
            store.teach("yak", drawings("yak", 40))
        assert status_of(refused.value) == 507
        assert (store.digest(), store.history()) == before
        store._writer.execute("PRAGMA max_page_count = 1000000")
        assert store.teach("yak", drawings("yak", 40)).photos == 40


def test_a_small_disk_filled_to_the_brim(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    make_store(tmp_path / "pattern").close()
    size = sum(path.stat().st_size for path in (tmp_path / "pattern").iterdir()) + 2**18
    with mounted("-t", "tmpfs", "-o", f"size={size}", "none", disk):
        shutil.copytree(tmp_path / "pattern", disk / "store")
        with pytest.raises(CannotWrite) as refused:
            Store.create(disk / "second", store_spec(network(), ["ant"]))
        assert refused.value.disk_full
        with pytest.raises(CannotWrite):
            export_archive(disk / "store", disk / "store.zip")
        export_archive(disk / "store", tmp_path / "store.zip")
        with pytest.raises(CannotWrite) as refused:
            import_archive(tmp_path / "store.zip", disk / "second")
        assert (refused.value.path, refused.value.disk_full) == (disk / "second", True)
        assert [path.name for path in disk.iterdir()] == ["store"]
        with Store(disk / "store") as store:
            digest = store.digest()
            with pytest.raises(CannotWrite) as refused:
                store.teach("yak", drawings("yak", 300))
            assert refused.value.disk_full
            assert store.digest() == digest
        _fill(disk / "rest")
        with Store(disk / "store") as store:
            assert store.digest() == digest
            with pytest.raises(CannotWrite):
                store.teach("yak", YAKS)
        (disk / "rest").unlink()
        with Store(disk / "store") as store:
            assert store.teach("yak", YAKS).photos == 3


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "note", b"old")

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(CannotWrite, match=r"note cannot be written \(No space left") as refused:
        write_atomically(tmp_path / "note", b"new")
    assert refused.value.disk_full
    assert all_of(tmp_path) == {"note": b"old"}


def test_what_nobody_foresaw_to_be_full_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/log.txt")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == cli.UNUSABLE
    assert "runs/log.txt cannot be written (No space left on device)" in capsys.readouterr().err


def test_half_written_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    script = (
        "import os, signal; from pathlib import Path; from fairshot import files\n"
        "files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"files.write_atomically(Path({str(tmp_path / 'note')!r}), b'content')"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert [path.suffix for path in tmp_path.iterdir()] == [PARTIAL]
    with (tmp_path / f".other.{PARTIAL}").open("wb") as being_written:
        files._lock(being_written)
        remove_partial(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [f".other.{PARTIAL}"]
    remove_partial(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    make_store(tmp_path / "store").close()
    export_archive(tmp_path / "store", tmp_path / "store.zip")
    names = {
        f".old.1{folders.TEMPORARY}": 2 * folders.OLD,
        f".new.1{folders.TEMPORARY}": 0,
        ".old": 2 * folders.OLD,
    }
    for name, age in names.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / EMBEDDER).write_bytes(b"half")
        for path in (tmp_path / name / EMBEDDER, tmp_path / name):
            os.utime(path, (time.time() - age,) * 2)
    import_archive(tmp_path / "store.zip", tmp_path / "imported")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"store", "store.zip", "imported", f".new.1{folders.TEMPORARY}", ".old"}


def test_a_server_says_that_its_disk_is_full(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from fairshot.server.app import build_app

    with (
        make_store(tmp_path / "store") as store,
        TestClient(build_app(store), base_url="http://localhost") as client,
    ):
        pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        noise = np.random.default_rng(0).integers(0, 256, (20, 16, 16), dtype=np.uint8)
        sent = [("photos", (f"{index}.png", _png(tmp_path, image))) for index, image in enumerate(noise)]
        answer = client.post("/api/teach", data={"name": "yak"}, files=sent)
        assert answer.status_code == 507, answer.text
        assert "the disk is full" in answer.json()["detail"]


def _png(folder: Path, image: np.ndarray) -> bytes:
    Image.fromarray(image).save(folder / "image.png")
    return (folder / "image.png").read_bytes()
