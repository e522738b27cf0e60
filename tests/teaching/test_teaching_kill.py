"""Killed at any moment, a store holds all of a class or none of it, and answers as before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
KILLS = 24


def test_killed_at_random_moments_and_before_every_statement(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")
    found = subprocess.run(
        [sys.executable, TESTS / "support" / "kill_loop.py", tmp_path / "store", str(KILLS), "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    outcome = json.loads(found.stdout)
    assert outcome["kills"] == KILLS
    assert outcome["events"][-1] > KILLS / 2  # the children did come to change the store
    assert outcome["statements"] > 10
