"""What the pages name is there, and their Python runs; test_page_commands.py executes their commands."""

import inspect
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer

from fairshot.cli import app
from support.page_commands import SHORT
from support.pages import (
    PAGES,
    PROGRAMS,
    ROOT,
    code_blocks,
    command_lines,
    parse,
    run_python,
    typed_lines,
)
from support.stripes import photo

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_is_one_that_the_command_line_takes(page):
    for line in command_lines(page):
        parse(["0" if word == "S" else word for word in line.words])  # S stands for any seed


def test_the_architecture_points_to_files_and_names_that_exist():
    """A name behind a file, in the same cell of a table, stands in that file."""
    cells = re.split(r"[|\n]", (ROOT / "docs" / "architecture.md").read_text())
    pointed = 0
    for cell in cells:
        file = None
        for word in re.findall(r"`([^`]+)`", cell):
            if re.fullmatch(r"\w[\w/]*/(\w+\.\w+)?", word):
                homes = [folder / word for folder in (ROOT / "src" / "fairshot", ROOT / "src", ROOT)]
                found = [path for path in homes if path.exists()]
                assert found, word
                file = found[0]
            elif file is not None and file.is_file() and re.fullmatch(r"[A-Za-z_.]+", word):
                assert re.search(rf"\b{word.rpartition('.')[2]}\b", file.read_text()), (file, word)
                pointed += 1
    assert pointed > 20


APP = typer.main.get_command(app)


def options_of(words: list[str]) -> set[str]:
    """Return the options of the command that words behind `fairshot` begin with; none is a ValueError."""
    command = APP
    for word in words:
        if not hasattr(command, "commands"):
            break
        if word not in command.commands:
            raise ValueError(f"fairshot {shlex.join(words)}: there is no command {word}")
        command = command.commands[word]
    return {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_within_sentences_and_tables_are_there_with_their_options(page):
    for quoted in re.findall(r"`(?:[A-Z_]+=\S+ )*fairshot ([a-z][^`]*)`", page.read_text()):
        words = shlex.split(quoted.replace("\n", " "))
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= options_of(words), quoted


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_other_line_to_type_is_of_this_checkout(page):
    for line in typed_lines(page):
        problem = unknown_in(line.program, list(line.words))
        assert not problem, f"{ids(page)}: {line}: {problem}"


def unknown_in(program: str, rest: list[str]) -> str:
    """Say what a command names that this checkout does not have; empty if nothing."""
    if program not in PROGRAMS and not Path(sys.executable).with_name(program).exists():
        return "neither known here nor a program of an installed package"
    if program == "make":
        return "" if set(rest) <= set(TARGETS) else "no such target"
    if program == "pip":
        asked = {extra for word in rest for extra in (re.findall(r"\[(.*)\]", word) or [""])[0].split(",")}
        return "" if asked - {""} <= set(EXTRAS) else "no such extra"
    if program == "torchrun":
        parse(rest[rest.index("-m") + 2 :])
    if program in ("python", "pytest"):
        return (
            "" if (program == "python" and rest[0] == "-m") or (ROOT / rest[0]).exists() else "no such file"
        )
    return ""


PYTHON_RUN_ELSEWHERE = {"docs/python.md", "docs/add-your-method.md"}  # test_python_page.py, test_plugins.py
PYTHON_RUN_HERE = {"README.md", "docs/metrics.md", "docs/teaching.md", "docs/add-a-benchmark.md"}
PYTHON_RUN_HERE |= {"docs/hub.md", "docs/trackers.md"}


def test_every_page_with_python_is_run_by_a_test():
    assert {
        ids(page) for page in PAGES if code_blocks(page, "python")
    } == PYTHON_RUN_ELSEWHERE | PYTHON_RUN_HERE


def test_sharing_in_python(monkeypatch, tmp_path):
    """As it would be called: with a hub that answers, tests/hub does it."""
    from fairshot.hub import sharing

    called = []
    for name in ("push", "pull"):
        signature = inspect.signature(getattr(sharing, name))

        def call(*args, signature=signature, **kwargs):
            called.append(signature.bind(*args, **kwargs).arguments)

        monkeypatch.setattr(sharing, name, call)
    run_python(ROOT / "docs" / "hub.md", tmp_path)
    assert len(called) == 2


def test_tracking_in_python(tmp_path):
    page, recipe = tmp_path / "trackers.md", 'load_recipe("doodles/ncm"'
    text = (ROOT / "docs" / "trackers.md").read_text()
    assert text.count(recipe) == 1
    page.write_text(text.replace(recipe, f"{recipe}, {[word for word in SHORT if '=' in word]}"))
    run_python(page, tmp_path)
    assert list((tmp_path / "runs" / "tracked").rglob("events.out.tfevents*"))


def test_the_estimator_of_the_readme(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (8, 16, 16, 3), dtype=np.uint8)
    names = {"images": images, "labels": ["ant", "bee"] * 4, "five": images[:5] // 2, "more": images[5:]}
    assert "okapi" in run_python(ROOT / "README.md", tmp_path, names)["model"].classes_


def test_the_metrics_of_a_run(demo, capsys):
    run_python(ROOT / "docs" / "metrics.md", demo)
    assert re.match(r"overall \d+\.\d\d, Base/Inc ", capsys.readouterr().out)


def test_a_store_in_python(demo, tmp_path):
    shutil.copytree(demo / "runs", tmp_path / "runs")
    for number in range(1, 6):
        photo(tmp_path / f"{number}.jpg", 0, number)
    photo(tmp_path / "photo.jpg", 0, 9)
    for number, name in enumerate(("okapi", "zebra")):
        photo(tmp_path / "images" / name / "1.jpg", number, 7)
    run_python(ROOT / "docs" / "teaching.md", tmp_path)
    assert (tmp_path / "model.onnx").is_file()


def test_the_benchmark_of_the_guide(tmp_path):
    names = [f"shape {number}" for number in range(10)]
    for kind, name in enumerate(names):
        for number in range(6):
            photo(tmp_path / "shapes" / "train" / name / f"{number}.png", kind % 4, number)
        photo(tmp_path / "shapes" / "test" / name / "1.png", kind % 4, 9)
    from fairshot.benchmarks.stream import StreamSettings, build_stream

    made = run_python(ROOT / "docs" / "add-a-benchmark.md", tmp_path)
    found = made["DATASET"].find(tmp_path)
    assert found == tmp_path / "shapes"
    stream = build_stream(made["DATASET"].load(tmp_path, made["SILENT"]), StreamSettings())
    assert stream.class_names == tuple(names)
    assert [len(session.train) for session in stream.sessions] == [36, 10, 10]
