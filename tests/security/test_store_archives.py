"""Archives of stores that somebody made up: refused for what they hold, or harmless."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from fairshot.errors import UserError
from fairshot.teaching import Store, database
from fairshot.teaching.archive import export_archive, import_archive
from fairshot.teaching.base_counts import CLASSIFIER
from fairshot.teaching.database import DATABASE
from fairshot.teaching.errors import ArchiveRefused, StoreDamaged
from fairshot.teaching.network import CHECKSUM, EMBEDDER, HEADER, checksum_of_tensors
from fairshot.teaching.onnx_export import export_onnx
from support.damage import damages
from support.stores import drawings, make_store

Members = dict[str, bytes]
Change = Callable[[Members, Path], Members]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archive a store to which all that can be done was done."""
    folder = tmp_path_factory.mktemp("honest")
    with make_store(folder / "store") as store:
        store.teach("yak", drawings("yak", 3))
        store.teach("emu", drawings("emu", 2))
        store.rename("emu", "ostrich")
        store.merge("cow", "bee")
        store.move("yak", [store.photos("yak")[0].id], "gnu")
        store.drop("yak", [store.photos("yak")[0].id])
        store.undo()
        store.forget("ostrich")
        assert store.adapt(drawings("yak", 5)[3:]).absorbed
        store.set_confidence(store.snapshot().confidence)
        store.undo()
        store.undo()
    export_archive(folder / "store", folder / "good.zip")
    return folder / "good.zip"


def changed(archive: Path, change: Change, folder: Path) -> Path:
    """Copy an archive with its members changed."""
    with zipfile.ZipFile(archive) as packed, zipfile.ZipFile(folder / "bad.zip", "w") as copy:
        members = {name: packed.read(name) for name in packed.namelist()}
        for name, content in change(members, folder).items():
            copy.writestr(name, content)
    return folder / "bad.zip"


def sql(statement: str, *values: object) -> Change:
    """Change the database."""

    def change(members: Members, folder: Path) -> Members:
        (folder / DATABASE).write_bytes(members[DATABASE])
        with sqlite3.connect(folder / DATABASE) as connection:
            assert connection.execute(statement, values).rowcount
        connection.close()
        return members | {DATABASE: (folder / DATABASE).read_bytes()}

    return change


