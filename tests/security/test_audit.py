"""Known vulnerabilities of installed packages, where their database can be had; and rules for our code."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import urllib.request
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS_TO_ANSWER, SECONDS_TO_AUDIT = 3, 120


def why_not() -> str:
    """Say why there can be no audit here; nothing if there can."""
    if find_spec("pip_audit") is None:
        return "pip-audit is not installed"
    url = f"https://pypi.org/pypi/pyyaml/{version('pyyaml')}/json"  # which pip-audit asks for each package
    try:
        with urllib.request.urlopen(url, timeout=SECONDS_TO_ANSWER) as answer:
            return (
                "" if "vulnerabilities" in json.load(answer) else "the database knows of no vulnerabilities"
            )
    except (OSError, ValueError) as problem:
        return f"the database of vulnerabilities cannot be reached: {problem}"


def mendable(report: dict[str, Any]) -> list[str]:
    """Name the vulnerabilities of which a newer version is free."""
    return [
        f"{package['name']} {package['version']}: {found['id']} is mended in {found['fix_versions'][0]}"
        for package in report["dependencies"]
        for found in package.get("vulns", [])
        if found["fix_versions"]
    ]


def test_no_installed_package_has_a_vulnerability_that_a_newer_version_mends():
    if reason := why_not():
        pytest.skip(reason)
    command = [sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner", "off"]
    done = subprocess.run(
        [*command, "--format", "json", "--timeout", "10"],
        capture_output=True,
        text=True,
        timeout=SECONDS_TO_AUDIT,
        check=False,  # it ends with 1 if it finds something
    )
    if not done.stdout:
        pytest.skip(f"the audit did not end: {done.stderr.strip()[-200:]}")
    assert mendable(json.loads(done.stdout)) == []


def test_only_what_can_be_mended_is_complained_about():
    known = {"id": "CVE-1", "fix_versions": ["2.1"]}
    report = {
        "dependencies": [
            {"name": "a", "version": "2.0", "vulns": [known, {"id": "CVE-2", "fix_versions": []}]},
            {"name": "b", "version": "1", "vulns": []},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    assert mendable(report) == ["a 2.0: CVE-1 is mended in 2.1"]


def test_the_rules_of_bandit_are_part_of_the_linting():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lint = settings["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert [rule for rule in lint["ignore"] if rule.startswith("S")] == ["S101"]
    assert any(each.startswith("pip-audit") for each in settings["project"]["optional-dependencies"]["dev"])
