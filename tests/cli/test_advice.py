"""Errors and notices name no option; the command line says which one helps."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import fairshot
from fairshot import errors, progress
from fairshot.cli import app
from fairshot.cli.advice import OPTIONS, advice, with_advice
from fairshot.evaluation.run_folder import RESULT
from fairshot.models.presets import DEFAULT_PRESET
from fairshot.recipes import load_recipe
from fairshot.teaching import errors as store_errors
from support.example_errors import arguments_of, error_kinds
from support.results_factory import make_result

LOWER = sorted(
    path.name
    for path in Path(fairshot.__file__).parent.iterdir()
    if (path.is_dir() or path.suffix == ".py") and path.name not in ("cli", "__main__.py", "__pycache__")
)


def test_what_needs_no_option_gets_no_advice():
    assert advice(errors.UserError("file.txt is not YAML")) == ""
    assert advice("a line") == ""


def commands(group: object, name: str = "") -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each command as it is called, and the options it has."""
    for word, command in group.commands.items():
        called = f"{name} {word}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, called)
        else:
            yield called, frozenset(o for each in command.params for o in (*each.opts, *each.secondary_opts))


COMMANDS = dict(commands(typer.main.get_command(app)))
NOTICES = [progress.RunFinished(Path("run")), progress.SlowTraining("resnet18", 224)]
PROBLEMS = [*(kind(**arguments_of(kind)) for kind in error_kinds()), *NOTICES]


def advised(problem: object, command: str) -> str:
    return with_advice(problem, COMMANDS[command]).removeprefix(str(problem))


@pytest.mark.parametrize("command", COMMANDS)
def test_advice_names_only_options_of_the_present_command_or_of_one_it_names(command):
    for problem in PROBLEMS:
        for clause in re.split(r"[;\n`]", advised(problem, command)):
            here, *elsewhere = clause.split("fairshot ")
            assert set(re.findall("--[a-z-]+", here)) <= COMMANDS[command], (problem, clause)
            for call in elsewhere:
                named = next(each for each in COMMANDS if call.startswith(each))
                assert set(re.findall("--[a-z-]+", call)) <= COMMANDS[named], (problem, clause)


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: kind.__name__)
def test_each_piece_of_advice_is_of_use_to_a_command(kind):
    problem = kind(**arguments_of(kind))
    assert max(len(advised(problem, command)) for command in COMMANDS) >= len(advice(problem)) / 2


def test_a_command_is_advised_what_it_has():
    busy = errors.FolderUnusable(Path("run"), "is busy")
    assert advised(busy, "tradeoff") == "; give another --pseudo"
    assert advised(busy, "run") == "; give another --out"
    assert advised(busy, "poison") == ""
    other = errors.FolderOccupied(Path("run"), "another run")
    assert advised(other, "run") == "; give another --out, or begin anew in this one with --fresh"
    images = errors.OtherImages(Path("run"), "pixels")
    assert advised(images, "ablate") == "; name the folder of all benchmarks with --root"
    none = store_errors.NotAStore(Path("shop"))
    assert advised(none, "predict") == ": fairshot new shop for photos, or with --from RUN on a run of yours"
    assert advised(errors.NoGPU(), "predict") == ""


def test_in_place_of_what_is_no_run_finished_ones_are_named_those_of_sss_first(tmp_path):
    for name in ("a-ncm", "b-sss"):
        make_result(name[2:]).write(tmp_path / name)
    for folder in (tmp_path, tmp_path / "nothing"):
        text = advice(errors.NoRun(folder, RESULT))
        assert text.endswith(f"finished runs are {tmp_path / 'b-sss'}, {tmp_path / 'a-ncm'}")


def test_a_refused_run_of_several_gets_the_advice_of_its_problem():
    problem = errors.FolderUnusable(Path("run"), "is busy")
    assert advice(progress.RunRefused("ncm", problem)) == advice(problem) != ""


def test_smaller_images_are_advised_only_where_they_are_large():
    large, small = (advice(progress.SlowTraining("resnet18", size)) for size in (224, 32))
    assert "model.size=32" in large
    assert "model.size" not in small
    assert "model.backbone=tiny" in small


def test_own_photos_on_a_cpu_are_first_advised_a_store_on_frozen_weights_then_a_run_on_them():
    notice = progress.SlowTraining("resnet18", 64, Path("my photos"))
    text = with_advice(notice, {"--set", "--data"})
    places = [
        "fairshot new STORE",
        "fairshot teach STORE 'my photos'",
        "fairshot run folder/ncm --data",
    ]
    found = [text.index(each) for each in [*places, "model.weights=", "model.backbone=tiny"]]
    assert found == sorted(found)
    overrides = re.findall(r"--set (\S+)", text.partition("small network")[0])
    recipe = load_recipe("folder/ncm", overrides)
    assert (recipe.model.weights, recipe.training.epochs) == (DEFAULT_PRESET, 0)


NAMES = sorted({option for options in COMMANDS.values() for option in options if option.startswith("--")})
COMMAND_OR_OPTION = re.compile(rf"fairshot ({'|'.join(COMMANDS)})\b|({'|'.join(NAMES)})(?![\w-])")


@pytest.mark.parametrize("room", LOWER)
def test_lower_rooms_name_no_option_and_no_command(room):
    found = Path(fairshot.__file__).parent / room
    for path in [found] if found.is_file() else found.rglob("*.py"):
        if path.name == "card.py":  # what a stranger reads beside a pushed run, who knows no command yet
            continue
        tree = ast.parse(path.read_text())
        docstrings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                assert not COMMAND_OR_OPTION.search(node.value), (path.name, node.value)
