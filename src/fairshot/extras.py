"""Extras: packages that only some commands need, as the installed fairshot lists them."""

from __future__ import annotations

import shlex
from importlib import metadata

from packaging.requirements import Requirement

PACKAGE = "fairshot"


def requirements() -> dict[str, list[Requirement]]:
    """Return what fairshot needs on this machine, by extra; what it always needs by the empty name."""
    found: dict[str, list[Requirement]] = {"": []}
    for line in _required():
        requirement = Requirement(line)
        marker, requirement.marker = requirement.marker, None
        extra = str(marker or "").partition('extra == "')[2].partition('"')[0]
        needed = found.setdefault(extra, [])
        if marker is None or marker.evaluate({"extra": extra}):
            needed.append(requirement)
    return found


def _required() -> list[str]:
    try:
        return metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # run from its source
        return []


def version_of(package: str) -> str | None:
    """Return the installed version of a package, if it is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def problem_of(requirement: Requirement) -> str:
    """Say how a requirement is not met, or nothing."""
    installed = version_of(requirement.name)
    if installed is None:
        return f"{requirement.name} is missing"
    if not requirement.specifier.contains(installed, prereleases=True):
        return f"{requirement.name} is {installed}, needed is {requirement.specifier}"
    return ""


def install_command(extra: str) -> str:
    """Return the command that installs what is missing of an extra, or all of it if nothing seems missing.

    It names the packages of the extra: a registry has them, wherever fairshot itself was installed from.
    """
    needed = requirements().get(extra, [])
    wanted = [each for each in needed if problem_of(each)] or needed
    if not wanted:  # run from its source
        return f"pip install '.[{extra}]'"
    return shlex.join(["pip", "install", *map(str, wanted)])