def described(file_name: str = EMBEDDER, section: str | None = None, **values: object) -> Change:
    """Change the header of a file of tensors, or the tensors that have these names."""

    def change(members: Members, folder: Path) -> Members:
        (folder / file_name).write_bytes(members[file_name])
        with safe_open(folder / file_name, framework="pt") as file:
            description = json.loads(file.metadata()[HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[name] = value
            else:
                (description[section] if section else description)[name] = value
        text = json.dumps(description)
        metadata = {
            HEADER: text,
            CHECKSUM: checksum_of_tensors(tensors, text),
        }  # whoever made it up knows how
        return members | {file_name: save(tensors, metadata=metadata)}

    return change


def without_numbers(members: Members, folder: Path) -> Members:
    return sql("UPDATE images SET g = ?", torch.full((2, 128), torch.nan).numpy().tobytes())(members, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, _: m | {"../outside.txt": b"x"}, "holds '../outside.txt'"),
        (lambda m, _: m | {"/etc/outside": b"x"}, "holds '/etc/outside'"),
        (lambda m, _: {name: m[name] for name in [DATABASE]}, "a store consists of"),
        (lambda m, _: m | {DATABASE: b"no database"}, "not a database"),
        (lambda m, _: m | {DATABASE: m[DATABASE][: len(m[DATABASE]) // 2]}, "damaged|malformed"),
        (lambda m, _: m | {EMBEDDER: b"no weights"}, "not the embedder"),
        (described(sr_width=10**6), "larger than its weights"),
        (described(section="model", backbone="resnet18"), "larger than its weights"),
        (described(channels=10**9), "not the embedder"),
        (described(flip=3), "not the embedder"),
        (described(drawing_side=10**6), "not the embedder"),
        (lambda m, _: m | {CLASSIFIER: b"no tensors"}, "not the classifier"),
        (described(CLASSIFIER, gamma=float("nan")), "not the classifier"),
        (described(CLASSIFIER, gamma=-1.0), "not the classifier"),
        (described(CLASSIFIER, secret=1), "not the classifier"),
        (described(CLASSIFIER, whitening=True), "not the classifier.*gate.matrix"),
        (described(CLASSIFIER, counts=torch.tensor([4, 4])), "not the classifier.*h.means"),
        (described(CLASSIFIER, counts=torch.tensor([4, 4, 0])), "no store holds"),
        (described(CLASSIFIER, **{"h.means": torch.ones(3, 2, 128).double()}), "torch.float64"),
        (described(CLASSIFIER, **{"h.means": torch.full((3, 2, 128), torch.nan)}), "numbers that no"),
        (described(CLASSIFIER, **{"h_tilde.delta": torch.ones(3, 2, 24).long()}), "not of a base session"),
        (sql("INSERT INTO base (id, class) VALUES (9, 1)"), "other base classes"),
        (
            sql("UPDATE settings SET value = replace(value, '0.0', 'NaN') WHERE key = 'confidence'"),
            "no store",
        ),
        (sql("DELETE FROM settings WHERE key = 'confidence'"), "no store holds: settings"),
        (sql("INSERT INTO settings (key, value) VALUES ('more', '1')"), "no store holds: settings"),
        (without_numbers, "features that no embedder gives"),
        (sql("UPDATE images SET g = x'00'"), "features of another size"),
        (sql("UPDATE classes SET name = '../ant' WHERE name = 'ant'"), "path of a file"),
        (sql("INSERT INTO classes (name) VALUES ('empty')"), "'empty' without an image"),
        (sql("UPDATE unlabelled SET kept = 7"), "kept 7 times"),
        (sql("UPDATE events SET detail = '1'"), "no store holds"),
        (sql("UPDATE events SET detail = '{\"name\": 1, \"photos\": 1}' WHERE kind = 'teach'"), "no store"),
        (
            sql('UPDATE events SET detail = \'{"kind": "undo", "event": 1}\' WHERE kind = \'undo\''),
            "no store",
        ),
        (sql("UPDATE events SET detail = ? WHERE kind = 'new'", '{"run": "\\u001b[2J"}'), "no store holds"),
        (sql("UPDATE events SET detail = '{\"name\": \"yak\"}' WHERE kind = 'drop'"), "no store holds"),
        (sql("UPDATE events SET detail = replace(detail, 'gnu', '../x') WHERE kind = 'move'"), "path of a"),
        (sql("UPDATE events SET kind = 'dance' WHERE kind = 'teach'"), "no store holds: 'dance'"),
        (sql("UPDATE events SET at = '<b onclick=x()>'"), "no store holds"),
        (
            sql("UPDATE events SET at = '2020-01-01' || char(27) || '00:00:00+00:00'"),
            "no store holds: the time",
        ),
        (sql("UPDATE events SET detail = ? WHERE kind = 'new'", json.dumps({"run": "x" * 5000})), "no store"),
        (sql("INSERT INTO classes (id) VALUES (-1)"), "ids of classes"),
        (
            sql(
                "INSERT INTO events (id, at, kind, detail) VALUES (?, ?, 'forget', ?)",
                *(2**63 - 1, "2020-01-01T00:00:00+00:00", '{"name": "yak"}'),
            ),
            "ids of events",
        ),
        (sql("UPDATE changes SET key = x'00ff' WHERE subject = 'class'"), "a change of class"),
        (sql("UPDATE changes SET key = 9e999 WHERE subject = 'class'"), "a change of class inf"),
        (lambda m, _: {"\x1b" + "x" * 60_000: b"", **m}, r"^.{,400}$"),
        (sql("UPDATE changes SET before = '../ant' WHERE subject = 'class'"), "path of a file"),
        (sql("UPDATE changes SET before = 99 WHERE subject = 'image'"), "a change of image"),
        (sql("UPDATE changes SET key = 99 WHERE subject = 'base'"), "a change of base"),
        (sql("UPDATE changes SET before = 'x' WHERE subject = 'setting'"), "no store holds"),
        (sql("UPDATE changes SET subject = 'secret' WHERE subject = 'sample'"), "no store holds: 'secret'"),
    ],
)
def test_hostile_archives_leave_nothing(archive: Path, tmp_path: Path, change: Change, message: str) -> None:
    bad = changed(archive, change, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArchiveRefused, match=message) as refused:
        import_archive(bad, tmp_path / "inside" / "imported")
    assert refused.value.archive == bad
    assert ".fairshot-tmp" not in str(refused.value)
    (tmp_path / "inside").rmdir()
    assert sorted(tmp_path.rglob("*")) == before


TRIGGER = "CREATE TRIGGER {} AFTER INSERT ON events BEGIN DELETE FROM classes; END"


def opened_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the comparison of schemas off."""
    monkeypatch.setattr(database, "check_schema", lambda *_: None)


@pytest.mark.parametrize("name", ["sqliteZevil", "sqlite0", "slipped"])
def test_a_trigger_of_a_stranger_is_refused_and_would_not_survive(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def add(members: Members, folder: Path) -> Members:
        (folder / DATABASE).write_bytes(members[DATABASE])
        with closing(sqlite3.connect(folder / DATABASE)) as connection:
            connection.execute(TRIGGER.format(name))
        return members | {DATABASE: (folder / DATABASE).read_bytes()}

    bad = changed(archive, add, tmp_path)
    with pytest.raises(ArchiveRefused, match="its tables are others"):
        import_archive(bad, tmp_path / "imported")
    opened_anyway(monkeypatch)
    import_archive(bad, tmp_path / "imported")
    with closing(sqlite3.connect(tmp_path / "imported" / DATABASE)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall() == []


@pytest.mark.parametrize("name", ["sqliteZevil", "slipped"])
def test_a_trigger_in_the_folder_of_a_store_is_refused(tmp_path: Path, name: str) -> None:
    make_store(tmp_path / "store").close()
    with closing(sqlite3.connect(tmp_path / "store" / DATABASE)) as connection:
        connection.execute(TRIGGER.format(name))
    with pytest.raises(UserError, match="its tables are others"):
        Store(tmp_path / "store")


def test_an_archive_does_not_unpack_to_far_more_than_it_is(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros of 64 MB are 64 KB of zip; nothing of them is written."""
    with zipfile.ZipFile(archive) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in (CLASSIFIER, DATABASE):
            bomb.writestr(name, members[name])
        with bomb.open(EMBEDDER, "w") as file:
            for _ in range(64):
                file.write(bytes(2**20))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("something was unpacked"))
    with pytest.raises(ArchiveRefused, match="would unpack to"):
        import_archive(tmp_path / "bomb.zip", tmp_path / "imported")


def test_an_archive_of_another_compression_is_refused(archive: Path, tmp_path: Path) -> None:
    """Some need as much memory as their header asks for, and fail with errors of their own."""
    with (
        zipfile.ZipFile(archive) as packed,
        zipfile.ZipFile(tmp_path / "bad.zip", "w", zipfile.ZIP_LZMA) as copy,
    ):
        for name in packed.namelist():
            copy.writestr(name, packed.read(name))
    with pytest.raises(ArchiveRefused, match="compressed otherwise"):
        import_archive(tmp_path / "bad.zip", tmp_path / "imported")


@pytest.mark.parametrize("content", [None, "a folder", b"", b"PK", b"no zip" * 100])
def test_what_is_no_archive_is_named(tmp_path: Path, content: bytes | str | None) -> None:
    archive = tmp_path / "store.zip"
    if isinstance(content, str):
        archive.mkdir()
    elif content is not None:
        archive.write_bytes(content)
    with pytest.raises(ArchiveRefused, match=r"store\.zip cannot be imported"):
        import_archive(archive, tmp_path / "imported")


def test_a_damaged_archive_is_one_message(archive: Path, tmp_path: Path) -> None:
    for number, damage in enumerate(damages(archive.read_bytes(), 30, seed=1)):
        (tmp_path / "bad.zip").write_bytes(damage.content)
        try:
            import_archive(tmp_path / "bad.zip", tmp_path / str(number))
        except ArchiveRefused:
            continue
        else:  # what was hit belongs to no member
            with Store(tmp_path / str(number)) as copy, Store(archive.with_name("store")) as store:
                assert copy.digest() == store.digest(), damage.name


def test_a_made_up_undo_that_does_not_fit_is_one_message(archive: Path, tmp_path: Path) -> None:
    """Of two classes with one name there is none: the undo is refused, and all else goes on."""
    import_archive(
        changed(archive, sql("UPDATE changes SET before = 'ant' WHERE subject = 'class'"), tmp_path),
        tmp_path / "copy",
    )
    with Store(tmp_path / "copy") as store:
        before = store.digest()
        with pytest.raises(StoreDamaged):
            store.undo()
        assert store.digest() == before
        assert store.teach("owl", drawings("owl", 2)).created


@pytest.mark.parametrize("kind", ["encrypted", "nested", "twice", "many", "link"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_strange_archives_leave_nothing(archive: Path, tmp_path: Path, kind: str) -> None:
    bad, target = tmp_path / "bad.zip", tmp_path / "copy"
    with zipfile.ZipFile(archive) as packed, zipfile.ZipFile(bad, "w") as copy:
        for name in packed.namelist() if kind != "nested" else ():
            member = zipfile.ZipInfo(name)
            if kind == "link" and name == CLASSIFIER:  # unpacked as a file, whatever it says it is
                member.create_system, member.external_attr = 3, 0o120777 << 16
                copy.writestr(member, "/etc/passwd")
            else:
                copy.writestr(member, packed.read(name))
        more = {"nested": ["store.zip"], "twice": [DATABASE], "many": [f"{i}" for i in range(20_000)]}
        for name in more.get(kind, []):
            copy.writestr(name, archive.read_bytes() if kind == "nested" else b"")
    if kind == "encrypted":
        content = bad.read_bytes()
        for header, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            before, *parts = content.split(header)
            parts = [part[: flags - 4] + b"\1" + part[flags - 3 :] for part in parts]
            content = header.join([before, *parts])
        bad.write_bytes(content)
    with pytest.raises(ArchiveRefused) as refused:
        import_archive(bad, target)
    assert len(str(refused.value)) < 1000
    assert list(tmp_path.iterdir()) == [bad]


def test_all_that_was_done_can_be_undone_elsewhere(archive: Path, tmp_path: Path) -> None:
    shutil.copytree(archive.with_name("store"), tmp_path / "store")
    import_archive(archive, tmp_path / "imported")
    with Store(tmp_path / "imported") as copy, Store(tmp_path / "store") as store:
        assert copy.history() == store.history()
        for left in range(6, 0, -1):
            assert copy.digest() == store.digest(), f"{left} events stand"
            assert copy.undo() == store.undo()
        assert copy.snapshot().names == ["ant", "bee", "cow"]


def test_an_imported_store_fetches_no_weights(archive: Path, tmp_path: Path) -> None:
    """The backbone has no pretrained weights: a store that asked for them could not be opened."""
    asking = described(section="model", pretrained=True)
    import_archive(changed(archive, asking, tmp_path), tmp_path / "imported")
    with Store(tmp_path / "imported") as copy, Store(archive.with_name("store")) as store:
        assert copy.predict(drawings("yak", 3)) == store.predict(drawings("yak", 3))


def test_a_stored_image_is_decoded_as_an_upload_is(archive: Path, tmp_path: Path) -> None:
    """By the few decoders that are trusted; the one of PPM is not among them."""
    slipped = sql("UPDATE images SET thumbnail = ?", b"P6 1 1 255 abc")
    import_archive(changed(archive, slipped, tmp_path), tmp_path / "imported")
    with Store(tmp_path / "imported") as store, pytest.raises(UserError, match="cannot be read as an image"):
        export_onnx(store, tmp_path / "model.onnx")
