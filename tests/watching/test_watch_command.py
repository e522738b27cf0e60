"""`fairshot watch` as a person types it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import threading
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fairshot.cli import app
from fairshot.errors import UserError
from fairshot.teaching import Store
from fairshot.watching.errors import NoSource
from fairshot.watching.journal import default_path
from support.watched import hook_server, put, wait_for


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def watch(store: Store, source: Path | str, *options: object) -> Result:
    arguments = ["watch", str(store.folder), str(source), "--every", "0.05", *map(str, options)]
    return CliRunner().invoke(app, arguments)


def test_ctrl_c_ends_it_and_the_next_time_goes_on(shop: Store, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.png")
    out = tmp_path / "out"

    def interrupt() -> None:
        wait_for((out / "yak" / "a.png").exists)  # by now it is at work, and handles signals itself
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    first = watch(shop, tmp_path / "in", "--move", out)
    thread.join()
    assert first.exit_code == 0
    assert signal.getsignal(signal.SIGINT) is before
    put(tmp_path / "in", "a.png", "emu")
    with hook_server() as server:
        second = watch(shop, tmp_path / "in", "--once", "--webhook", server.url)
        third = watch(shop, tmp_path / "in", "--once", "--webhook", server.url)
    told = [json.loads(line) for line in second.stdout.splitlines()]
    assert [record["answer"] for record in told] == ["emu"]
    assert [json.loads(body) for body in server.bodies] == told
    assert third.stdout == ""
    assert len(list(tmp_path.joinpath("state").rglob("*.sqlite"))) == 1


def test_the_commands_of_the_page_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "watch.md").read_text()
    lines = re.findall(r"^(?:    |ExecStart=\S*/)fairshot (.+?)(?:  +#.*)?$", page, re.MULTILINE)
    assert len(lines) == 8
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in lines:
        name, *arguments = shlex.split(line)
        assert (
            commands[name].make_context(name, arguments).params["store" if name != "import-photos" else "out"]
        )
    options = {name for each in commands["watch"].params for name in each.opts}
    assert set(re.findall(r"^\| `(--[a-z]+)", page, re.MULTILINE)) == options - {"store", "source", "--help"}


def test_what_cannot_be_watched_is_refused(shop: Store, tmp_path: Path) -> None:
    assert isinstance(watch(shop, tmp_path / "nothing").exception, NoSource)
    (tmp_path / "video.mp4").touch()
    assert isinstance(watch(shop, tmp_path / "video.mp4", "--tag").exception, UserError)
    assert isinstance(watch(shop, tmp_path, "--once", "--webhook", "nothing").exception, UserError)
    around = watch(shop, tmp_path, "--once", "--move", tmp_path)
    assert "would come into" in str(around.exception)
    assert default_path(shop.folder, "0") != default_path(shop.folder, "1")
