"""Which code made a result: the commit and its changes where git knows them, and nothing elsewhere."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fairshot.evaluation import checkout
from fairshot.evaluation.checkout import checkout_of
from fairshot.evaluation.result import Environment, Result
from support.results_factory import make_result

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", *own, *arguments]
    # without the repository that a hook of git names
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that is committed."""
    folder = tmp_path / "checkout" / "src" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git(folder.parents[1], "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


@needs_git
def test_a_checkout_is_its_commit_and_whether_the_package_has_changes(package, monkeypatch):
    commit = git(package, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(package))  # as in a hook of another repository
    assert checkout_of(package) == (commit, False)
    (package.parents[1] / "notes.txt").write_text("no part of the package")
    assert checkout_of(package) == (commit, False)
    git(package, "config", "status.showUntrackedFiles", "no")
    (package / "new.py").write_text("")
    assert checkout_of(package) == (commit, True)
    (package / "new.py").unlink()
    (package / "__init__.py").write_text("changed = True\n")
    assert checkout_of(package) == (commit, True)


@needs_git
def test_a_package_that_git_does_not_know_has_none(package, tmp_path):
    installed = package.parents[1] / "environment" / "package"  # in a checkout of something else
    elsewhere = tmp_path / "package"
    for folder in (installed, elsewhere):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        assert checkout_of(folder) is None


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 3\n", "#!/bin/sh\nsleep 60\n"])
def test_without_a_git_that_answers_nothing_is_said_and_nothing_fails(tmp_path, monkeypatch, program):
    if program:
        (tmp_path / "git").write_text(program)
        (tmp_path / "git").chmod(0o755)
    found = str(tmp_path / "git") if program else None
    monkeypatch.setattr(shutil, "which", lambda _: found)
    monkeypatch.setattr(checkout, "SECONDS_TO_ANSWER", 0.2)
    current = Environment.current("cpu")
    assert (current.commit, current.changed) == (None, None)
    assert "commit" not in current.software


def test_a_result_keeps_what_made_it_and_one_of_before_is_read(tmp_path):
    result = make_result()
    result.environment = Environment.current("cpu")
    result.environment.commit, result.environment.changed = "0123456789abcdef", True
    result.write(tmp_path)
    again = Result.read(tmp_path).environment
    assert again == result.environment
    assert again.software.endswith(", commit 0123456789ab with changes")
    before = result.environment.model_dump(exclude={"commit", "changed"})
    assert Environment.model_validate(before).commit is None
