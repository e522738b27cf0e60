"""Extras: which packages are missing, and a command that installs them wherever fairshot came from."""

from __future__ import annotations

import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fairshot.errors import ExtraMissing
from fairshot.extras import install_command, requirements

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
REQUIRES = [
    "torch>=2.11",
    'fastapi>=0.115; extra == "serve"',
    'uvicorn>=0.34; extra == "serve"',
    'h11; sys_platform == "nowhere" and extra == "serve"',
    'mkdocstrings[python]>=0.27; extra == "docs"',
]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions of the packages that are installed."""
    versions = {"fairshot": "0.2.0", "torch": "2.11"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)
    return versions


def test_the_command_names_the_packages_that_are_missing_or_too_old(installed: dict[str, str]) -> None:
    assert install_command("serve") == "pip install 'fastapi>=0.115' 'uvicorn>=0.34'"
    assert install_command("docs") == "pip install 'mkdocstrings[python]>=0.27'"
    installed["fastapi"] = "0.115.1"
    assert install_command("serve") == "pip install 'uvicorn>=0.34'"
    installed["uvicorn"] = "0.1"
    assert str(ExtraMissing("the server", "serve")).endswith(": pip install 'uvicorn>=0.34'")
    installed["uvicorn"] = "0.40"  # something else is wrong with one of them: installing them tells what
    assert install_command("serve") == "pip install 'fastapi>=0.115' 'uvicorn>=0.34'"


def test_of_a_source_that_is_not_installed_the_command_names_the_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert requirements() == {"": []}
    assert install_command("serve") == "pip install '.[serve]'"


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_every_extra_has_a_command_that_pip_can_read(extra: str) -> None:
    program, verb, *packages = shlex.split(install_command(extra))
    assert (program, verb) == ("pip", "install")
    listed = PROJECT["optional-dependencies"][extra]
    named, expected = (
        {canonicalize_name(Requirement(each).name) for each in some} for some in (packages, listed)
    )
    assert set() < named <= expected
