"""Damaged files of stores and of estimators: one message that names the file, or the same answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fairshot.errors import UserError
from fairshot.teaching import Store, errors
from fairshot.teaching.base_counts import CLASSIFIER
from fairshot.teaching.database import DATABASE, connect
from fairshot.teaching.network import EMBEDDER
from support.damage import flipped_bit, read_damaged
from support.damaged_stores import Case, estimator_cases, killed_store_cases, store_cases
from support.stores import drawings, make_store

CASES = 60  # per file; scripts/fuzz_files.py does more


@pytest.mark.parametrize("make", [store_cases, killed_store_cases, estimator_cases])
def test_no_damage_is_silent_and_none_is_a_traceback(
    tmp_path: Path, make: Callable[[Path], list[Case]]
) -> None:
    for path, read in make(tmp_path / "folder"):
        outcome = read_damaged(path, CASES, 0, read)
        assert outcome.silent == []
        assert outcome.tracebacks == []
        assert outcome.refused > outcome.harmless  # damage was done


@pytest.mark.parametrize("column", ["g", "g_tilde", "thumbnail"])
def test_one_flipped_bit_of_a_stored_image_is_found(tmp_path: Path, column: str) -> None:
    with make_store(tmp_path / "store") as store:
        store.teach("yak", drawings("yak", 2))
    with closing(connect(tmp_path / "store" / DATABASE)) as connection:
        blob = connection.execute(f"SELECT {column} FROM images WHERE id = 3").fetchone()[0]
    _flip_in(tmp_path / "store" / DATABASE, blob[-200:])
    with pytest.raises(errors.StoreDamaged, match="1 rows of the table images"):
        Store(tmp_path / "store")


@pytest.mark.parametrize(
    ("file", "known"), [(DATABASE, b'"threshold":'), (EMBEDDER, b'\\"short_side\\"'), (CLASSIFIER, b"gamma")]
)
def test_one_flipped_bit_of_a_setting_is_found(tmp_path: Path, file: str, known: bytes) -> None:
    make_store(tmp_path / "store").close()
    path = tmp_path / "store" / file
    _flip_in(path, known + path.read_bytes().partition(known)[2][:3])
    with pytest.raises(UserError, match="is damaged") as refused:
        Store(tmp_path / "store")
    assert str(path) in str(refused.value)


def _flip_in(path: Path, known: bytes) -> None:
    """Flip the lowest bit of the last of some bytes, which occur once."""
    content = path.read_bytes()
    assert content.count(known) == 1
    path.write_bytes(flipped_bit(content, 8 * (content.index(known) + len(known) - 1)).content)
