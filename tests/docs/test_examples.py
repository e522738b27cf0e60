"""The notebooks and scripts of examples/ run, on settings that take seconds."""

import os
import re
import runpy
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from support.commands import TINY, fairshot

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "estimator": {"EPOCHS = 20": "EPOCHS = 1", "BASE, NOVEL, SHOTS = 8, 4, 5": "BASE, NOVEL, SHOTS = 4, 2, 5"}
}


def executed(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a notebook in the folder it lies in, and return all that its cells printed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for large, small in SMALL.get(name, {}).items():
        (cell,) = (cell for cell in code if large in cell.source)
        cell.source = cell.source.replace(large, small)
    resources = {"metadata": {"path": str(EXAMPLES)}}
    NotebookClient(notebook, timeout=240, startup_timeout=240, resources=resources).execute()
    return "".join(output.text for cell in code for output in cell.outputs if output.output_type == "stream")


def test_notebooks_are_kept_without_outputs_and_each_is_executed_here():
    notebooks = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
    assert notebooks == ["estimator", "five-photos", "read-a-run"]
    for name in notebooks:
        cells = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4).cells
        assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


def test_five_photos_to_a_classifier(monkeypatch):
    printed = executed("five-photos", monkeypatch)
    right, asked = re.search(r"(\d+) of (\d+) drawings of taught classes", printed).groups()
    assert asked == "15"
    assert int(right) >= 6  # by chance three
    assert "['airplane', 'cat', 'cloud', 'umbrella']" in printed  # the last class taught is undone


def test_an_estimator_on_arrays(monkeypatch):
    printed = executed("estimator", monkeypatch)
    assert printed.count("True\n") == 2  # loaded again, and rolled back: the same answers
    assert "(3, 6)" in printed


def test_reading_a_run(monkeypatch):
    printed = executed("read-a-run", monkeypatch)
    assert "sss: overall 6" in printed
    assert printed.count("drawings of") == 5


def test_a_trained_network_in_plain_torch(tmp_path, monkeypatch, capsys):
    run = fairshot(tmp_path, "run", "doodles/sss", "--out", "run", *TINY)
    assert run.wait() == 0, run.stderr
    monkeypatch.setattr(sys, "argv", ["plain_torch.py", str(tmp_path / "run")])
    runpy.run_path(str(EXAMPLES / "plain_torch.py"), run_name="__main__")
    (right,) = re.findall(r"([\d.]+)% of others are answered rightly", capsys.readouterr().out)
    assert float(right) > 20  # by chance 10
