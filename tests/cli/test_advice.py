"""Errors and notices name no option; the command line says which one helps."""

import ast
from pathlib import Path

import pytest

import fairshot
from fairshot import errors, progress
from fairshot.cli.advice import OPTIONS, advice
from fairshot.evaluation.run_folder import RESULT
from support.results_factory import make_result

LOWER = ("evaluation", "studies", "training")


def test_what_needs_no_option_gets_no_advice():
    assert advice(errors.UserError("file.txt is not YAML")) == ""
    assert advice("a line") == ""


@pytest.mark.parametrize("kind", OPTIONS)
def test_advice_names_an_option_or_a_command(kind):
    assert "--" in OPTIONS[kind] or "fairshot " in OPTIONS[kind]


def test_in_place_of_what_is_no_run_finished_ones_are_named_those_of_sss_first(tmp_path):
    for name in ("a-ncm", "b-sss"):
        make_result(name[2:]).write(tmp_path / name)
    for folder in (tmp_path, tmp_path / "nothing"):
        told = advice(errors.NoRun(folder, RESULT))
        assert told.endswith(f"finished runs are {tmp_path / 'b-sss'}, {tmp_path / 'a-ncm'}")


def test_a_refused_run_of_several_gets_the_advice_of_its_problem():
    problem = errors.FolderUnusable(Path("run"), "is busy")
    assert advice(progress.RunRefused("ncm", problem)) == advice(problem) != ""


def test_smaller_images_are_advised_only_where_they_are_large():
    large, small = (advice(progress.SlowTraining("resnet18", size)) for size in (224, 32))
    assert "model.size=32" in large
    assert "model.size" not in small
    assert "model.backbone=tiny" in small


@pytest.mark.parametrize("room", LOWER)
def test_lower_rooms_name_no_option_of_a_command(room):
    for path in (Path(fairshot.__file__).parent / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert " --" not in node.value, (path.name, node.value)
                assert not node.value.startswith("--"), (path.name, node.value)
