"""What is recorded in a store is told and changed without torch, and its answers follow from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairshot.teaching import Records, Store, export_archive, import_archive
from fairshot.teaching.base_counts import CLASSIFIER, read_counts
from fairshot.teaching.database import derived_hold
from fairshot.teaching.errors import NotAStore, StoreDamaged
from support.damage import flipped_bit
from support.stores import drawings, make_store

SLOW = ("torch", "timm", "sklearn", "matplotlib", "scipy")
PROGRAM = f"""
import sys
from fairshot.cli import main
for command in {{commands}}:
    sys.argv = ["fairshot", *command]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (command, ended.code)
print([name for name in {SLOW} if name in sys.modules])
"""


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "shop"
    with make_store(folder, whitening=True, gate="left_out", gate_strength=0.6) as store:
        store.teach("yak", drawings("yak", 3))
        store.teach("emu", drawings("emu", 2))
        store.teach("ant", drawings("more ants", 2))
    return folder


@pytest.fixture
def shop(taught: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(taught, tmp_path / "shop"))


def change(store: Records) -> None:
    """Do everything that needs no network."""
    store.rename("emu", "ostrich")
    store.merge("cow", "bee")
    store.forget("yak")
    store.undo()
    store.move("yak", [store.photos("yak")[0].id], "gnu")
    store.drop("yak", [store.photos("yak")[0].id])
    store.merge("yak", "ostrich")


def test_commands_that_need_no_network_import_no_torch(shop: Path) -> None:
    of_shop = ["classes", "history", "undo"]
    commands = [
        ["rename", str(shop), "emu", "ostrich"],
        ["merge", str(shop), "cow", "bee"],
        ["forget", str(shop), "yak"],
        *([name, str(shop)] for name in of_shop),
        ["classes", str(shop), "--json"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(commands=commands)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    *_, listed, slow = done.stdout.splitlines()
    assert slow == "[]"
    counts = {info["name"]: info["photos"] + info["trained_on"] for info in json.loads(listed)}
    assert counts == {"ant": 6, "bee": 8, "ostrich": 2, "yak": 3}


def test_changes_without_the_network_give_the_same_state_as_with_it(shop: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(shop, tmp_path / "other"))
    with Records(shop) as light, Store(other) as full:
        change(light)
        change(full)
        assert not derived_hold(light._reader)
        assert derived_hold(full._reader)
        with Store(shop) as opened:
            assert opened.digest() == full.digest()
            queries = drawings("query", 3) + drawings("yak", 2)
            assert opened.predict(queries) == full.predict(queries)
            assert light.classes() == opened.classes() == full.classes()
        assert derived_hold(light._reader)


def test_confidence_follows_changes_without_the_network(tmp_path: Path) -> None:
    with make_store(tmp_path / "shop", base=(), sr_width=None) as store:
        for word in ("emu", "gnu", "ox", "yak"):
            store.teach(word, drawings(word, 7))
        before = store.snapshot().confidence
    other = Path(shutil.copytree(tmp_path / "shop", tmp_path / "other"))
    with Records(tmp_path / "shop") as light, Store(other) as full:
        for each in (light, full):
            each.merge("gnu", "ox")
        with Store(tmp_path / "shop") as opened:
            assert opened.snapshot().confidence == full.snapshot().confidence
            assert opened.snapshot().confidence != before
            assert opened.digest() == full.digest()


def test_an_open_store_follows_changes_made_without_the_network(shop: Path) -> None:
    query = drawings("yak", 1)
    with Store(shop) as store, Records(shop) as records:
        assert store.predict(query)[0].top[0].name == "yak"
        before = store.digest()
        records.forget("yak")
        assert "yak" not in [candidate.name for candidate in store.predict(query, top=9)[0].top]
        records.undo()
        assert store.digest() == before  # asked first, without a snapshot
        records.rename("yak", "ox")
        assert store.leave_one_out().known.signals.shape[0] == 5
        records.rename("ox", "bull")
        store.teach("bull", drawings("yak", 5)[3:])
        assert store.predict(query)[0].top[0].name == "bull"


def test_an_archive_of_a_store_changed_without_the_network_holds_all(shop: Path, tmp_path: Path) -> None:
    with Records(shop) as records:
        change(records)
    export_archive(shop, tmp_path / "shop.zip")
    import_archive(tmp_path / "shop.zip", tmp_path / "copy")
    with Store(shop) as store, Store(tmp_path / "copy") as copy:
        assert store.digest() == copy.digest()


def test_classes_that_calibration_moved_are_told_as_such(shop: Path) -> None:
    with Store(shop) as store:
        absorbed = store.adapt(drawings("yak", 6)[3:]).absorbed
        expected = store.classes()
    assert absorbed
    with Records(shop) as records:
        assert records.classes() == expected
    assert {info.name for info in expected if info.calibrated} >= set(absorbed)


def test_damage_is_seen_without_the_network(shop: Path) -> None:
    with pytest.raises(NotAStore):
        Records(shop / "nothing")
    path = shop / CLASSIFIER
    content = path.read_bytes()
    assert read_counts(path) == [4, 4, 4]
    for bit in (8 * (len(content) - 5), 8 * 700, 3):
        path.write_bytes(flipped_bit(content, bit).content)
        with Records(shop) as records, pytest.raises(StoreDamaged, match=CLASSIFIER):
            records.classes()
