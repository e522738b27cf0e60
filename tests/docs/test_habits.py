"""Files that other programs read: the citation, workflows, templates, hooks, changes, tables of results."""

import os
import re
import subprocess
import sys
import tomllib
from datetime import date
from typing import Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, HttpUrl
from typer.testing import CliRunner

from fairshot.cli import app
from support.pages import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Person(Strict):
    given: str = Field(alias="given-names", min_length=1)
    family: str = Field(alias="family-names", min_length=1)


class Entity(Strict):
    name: str = Field(min_length=1)


class Identifier(Strict):
    type: Literal["doi", "url", "swh", "other"]
    value: str = Field(min_length=1)


class Reference(Strict):
    type: Literal["article", "conference-paper"]
    title: str
    authors: list[Person] = Field(min_length=1)
    year: int
    journal: str
    url: HttpUrl
    identifiers: list[Identifier] = []


class Citation(Strict):
    """The part of the Citation File Format 1.2.0 that is used, and nothing else."""

    cff_version: Literal["1.2.0"] = Field(alias="cff-version")
    message: str
    type: Literal["software"]
    title: str
    authors: list[Person | Entity] = Field(min_length=1)
    version: str
    released: date = Field(alias="date-released")
    license: Literal["MIT"]
    keywords: list[str]
    preferred: Reference = Field(alias="preferred-citation")


def test_the_citation_is_of_this_version_and_complete():
    citation = Citation.model_validate(yaml.safe_load((ROOT / "CITATION.cff").read_text()))
    assert citation.version == PROJECT["version"]
    assert citation.license == PROJECT["license"]
    assert [person.family for person in citation.preferred.authors] == ["Zhao", "Chen", "Zhang", "Luo", "Xu"]
    readme = (ROOT / "README.md").read_text()
    assert citation.preferred.title in readme.replace("\n> ", " ")


def test_the_changes_begin_with_what_is_unreleased_and_this_version():
    heads = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == ("Unreleased", "")
    assert heads[1][0] == PROJECT["version"]
    dates = [date.fromisoformat(day) for _, day in heads[1:]]
    assert dates == sorted(dates, reverse=True)
    kinds = set(re.findall(r"^### (\w+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_workflow_runs_make_test_with_every_python_that_is_promised():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    job = workflow["jobs"]["test"]
    promised = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if ":: Python :: 3." in name]
    assert job["strategy"]["matrix"]["python"] == promised == ["3.11", "3.12", "3.13"]
    assert "make test" in [step.get("run") for step in job["steps"]]
    assert workflow[True].keys() == {"push", "pull_request"}  # YAML reads the key `on` as true
    assert workflow["permissions"] == {"contents": "read"}


def test_hooks_run_the_linters_of_make_test():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    linters = re.search(r"^test: install\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    called = [line.strip().replace("$(BIN)", ".venv/bin") for line in linters.splitlines()]
    expected = {line.removesuffix(" .") for line in called if "pytest" not in line}
    assert {hook["entry"] for hook in hooks} == expected
    checked = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    assert subprocess.run(checked, cwd=ROOT, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_forms_of_issues_are_such(form):
    content = yaml.safe_load(form.read_text())
    if form.stem == "config":
        assert content.keys() == {"blank_issues_enabled"}
        return
    assert content.keys() == {"name", "description", "labels", "body"}
    for field in content["body"]:
        assert field["type"] in ("textarea", "input", "checkboxes", "dropdown")
        assert field["attributes"]["label"]
    names = [field["id"] for field in content["body"]]
    assert len(set(names)) == len(names)


def test_tables_of_results_are_those_of_the_runs():
    program = [sys.executable, str(ROOT / "scripts" / "results_tables.py"), "--check"]
    checked = subprocess.run(program, env=ENVIRONMENT, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_shell_can_be_taught_to_complete(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the shell is given, not guessed
    installed = CliRunner().invoke(app, ["--install-completion", "bash"], prog_name="fairshot")
    assert installed.exit_code == 0, installed.output
    assert "_FAIRSHOT_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "fairshot.sh").read_text()
    asked = {"_FAIRSHOT_COMPLETE": "complete_bash", "COMP_WORDS": "fairshot comp", "COMP_CWORD": "1"}
    completed = CliRunner().invoke(app, [], env=asked, prog_name="fairshot")
    assert completed.output.split() == ["compare"]
