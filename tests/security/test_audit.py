"""Known vulnerabilities of installed packages, where their database can be had; and rules for our code."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS_TO_ANSWER, SECONDS_TO_AUDIT = 3, 120


def audit(*packages: str) -> dict[str, Any] | None:
    """Return what pip-audit reports of installed packages, of all if none is named; nothing if it cannot.

    It looks every package up by itself, and one that the database does not know is skipped: where all are,
    there is no database.
    """
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{name}=={version(name)}\n" for name in packages))
        file.flush()
        which = ["--no-deps", "--disable-pip", "--requirement", file.name] if packages else ["--local"]
        try:
            done = subprocess.run(
                [*command, *which, "--timeout", str(SECONDS_TO_ANSWER)],
                capture_output=True,
                text=True,
                timeout=SECONDS_TO_AUDIT,
                check=False,  # it ends with 1 if it finds something
            )
        except subprocess.TimeoutExpired:
            return None
    report: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"dependencies": []}
    known = [each for each in report["dependencies"] if "skip_reason" not in each]
    return report if known else None


def mendable(report: dict[str, Any]) -> list[str]:
    """Name the vulnerabilities of which a newer version is free."""
    return [
        f"{package['name']} {package['version']}: {found['id']} is mended in {found['fix_versions'][0]}"
        for package in report["dependencies"]
        for found in package.get("vulns", [])
        if found["fix_versions"]
    ]


def test_no_installed_package_has_a_vulnerability_that_a_newer_version_mends():
    pytest.importorskip("pip_audit", reason="pip-audit is not installed")
    if audit("pyyaml") is None:
        pytest.skip("the database of vulnerabilities cannot be reached")
    if (report := audit()) is None:
        pytest.skip("the audit did not end in time")
    assert mendable(report) == []


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
