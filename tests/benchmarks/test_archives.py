"""Archives: unpacked once, and refused without a trace when they are not what they should be."""

import io
import tarfile
import zipfile

import pytest

from fairshot.benchmarks.archives import unpack
from fairshot.errors import FileRefused


def _tar(path, members, mode="w"):
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                tar.addfile(info)
    return path


def _zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path


def _left(folder):
    """Return what is in a folder besides archives and locks."""
    return [
        entry.name
        for entry in folder.rglob("*")
        if not entry.name.endswith((".tar", ".zip", ".lock", ".tgz"))
    ]


GOOD = {"data/a.txt": b"one", "data/deep/b.txt": b"two"}


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("x.tar", _tar),
        ("x.tgz", lambda path, members: _tar(path, members, "w:gz")),
        ("x.tar.xz", lambda path, members: _tar(path, members, "w:xz")),
        ("x.zip", _zip),
    ],
)
def test_archives_are_unpacked_beside_themselves_and_only_once(tmp_path, name, pack):
    folder = unpack(pack(tmp_path / name, GOOD))
    assert folder == tmp_path / "x.unpacked"
    for member, content in GOOD.items():
        assert (folder / member).read_bytes() == content
    (folder / "data/a.txt").write_text("mine")
    assert unpack(tmp_path / name) == folder
    assert (folder / "data/a.txt").read_text() == "mine"


def test_another_archive_of_the_same_name_is_unpacked_anew(tmp_path):
    unpack(_tar(tmp_path / "x.tar", GOOD))
    folder = unpack(_tar(tmp_path / "x.tar", {"data/c.txt": b"three" * 9999}))
    assert sorted(path.name for path in folder.rglob("*.txt")) == ["c.txt"]


BAD_NAMES = [
    "../escaped.txt",
    "data/../../escaped.txt",
    "/tmp/fairshot-escaped.txt",
    "..\\escaped.txt",
    "C:\\x.txt",
]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("pack", [_tar, _zip])
def test_members_outside_the_folder_are_refused(tmp_path, pack, name):
    archive = pack(tmp_path / ("x.zip" if pack is _zip else "x.tar"), {"fine.txt": b"", name: b"bad"})
    with pytest.raises(FileRefused, match="outside"):
        unpack(archive)
    assert _left(tmp_path) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    archive = _tar(tmp_path / "x.tar", {"fine.txt": b"", "odd": (kind, "fine.txt")})
    with pytest.raises(FileRefused, match="'odd' is a link or a device"):
        unpack(archive)
    assert _left(tmp_path) == []


def test_links_in_zip_files_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, "/etc")
    with pytest.raises(FileRefused, match="'link' is a link or a device"):
        unpack(tmp_path / "x.zip")


@pytest.mark.parametrize("pack", [_zip, lambda path, members: _tar(path, members, "w:gz")])
def test_bombs_are_refused_at_the_limit(tmp_path, pack):
    name = "x.zip" if pack is _zip else "x.tgz"
    archive = pack(tmp_path / name, {"a": bytes(6 * 2**20), "b": bytes(6 * 2**20)})
    assert archive.stat().st_size < 100_000
    with pytest.raises(FileRefused, match=r"10,485,760 bytes"):
        unpack(archive, bytes_limit=10 * 2**20)
    assert _left(tmp_path) == []


@pytest.mark.parametrize("name", ["x.tar", "x.tgz", "x.zip"])
def test_truncated_and_garbled_archives_are_one_error(tmp_path, name):
    modes = {"x.tar": "w", "x.tgz": "w:gz"}
    members = {"a": bytes(range(256)) * 999, "b": bytes(range(255)) * 999}
    archive = tmp_path / name
    if name == "x.zip":
        _zip(archive, members)
    else:
        _tar(archive, members, modes[name])
    whole = archive.read_bytes()
    for broken in (whole[: len(whole) // 2], b"no archive", b""):
        archive.write_bytes(broken)
        with pytest.raises(FileRefused) as refused:
            unpack(archive)
        assert refused.value.path == archive
        assert _left(tmp_path) == []
