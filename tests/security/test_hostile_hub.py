"""What is pulled from a hub of strangers: bounded by what its manifest says, and whole or not at all."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from fairshot.documents import write_json
from fairshot.errors import CannotWrite, UserError
from fairshot.hub import sharing
from fairshot.hub.errors import DownloadDamaged, HubUnreachable, NotFromFairshot
from fairshot.hub.sharing import ARCHIVE, MANIFEST, pull, push
from fairshot.teaching.database import DATABASE
from fairshot.teaching.errors import ArchiveRefused
from support.hub_stand_in import MUCH, TOKEN, Hub, running_hub
from support.stores import make_store

REPO = "me/store"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub that holds a store."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(sharing, "WAIT", 0.01)
    store = tmp_path_factory.mktemp("pushed") / "store"
    make_store(store).close()
    with running_hub() as served:
        push(store, REPO, endpoint=served.url)
        yield served


@pytest.mark.parametrize("name", [ARCHIVE, MANIFEST])
def test_a_file_without_an_end_is_not_pulled_for_ever(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.endless = name
    with pytest.raises(DownloadDamaged) as damaged:
        pull(REPO, tmp_path / "store", endpoint=hub.url)
    assert damaged.value.file == name
    assert hub.sent < MUCH
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_leads_to_itself_is_one_message(hub: Hub, tmp_path: Path) -> None:
    hub.circling = ARCHIVE
    with pytest.raises(HubUnreachable):
        pull(REPO, tmp_path / "store", endpoint=hub.url)
    assert list(tmp_path.iterdir()) == []


KNOWN = {"sha256": "0" * 64, "size": 1}


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"files": {ARCHIVE: {**KNOWN, "size": 10**14}}}, CannotWrite),
        ({"files": {ARCHIVE: {**KNOWN, "size": -1}}}, UserError),
        ({"files": {ARCHIVE: {**KNOWN, "size": 10**400}}}, UserError),
        ({"files": {ARCHIVE: KNOWN}}, DownloadDamaged),
        ({"files": {}}, NotFromFairshot),
        ({"files": {ARCHIVE: KNOWN, "../../.bashrc": KNOWN}}, NotFromFairshot),
        ({"files": {ARCHIVE: KNOWN, "/etc/passwd": KNOWN}}, NotFromFairshot),
        ({"files": {"\x1b[2J" + "x" * 10_000: KNOWN}}, NotFromFairshot),
        ({"kind": "code"}, UserError),
    ],
)
def test_a_manifest_that_asks_for_more_is_refused(
    hub: Hub, tmp_path: Path, changes: dict[str, Any], refusal: type[UserError]
) -> None:
    files = hub.repos[REPO]
    described = {key: value for key, value in json.loads(files[MANIFEST]).items() if key != "sha256"}
    write_json(tmp_path / MANIFEST, json.dumps(described | changes))
    files[MANIFEST] = (tmp_path / MANIFEST).read_bytes()
    (tmp_path / MANIFEST).unlink()
    hub.asked.clear()
    with pytest.raises(refusal) as refused:
        pull(REPO, tmp_path / "store", endpoint=hub.url)
    assert len(str(refused.value)) < 500
    assert "\x1b" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_trigger_does_not_come_by_a_hub(hub: Hub, tmp_path: Path) -> None:
    files, archive = hub.repos[REPO], tmp_path / "evil.zip"
    archive.write_bytes(files[ARCHIVE])
    with zipfile.ZipFile(archive) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    (tmp_path / DATABASE).write_bytes(members[DATABASE])
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("CREATE TRIGGER evil AFTER INSERT ON events BEGIN DELETE FROM images; END")
    connection.close()
    with zipfile.ZipFile(archive, "w") as packed:
        for name, content in (members | {DATABASE: (tmp_path / DATABASE).read_bytes()}).items():
            packed.writestr(name, content)
    described = json.loads(files[MANIFEST])
    described.pop("sha256")
    described["files"] = {ARCHIVE: sharing._describe(archive).model_dump()}
    write_json(tmp_path / MANIFEST, json.dumps(described))
    files[ARCHIVE], files[MANIFEST] = archive.read_bytes(), (tmp_path / MANIFEST).read_bytes()
    with pytest.raises(ArchiveRefused):
        pull(REPO, tmp_path / "store", endpoint=hub.url)
    assert not (tmp_path / "store").exists()
