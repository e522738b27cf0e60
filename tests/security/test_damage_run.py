"""Damage to the files of runs is told by one message that names the file: no traceback, no wrong numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairshot.documents import load_json, read_yaml_text, write_json, write_yaml
from fairshot.errors import DamagedFile, UserError
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import MODEL, RECIPE, RESULT
from fairshot.reporting.runs import read_run
from fairshot.studies.plan import plan
from fairshot.tensor_files import check_tensors, read_tensors, write_tensors
from support.commands import TINY, fairshot
from support.damage import read_damaged
from support.damage_runs import run_cases

CASES = 12  # per file and reader; scripts/fuzz_files.py does more


def test_random_damage_to_every_kind_of_file_is_told(tmp_path):
    for path, read in run_cases(tmp_path / "folder"):
        outcome = read_damaged(path, CASES, 0, read)
        assert outcome.silent == []
        assert outcome.tracebacks == []
        assert outcome.refused == CASES


SMALL: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "json": (lambda path: write_json(path, '{"a": 12, "b": [1, 2]}'), load_json),
    "yaml": (lambda path: write_yaml(path, "seed: 3\nname: x\n"), read_yaml_text),
    "tensors": (lambda path: write_tensors(path, {"a": torch.arange(3)}, {"b": "c"}), read_tensors),
    "checked": (lambda path: write_tensors(path, {"a": torch.arange(3)}, {"b": "c"}), check_tensors),
}


@pytest.mark.parametrize("kind", SMALL)
def test_every_flipped_bit_and_every_truncation_of_a_small_file_is_told(tmp_path, kind):
    write, read = SMALL[kind]
    path = tmp_path / "file"
    write(path)
    read(path)
    content = path.read_bytes()
    versions = [
        bytes([*content[:at], content[at] ^ (1 << bit), *content[at + 1 :]])
        for at in range(len(content))
        for bit in range(8)
    ]
    for version in [*versions, *(content[:end] for end in range(16, len(content)))]:
        path.write_bytes(version)
        with pytest.raises(UserError, match="file is "):
            read(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    done = fairshot(folder, "run", "doodles/sss", "--out", "run", *TINY)
    assert done.process.exitcode == 0, done.stderr
    return folder


def flip(path: Path, at: float = 0.6) -> bytes:
    """Flip a bit of a file; return what it held."""
    content = path.read_bytes()
    where = int(at * len(content))
    path.write_bytes(bytes([*content[:where], content[where] ^ 1, *content[where + 1 :]]))
    return content


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (RESULT, ["run", "doodles/sss", "--out", "run", *TINY]),
        (RECIPE, ["run", "doodles/sss", "--out", "run", *TINY]),
        (RECIPE, ["run", "run/recipe.yaml", "--out", "again"]),
        (MODEL, ["run", "run/recipe.yaml", "--base", "run", "--out", "again", "--device", "cpu"]),
        (MODEL, ["new", "store", "--from", "run"]),
        (RESULT, ["new", "store", "--from", "run"]),
        (RECIPE, ["poison", "run", "--device", "cpu"]),
    ],
)
def test_commands_tell_it_in_one_message(folder, name, command):
    content = flip(folder / "run" / name)
    try:
        refused = fairshot(folder, *command)
    finally:
        (folder / "run" / name).write_bytes(content)
    assert refused.process.exitcode == 2
    assert "Traceback" not in refused.stderr
    assert refused.stderr.count("fairshot: ") == 1
    assert f"run/{name} is damaged" in refused.stderr
    assert refused.stderr.strip().endswith("--fresh")


def test_a_report_names_what_is_damaged_and_keeps_the_rest(folder):
    run = folder / "run"
    assert read_run(run).missing == ()
    with (run / "training.csv").open(newline="") as file:
        loss = next(csv.DictReader(file))["loss"]
    curve = (run / "training.csv").read_bytes()
    (run / "training.csv").write_bytes(curve.replace(loss.encode(), b"0" + loss[1:].encode()))
    features = flip(run / "features.safetensors")
    found = read_run(run)
    (run / "training.csv").write_bytes(curve)
    (run / "features.safetensors").write_bytes(features)
    assert [line.partition(":")[0] for line in found.missing] == [
        "features.safetensors cannot be read",
        "training.csv cannot be read",
    ]
    assert found.result == Result.read(run)


def test_a_training_goes_on_before_a_damaged_checkpoint_to_the_same_numbers(folder):
    run = folder / "run"
    expected = Result.read(run).confusions
    for name in (RESULT, MODEL):
        (run / name).unlink()
    flip(max(run.glob("checkpoints/base/*")))
    done = fairshot(folder, "run", "doodles/sss", "--out", "run", *TINY)
    assert done.process.exitcode == 0, done.stderr
    assert "is damaged" in done.stderr
    assert Result.read(run).confusions == expected


def test_a_comparison_refuses_the_damaged_run_and_shows_the_others(folder):
    small = [each for each in TINY if not each.startswith("method.")]
    small = [
        each for at, each in enumerate(small) if each != "--set" or small[at + 1 : at + 2] != ["--device"]
    ]
    compare = ["compare", "ncm", "teen", *small, "--out", "grid"]
    assert fairshot(folder, *compare).process.exitcode == 0
    flip(folder / "grid" / "ncm-seed0" / RECIPE)
    assert plan(["ncm"], ["doodles"], [0], [None], [], folder / "grid")  # other folders do not matter
    refused = fairshot(folder, *compare)
    assert refused.process.exitcode == 2
    assert "grid/ncm-seed0/recipe.yaml is damaged" in refused.stderr
    assert "TEEN" in refused.stdout


def test_a_file_changed_by_hand_says_how_to_use_it(tmp_path):
    write_yaml(tmp_path / "recipe.yaml", "seed: 3\n")
    text = (tmp_path / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(text.replace("3", "4"))
    with pytest.raises(DamagedFile, match="checksum, which you remove if you changed it"):
        read_yaml_text(tmp_path / "recipe.yaml")
    (tmp_path / "recipe.yaml").write_text("seed: 4\n")
    assert read_yaml_text(tmp_path / "recipe.yaml") == "seed: 4\n"
