"""Every command and every piece of code on the pages: executed on small settings, or parsed and looked up."""

import inspect
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

from fairshot.cli import app
from support.commands import TINY, fairshot, set_environment
from support.hub_stand_in import TOKEN, Hub, running_hub
from support.pages import ROOT, SHELL, code_blocks, command_lines, parse, run_python

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md", "results/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
PROGRAMS = {
    "fairshot",
    "make",
    "pip",
    "python",
    "python3",
    "pytest",
    "pre-commit",
    "docker",
    "torchrun",
    ".",
    "curl",
}
ASSIGNMENT = re.compile(r"[A-Z_]+=\S* ")
# Commands of the walks that are only parsed: they need data, a network, a GPU or a second terminal, or are
# walked on another page. Words in capitals stand for something.
NOT_WALKED = re.compile(
    r"cifar100|cub200|mini_imagenet|resnet18|--ray|\bserve\b|--install-completion|report runs/compare"
    r"|compare .* --data|\b[A-Z]{2,}\b|watch my-store (?!drawings)"
)
STORE = ("new my-store --from runs/demo/sss-seed0", "doodles drawings")
WALKS = {  # pages, and what their readers have done before
    "README.md": (),
    "docs/getting-started.md": (),
    "docs/teaching.md": (),
    "docs/own-photos.md": (),
    "docs/choose-settings.md": (),
    "docs/protocol.md": (),
    "docs/trackers.md": (),
    "docs/hub.md": (),
    "docs/watch.md": STORE,
}
SHORT = [word for word in TINY if word != "method.sr_width=32"]  # which NCM has not
SHORT.pop(SHORT.index("--device") - 1)
AT_HOME = partial(  # in the process of a command: trackers and hubs of this machine
    set_environment,
    {"WANDB_MODE": "offline", "WANDB__SERVICE_WAIT": "300", "HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"},
)
SMALL_PHOTOS = [
    *("--set", "training.epochs=1", "--set", "benchmark.base_classes=4", "--set", "benchmark.way=2"),
    *("--set", "benchmark.sessions=1", "--device", "cpu"),
]


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
    for block in code_blocks(page, *SHELL):
        for typed in typed_lines(block.code):
            problem = unknown_in(shlex.split(typed, comments=True))
            assert not problem, f"{ids(page)}: {typed}: {problem}"


def typed_lines(code: str) -> list[str]:
    """Return the commands of a block, without what they print: with prompts, or if all of it is commands."""
    lines = re.sub(r"\\\n\s*", "", code).splitlines()
    prompted = [line.strip()[2:] for line in lines if line.strip().startswith("$ ")]
    plain = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    first = [ASSIGNMENT.sub("", line).split()[0] for line in plain]
    return prompted or (plain if PROGRAMS & set(first) else [])


def unknown_in(words: list[str]) -> str:
    """Say what a command names that this checkout does not have; empty if nothing."""
    while "=" in words[0]:
        words = words[1:]
    program, rest = words[0], words[1:]
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


def photo(path: Path, kind: int, number: int) -> None:
    """Draw stripes, of another width and colour for each kind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([kind, number])
    stripes = (np.arange(48)[:, None, None] // (2 + 3 * kind) % 2) * (100 + 50 * np.arange(3) * (kind - 1))
    Image.fromarray((stripes + rng.integers(0, 60, (48, 48, 3))).clip(0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """What somebody has at hand: photos of two birds, and runs of `make demo`, very short ones."""
    folder = tmp_path_factory.mktemp("demo")
    for kind, name in enumerate(("robin", "magpie")):
        for number in range(1, 6):
            photo(folder / "photos" / name / f"{number}.jpg", kind, number)
    for name in ("another.jpg", "photo.jpg"):
        photo(folder / name, kind=0, number=6)
    labelled = {
        "images": [{"id": 1, "file_name": "another.jpg"}],
        "categories": [{"id": 1, "name": "robin"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1}],
    }
    (folder / "result.json").write_text(json.dumps(labelled))
    made = fairshot(folder, "compare", "ncm", "sss", "--out", "runs/demo", *SHORT)
    assert made.wait() == 0, made.stderr
    shutil.copytree(folder / "runs" / "demo" / "sss-seed0", folder / "runs" / "doodles-sss-seed0")
    return folder


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with running_hub() as served:
        yield served


def small(words: list[str], hub: Hub) -> list[str]:
    """Add to a command what makes it short, and keeps it on this machine."""
    command = words[0]
    if command in ("push", "pull"):
        return [*words, "--endpoint", hub.url]
    if "--log" in words:
        return [*words, *SHORT, "--out", "runs/logged"]
    if command in ("run", "compare", "tune") and "--data" in words:
        return [*words, *SMALL_PHOTOS]
    if command == "run" and words[1:2] and words[1].endswith(".yaml"):
        return [*words, "--device", "cpu"]
    if command in ("run", "compare", "tune"):
        return [*words, *SHORT]
    if command == "doodles":
        return [*words[:2], "--photos", "6"]
    if command == "tradeoff":
        return [words[0], words[1], "--novel", "2", "--held-out", "5", "--device", "cpu"]
    return words


@pytest.mark.parametrize("name", WALKS)
def test_the_commands_of_a_page_work_one_after_the_other(name, demo, hub, tmp_path):
    shutil.copytree(demo, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".std*"))
    shown = [line.words for line in command_lines(ROOT / name)]
    walked = [words for words in shown if not NOT_WALKED.search(shlex.join(words))]
    assert len(walked) >= 2
    for words in [*map(str.split, WALKS[name]), *walked]:
        done = fairshot(tmp_path, *small(list(words), hub), before=AT_HOME)
        assert done.wait() == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"


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
