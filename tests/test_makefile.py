"""What `make` installs: the demo only what it needs, the tests everything; `make -n` tells without doing."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}


def make(*arguments: str, cwd: Path) -> str:
    """Run make as from a shell, though the tests themselves may be running under it."""
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env=OUTSIDE, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def steps(tmp_path):
    """Return what a target would do in a checkout that has no environment yet, or that of another target."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def steps(target: str, installed: str = "") -> str:
        shutil.rmtree(tmp_path / ".venv", ignore_errors=True)
        (tmp_path / ".venv").mkdir()
        if installed:
            stamp = steps(installed).partition("touch ")[2].split()[0]
            (tmp_path / stamp).touch()
        return make("-n", target, cwd=tmp_path)

    return steps


def test_the_demo_installs_no_extras_and_the_tests_all(steps):
    assert 'pip install --quiet --editable "."\n' in steps("demo")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for target in ("test", "install", "docs", "format"):
        extras = steps(target).partition('pip install --quiet --editable ".[')[2].partition(']"\n')[0]
        assert sorted(extras.split(",")) == sorted(project["optional-dependencies"])


def test_nothing_is_installed_twice_and_what_is_missing_still_is(steps):
    for target, installed in (("demo", "demo"), ("demo", "install"), ("test", "install")):
        assert "pip install" not in steps(target, installed)
    assert ".[dev," in steps("test", "demo")


def test_what_is_installed_is_announced_with_its_size(steps):
    for target, size in (("demo", "about 6 GB"), ("install", "about 7 GB"), ("test", "about 7 GB")):
        announced, _, rest = steps(target).partition("pip install")
        assert size in announced
        assert rest


def test_clean_leaves_what_was_trained(steps, tmp_path):
    steps("clean")
    kept = tmp_path / "runs" / "demo" / "result.json"
    kept.parent.mkdir(parents=True)
    kept.touch()
    make("clean", cwd=tmp_path)
    assert kept.exists()
    assert not (tmp_path / ".venv").exists()


def test_help_names_every_target(steps, tmp_path):
    steps("help")
    said = make("help", cwd=tmp_path)
    targets = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY")
    ).split()[1:]
    assert sorted(line.split()[1] for line in said.splitlines()) == sorted(targets)
