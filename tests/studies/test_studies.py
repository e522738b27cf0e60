"""Studies are called from Python: the example of the package runs, and naming it imports nothing slow."""

import textwrap

import fairshot.studies
from fairshot.evaluation.result import Result


def test_the_example_of_the_docstring_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, imports, calls, _ = fairshot.studies.__doc__.split("\n\n")
    exec(textwrap.dedent(f"{imports}\n{calls}"))
    printed = capsys.readouterr().out.split()
    assert printed[::2] == ["runs/mine/ncm-seed0", "runs/mine/teen-seed0"]
    for run, average in zip(printed[::2], printed[1::2], strict=True):
        assert float(average) == Result.read(tmp_path / run).metrics.overall_avg
