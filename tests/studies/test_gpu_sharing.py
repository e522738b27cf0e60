"""Sharing a GPU: the server is started and ended, and what does not work is left alone."""

import os
import sys
from pathlib import Path

import pytest

from fairshot.studies import gpu_sharing
from fairshot.studies.gpu_sharing import CONTROL, FOLDERS, shared_gpu

SERVER = """#!{python}
import os, sys
told = sys.argv[1:] or sys.stdin.read().split()
open({log!r}, "a").write(" ".join([*told, os.environ["CUDA_MPS_PIPE_DIRECTORY"]]) + "\\n")
sys.exit({code})
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Put a program in the place of the driver's, which notes what it is told."""
    for name in FOLDERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(code: int = 0, trial: str = "pass") -> Path:
        log = tmp_path / "log"
        path = tmp_path / CONTROL
        path.write_text(SERVER.format(python=sys.executable, log=str(log), code=code))
        path.chmod(0o755)
        monkeypatch.setattr(gpu_sharing, "TRIAL", trial)
        return log

    return install


def test_processes_inside_find_the_server_and_it_ends_with_them(server):
    log = server()
    with shared_gpu() as shared:
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert shared
        assert Path(folder).is_dir()
    assert log.read_text().splitlines() == [f"-d {folder}", f"quit {folder}"]
    assert not any(name in os.environ for name in FOLDERS)
    assert not Path(folder).exists()


@pytest.mark.parametrize("problem", [{"code": 1}, {"trial": "raise SystemExit(1)"}])
def test_a_server_that_does_not_serve_is_ended_before_anything_begins(server, problem):
    log = server(**problem)
    with shared_gpu() as shared:
        assert not shared
        assert not any(name in os.environ for name in FOLDERS)
        assert log.read_text().splitlines()[-1].startswith("quit ")


def test_it_ends_when_something_fails_inside(server):
    log = server()
    with pytest.raises(KeyboardInterrupt), shared_gpu():
        raise KeyboardInterrupt
    assert log.read_text().splitlines()[-1].startswith("quit ")
    assert not any(name in os.environ for name in FOLDERS)


def test_without_the_program_nothing_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    before = dict(os.environ)
    with shared_gpu() as shared:
        assert (shared, dict(os.environ)) == (False, before)
