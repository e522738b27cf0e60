"""Damage every kind of file that fairshot writes and reads back, and count what comes of it.

Usage: python scripts/fuzz_files.py [CASES]

Prints a line per file: cases that were refused with a message, cases without an effect, cases with other
answers and no message (silent), and cases with any other error (tracebacks). Ends with 1 if there is one of
the last two.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.damage import read_damaged
from support.damage_runs import run_cases
from support.damaged_stores import estimator_cases, killed_store_cases, store_cases

KINDS = {
    "store": store_cases,
    "store of a killed process": killed_store_cases,
    "estimator": estimator_cases,
    "run": run_cases,
}


def main(cases: int = 500) -> int:
    """Spread so many cases over all files."""
    with tempfile.TemporaryDirectory() as temporary:
        files = [case for name, make in KINDS.items() for case in make(Path(temporary) / name)]
        bad = 0
        for number, (path, read) in enumerate(files):
            count = cases // len(files) + (number < cases % len(files))
            outcome = read_damaged(path, count, 1 + number, read)
            print(
                f"{path.parent.name}/{path.name}: {count} cases, {outcome.refused} refused, "
                f"{outcome.harmless} without effect, {len(outcome.silent)} silent, "
                f"{len(outcome.tracebacks)} tracebacks",
                flush=True,
            )
            for case in outcome.silent + outcome.tracebacks:
                print(f"  {case}")
                bad += 1
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
