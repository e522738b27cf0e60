"""`fairshot data`: what is there, what is missing, and what to do about it."""

import pytest
from typer.testing import CliRunner

from fairshot.benchmarks import UnknownBenchmark, cub200, dataset
from fairshot.benchmarks.dataset import MissingData
from fairshot.cli import app
from fairshot.cli.advice import advice, with_advice


def _fairshot(*arguments: str):
    return CliRunner().invoke(app, ["data", *arguments], env={"COLUMNS": "200"})


def test_the_list_says_where_data_is_or_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRSHOT_DATA", str(tmp_path))
    (tmp_path / "cifar-100-python").mkdir()
    shown = _fairshot("list")
    assert shown.exit_code == 0
    text = " ".join(shown.output.replace("│", " ").split())
    assert str(tmp_path) in text
    for name in ("doodles", "cifar100", "mini_imagenet", "cub200"):
        assert name in text
    assert "fairshot data get cub200" in text
    assert "no public source" in text
    assert "train.csv and test.csv" in text
    assert text.count("found") == 2
    assert "name it with --root, or set FAIRSHOT_DATA to it" in text
    other = _fairshot("list", "--root", str(tmp_path / "elsewhere"))
    assert other.output.count("found") == 1


def test_check_prints_the_protocol_of_complete_data(tmp_path):
    shown = _fairshot("check", "doodles", "--root", str(tmp_path))
    assert shown.exit_code == 0
    assert "2250" in shown.output
    assert "1750" in shown.output
    assert "complete" in shown.output


def test_missing_and_unknown_data_are_errors_that_help(tmp_path):
    missing = _fairshot("check", "cub200", "--root", str(tmp_path))
    assert isinstance(missing.exception, MissingData)
    assert "fairshot data get cub200" in advice(missing.exception)
    unknown = _fairshot("check", "imagenet")
    assert isinstance(unknown.exception, UnknownBenchmark)
    assert "mini_imagenet" in unknown.exception.names
    misspelt = _fairshot("get", "cifar10")
    assert str(misspelt.exception).startswith("there is no benchmark 'cifar10'; ")
    assert str(misspelt.exception).endswith("; did you mean cifar100?")
    none = _fairshot("get", "mini_imagenet", "--root", str(tmp_path))
    assert isinstance(none.exception, MissingData)
    assert "no public source" in str(none.exception)
    assert "fairshot data get" not in with_advice(none.exception)
    for problem in (missing.exception, none.exception):  # files may lie elsewhere
        assert with_advice(problem, []).endswith("; set FAIRSHOT_DATA to the folder that has it")
        both = "; name the folder that has it with --root, or set FAIRSHOT_DATA to the folder that has it"
        assert with_advice(problem, ["--root"]).endswith(both)


def test_get_downloads_unpacks_and_checks(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(dataset, "download", lambda url, target, md5, reporter: fetched.append((url, md5)))
    monkeypatch.setattr(dataset, "unpack", lambda archive, reporter: fetched.append(archive))
    shown = _fairshot("get", "cub200", "--root", str(tmp_path))
    source = cub200.DATASET.source
    assert fetched == [(source.url, source.md5), tmp_path / "CUB_200_2011.tgz"]
    with pytest.raises(MissingData):  # nothing was really downloaded, and the check says so
        raise shown.exception
