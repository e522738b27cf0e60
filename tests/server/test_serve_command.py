"""`fairshot serve`, the real command: how it ends, and what it says when it cannot start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.commands import fairshot
from support.stores import make_store

pytest.importorskip("fastapi", reason="the extra serve is not installed")


def interrupt_serving() -> None:
    """Make the process of the command receive Ctrl-C while it serves."""
    from fairshot.server import serving

    def interrupted(*given: object) -> None:
        print(f"keeps {given[-1]} pictures")
        raise KeyboardInterrupt

    serving.serve = interrupted


def test_an_interrupted_server_has_stopped_and_that_is_no_error(tmp_path: Path) -> None:
    make_store(tmp_path / "store").close()
    options = ("--port", "0", "--keep-asked", "7")
    command = fairshot(tmp_path, "serve", "store", *options, before=interrupt_serving)
    assert command.process.exitcode == 0
    assert "keeps 7 pictures" in command.stdout
    assert command.stdout.endswith("\nstopped\n")
    assert command.stderr == ""


def test_a_port_in_use_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    make_store(tmp_path / "store").close()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = fairshot(tmp_path, "serve", "store", "--port", str(port))
    assert command.process.exitcode == 2
    assert f"127.0.0.1 port {port}" in command.stderr
    assert "--port" in command.stderr


def test_another_address_needs_a_token_which_is_printed(tmp_path: Path) -> None:
    make_store(tmp_path / "store").close()
    command = fairshot(
        tmp_path, "serve", "store", "--host", "0.0.0.0", "--port", "0", before=interrupt_serving
    )
    assert command.process.exitcode == 0
    (token,) = (line.split()[1] for line in command.stdout.splitlines() if line.startswith("token "))
    assert len(token) == 64
