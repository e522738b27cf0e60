"""Every command on the pages is executed, one page after the other, or says why it is not."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cv2
import httpx
import pytest
import timm
import torch

from support.commands import Command, fairshot, set_environment, start
from support.hub_stand_in import TOKEN, Hub, running_hub
from support.page_commands import NOT_EXECUTED, REPLACED, not_executed, shrink_benchmarks, small
from support.pages import PAGES, ROOT, SHELL, CommandLine, code_blocks, command_lines, typed_in, typed_lines
from support.stripes import photo
from support.watched import wait_for

AT_HOME = {  # in the process of a command: trackers and hubs of this machine
    **{"WANDB_MODE": "offline", "WANDB__SERVICE_WAIT": "300", "HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"},
    "FAIRSHOT_TOKEN": "madeupforthistest",
}
DRAWINGS = "doodles drawings --photos 6"
BEFORE = {  # what readers of a page have done before
    "docs/watch.md": ("new my-store --from runs/demo/sss-seed0", DRAWINGS),
    "docs/photos.md": (DRAWINGS,),
    "docs/compare.md": (DRAWINGS,),
}
ELSEWHERE = {"docs/add-your-method.md": "tests/methods/test_plugins.py"}
NO_COMMANDS = {  # blocks that show something: what a command prints, a layout of files, names of the code
    "docs/own-photos.md": ["photos/"],
    "docs/teaching.md": ["umbrella: 5 photos"],
    "docs/watch.md": ['{"id": '],
    "docs/architecture.md": ["DualClassifier.fit("],
}
WALKS = [page for page in PAGES if [line for line in command_lines(page) if not not_executed(line)]]


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_every_block_is_of_commands_or_known_to_be_none():
    for page in PAGES:
        shown = [block.code.strip() for block in code_blocks(page, *SHELL) if not typed_in(block)]
        known = NO_COMMANDS.get(ids(page), [])
        assert len(shown) == len(known), f"{ids(page)}: {shown}"
        assert all(code.startswith(beginning) for code, beginning in zip(shown, known, strict=True))


def test_what_is_not_a_command_of_fairshot_is_known_and_nothing_is_listed_in_vain():
    typed = [line for page in PAGES for line in typed_lines(page)]
    assert not [str(line) for line in typed if line.program != "fairshot" and not not_executed(line)]
    for listed in NOT_EXECUTED:
        assert [line for line in typed if not_executed(line) is listed], listed
        assert all((ROOT / test.partition("::")[0]).exists() for test in listed.instead), listed
    for each in REPLACED:
        assert [line for line in typed if re.search(each.pattern, line.command)], each


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with running_hub() as served:
        yield served


@pytest.fixture(scope="module")
def home(demo, tmp_path_factory) -> Path:
    """Return what readers have at hand: the demo, a video, a file of weights, a run of another seed."""
    folder = shutil.copytree(demo, tmp_path_factory.mktemp("home"), dirs_exist_ok=True)
    for path in folder.glob(".std*"):
        path.unlink()
    for kind, name in enumerate(("wren", "tit", "jay")):
        for number in range(6):
            photo(folder / "few-photos" / name / f"{number}.jpg", kind, number)
    writer = cv2.VideoWriter(str(folder / "video.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 10, (48, 48))
    for name in ("robin", "magpie"):
        for _ in range(10):
            writer.write(cv2.imread(str(folder / "photos" / name / "1.jpg")))
    writer.release()
    (folder / "video.avi").rename(folder / "video.mp4")
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet18").state_dict(), folder / "resnet18.pth")
    shutil.copytree(folder / "runs" / "demo" / "sss-seed0", folder / "runs" / "other")
    return folder


def prepare(variables: dict[str, str]) -> None:
    """Set up the process of a command, and name the script by which it begins further ones."""
    set_environment(variables)
    sys.argv[0] = str(Path(sys.executable).with_name("fairshot"))
    shrink_benchmarks()


def execute(folder: Path, line: CommandLine, hub: Hub) -> None:
    """Execute a command of a page in a folder; a server is asked for its health, and stopped."""
    words = small(line)
    if words[0] in ("push", "pull"):
        words += ["--endpoint", hub.url]
    if words[0] == "new":  # of several ways to make a store, each begins anew
        shutil.rmtree(folder / words[1], ignore_errors=True)
    given = {**AT_HOME, **{name: value for name, value in line.variables if value != "..."}}
    command = start(folder, *words, before=partial(prepare, given))
    try:
        if words[0] == "serve":
            wait_for(lambda: not command.process.is_alive() or healthy(served_at(command)))
            if command.process.is_alive():  # one that has ended by itself has failed
                command.send(signal.SIGINT)
        assert command.wait() == 0, f"{line}\nfairshot {shlex.join(words)}\n{command.stdout}{command.stderr}"
    finally:
        command.process.kill()  # what has not ended would be waited for at the end of all tests


def served_at(command: Command) -> str | None:
    """Return the address that a server has printed, as it is reached from here."""
    printed = command.stdout if command.output.exists() else ""
    found = re.search(r"^page (http://[^/\s]+)/ ", printed, re.MULTILINE)
    return found and found[1].replace("0.0.0.0", "127.0.0.1")


def healthy(address: str | None) -> bool:
    if address is None:
        return False
    try:
        return httpx.get(f"{address}/api/health", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("page", [page for page in WALKS if ids(page) not in ELSEWHERE], ids=ids)
def test_the_commands_of_a_page_work_one_after_the_other(page, home, hub, tmp_path):
    shutil.copytree(home, tmp_path, dirs_exist_ok=True, copy_function=os.link)
    for words in BEFORE.get(ids(page), ()):
        done = fairshot(tmp_path, *words.split())
        assert done.wait() == 0, done.stderr
    for line in command_lines(page):
        if not not_executed(line):
            execute(tmp_path, line, hub)
