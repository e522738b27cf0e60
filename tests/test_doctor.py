"""`fairshot doctor`: what is missing is named with the command that brings it."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairshot import doctor
from fairshot.cli import app

REQUIRES = ["torch>=2.11", "numpy>=2.0", 'ray>=2.40; extra == "cluster"', 'onnx>=1.18; extra == "export"']
INSTALLED = {"fairshot": "0.1.0", "torch": "2.15.0", "numpy": "2.4", "onnx": "1.18.1"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with some packages, a cache of pictures, and no benchmark but the embedded one."""

    def version(name: str) -> str:
        if name not in INSTALLED:
            raise metadata.PackageNotFoundError(name)
        return INSTALLED[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)
    monkeypatch.setenv("FAIRSHOT_DATA", str(tmp_path / "no data"))
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path / "pictures"))
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.pixels").write_bytes(bytes(3_000_000))
    return tmp_path


def test_what_is_missing_is_named_with_its_command(machine: Path) -> None:
    found = doctor.diagnose()
    assert found.packages == {"torch": "2.15.0", "numpy": "2.4"}
    assert found.extras["cluster"].missing == ["ray is missing"]
    assert found.extras["cluster"].command == "pip install 'ray>=2.40'"
    assert found.extras["export"].missing == []
    assert found.benchmarks["doodles"] is not None
    assert found.benchmarks["cifar100"] is None
    sizes = {cache.path: cache.size for cache in found.caches}
    assert sizes[machine / "pictures"] == 3_000_000
    assert all(disk.free > 0 for disk in found.disks)
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 0, shown.output
    for text in (
        "fairshot data get cifar100",
        "pip install 'ray>=2.40'",
        "3 MB",
        "export: installed",
    ):
        assert text in shown.output


def test_a_package_that_is_too_old_is_a_problem(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INSTALLED, "torch", "2.4.1")
    shown = CliRunner().invoke(app, ["doctor", "--json"])
    assert shown.exit_code == 1
    assert json.loads(shown.output)["problems"] == ["torch is 2.4.1, needed is >=2.11"]
