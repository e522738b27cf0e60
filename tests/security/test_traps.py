"""Files that are small and stop a parser for hours: refused at once, by a message."""

from __future__ import annotations

import gzip
import io
import json
import signal
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairshot.benchmarks import archives
from fairshot.benchmarks.archives import unpack
from fairshot.benchmarks.image_folder import Split
from fairshot.cli import app
from fairshot.documents import DEEPEST, YAML_BYTES, load_json, parse_yaml, write_json, write_yaml
from fairshot.errors import BadOverride, FileRefused, UserError
from fairshot.evaluation.result import Result
from fairshot.recipes import load_recipe
from fairshot.studies.poisoning import Poisoning
from fairshot.studies.reproducibility import read_reasons
from fairshot.studies.tradeoff import TradeOff
from support.results_factory import make_result

SECONDS = 5


@pytest.fixture(autouse=True)
def at_once():
    """End a test that hangs."""

    def give_up(*_):
        raise TimeoutError(f"not refused within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def laughs(levels: int = 30) -> str:
    """A kilobyte that names 10 ** levels values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join([*lines, f"training: *a{levels - 1}\n"])


YAML = {
    "an alias": "a: &a [1]\ntraining: *a",
    "aliases": laughs(),
    "an alias of itself": "training: &a [*a]",
    "deep lists": "training: " + "[" * 5_000,
    "deep mappings": "{a: " * 5_000,
    "deep blocks": "\n".join(" " * n + "a:" for n in range(300)),
    "many dashes": "- " * 5_000,
    "a long integer": "seed: " + "9" * 5_000,
    "a long integer of base 60": "seed: 1" + ":59" * 5_000,
    "an integer of 20 digits": "seed: " + "9" * 20,
    "a date that is none": "seed: 2001-99-99",
    "a tag that is not its value": "seed: !!bool 3",
    "an empty integer": "seed: !!int ''",
    "code": "seed: !!python/object/apply:os.system ['true']",
    "too long": "# " + "x" * YAML_BYTES,
    "a list as a key": "? [1, [2]]\n: 3",
}


@pytest.mark.parametrize("name", YAML)
def test_recipes_reasons_and_changes_are_bounded_before_they_are_parsed(tmp_path, name):
    path = tmp_path / "recipe.yaml"
    for write in (Path.write_text, write_yaml):  # with and without a checksum, which anybody can compute
        write(path, YAML[name])
        with pytest.raises(UserError, match=r"recipe\.yaml"):
            load_recipe(str(path))
    (tmp_path / "verdicts.yaml").write_text(YAML[name])
    with pytest.raises(UserError, match=r"verdicts\.yaml"):
        read_reasons(tmp_path, set())


VALUES = {name: text.removeprefix("seed: ").removeprefix("training: ") for name, text in YAML.items()}


@pytest.mark.parametrize("name", sorted(set(VALUES) - {"too long", "a list as a key", "aliases"}))
def test_values_of_options_are_bounded_too(name):
    with pytest.raises(UserError) as refused:
        load_recipe("doodles/ncm", [f"seed={VALUES[name]}"])
    assert isinstance(refused.value, BadOverride)
    assert len(str(refused.value)) < 1_000
    given = CliRunner().invoke(app, ["tune", "doodles/ncm", "--grid", f"seed=[{VALUES[name]}]"])
    assert isinstance(given.exception, UserError)
    assert len(str(given.exception)) < 1_000


def test_an_anchor_alone_and_usual_depths_are_read():
    assert parse_yaml("a: &b [1, {c: 2}]") == {"a": [1, {"c": 2}]}
    assert parse_yaml("[" * (DEEPEST - 1) + "]" * (DEEPEST - 1)) is not None
    assert parse_yaml(f"a: {2**63}") == {"a": 2**63}


READERS = {
    "result.json": Result.read,
    "split.json": Split.read,
    "tradeoff.json": TradeOff.read,
    "tradeoff-mirror.json": lambda folder: TradeOff.read(folder, mirror=True),
    "poisoning.json": Poisoning.read,
    "search.json": lambda folder: load_json(folder / "search.json"),
}
JSON = {
    "deep lists": '{"recipe": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "deep objects": '{"recipe": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
    "a long integer": '{"seed": ' + "9" * 5_000 + "}",
    "no object": "[{}]",
    "not closed": '{"seed": 1',
}


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("file", READERS)
def test_json_of_strangers_is_bounded_before_it_is_parsed(tmp_path, file, name):
    for write in (Path.write_text, write_json):
        write(tmp_path / file, JSON[name])
        with pytest.raises(UserError, match=file.replace(".", r"\.")) as refused:
            READERS[file](tmp_path)
        assert len(str(refused.value)) < 1_000


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "result.json").open("wb") as file:
        file.truncate(2**40)  # without blocks on the disk
    tracemalloc.start()
    with pytest.raises(FileRefused, match="more than"):
        Result.read(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize(
    "changes",
    [
        {"confusions": [[[10**30]]]},
        {"confusions": [[[1, 2], [3]]]},
        {"confusions": []},
        {"sessions": []},
        {"sessions": [[0]] * 4},
        {"class_names": ["one"]},
        {"novel_only": []},
        {"confusions": [[[-1] * 6] * 6]},
    ],
)
def test_a_result_whose_parts_do_not_fit_each_other_is_refused(tmp_path, changes):
    values = json.loads(make_result().model_dump_json()) | changes
    write_json(tmp_path / "result.json", json.dumps(values))
    with pytest.raises(UserError, match="not a result this version can read"):
        Result.read(tmp_path)


def test_a_result_may_nest_its_recipe_only_so_deep(tmp_path):
    values = json.loads(make_result().model_dump_json())
    for _ in range(100):
        values["recipe"] = {"method": values["recipe"]}
    write_json(tmp_path / "result.json", json.dumps(values))
    with pytest.raises(FileRefused, match="nests"):
        Result.read(tmp_path)


def test_a_split_names_no_file_outside_its_folder_and_fits_its_sessions(tmp_path):
    split = {"seed": 0, "base_classes": 1, "way": 1, "shots": 1, "sessions": 1, "skipped": {}}
    good = [{"name": name, "train": [f"{name}/1.png"], "test": [f"{name}/2.png"]} for name in "ab"]
    write_json(tmp_path / "split.json", json.dumps(split | {"classes": good}))
    assert Split.read(tmp_path).sessions == 1
    for outside in ("/etc/passwd", "../x.png", "a/../../x.png", "a\0"):
        bad = [good[0], good[1] | {"test": [outside]}]
        write_json(tmp_path / "split.json", json.dumps(split | {"classes": bad}))
        with pytest.raises(UserError, match=r"classes\.1\.test\.0"):
            Split.read(tmp_path)
    write_json(tmp_path / "split.json", json.dumps(split | {"classes": good, "sessions": 10**12}))
    with pytest.raises(UserError, match="classes expected"):
        Split.read(tmp_path)


# Archives


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE])
@pytest.mark.parametrize("later", [False, True])
def test_the_names_of_an_archive_are_bounded_before_they_are_read(tmp_path, kind, later):
    archive, size = tmp_path / "x.tar.gz", 2**26
    with gzip.open(archive, "wb", compresslevel=1) as file:
        if later:
            file.write(header(tarfile.REGTYPE, 0, "first"))
        file.write(header(kind, size))
        file.write(b"x" * size)
        file.write(header(tarfile.REGTYPE, 0))
    assert archive.stat().st_size < 2**20
    tracemalloc.start()
    with pytest.raises(FileRefused, match="cannot be unpacked"):
        unpack(archive)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 4
    assert not list(tmp_path.glob("*unpacked*"))


def test_a_sparse_file_which_a_kilobyte_makes_a_terabyte_is_refused(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("x")
        info.size = 1024
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        info.pax_headers["GNU.sparse.realsize"] = str(2**40)
        tar.addfile(info, io.BytesIO(b"1\n0\n512\n".ljust(512, b"\0") + b"x" * 512))
    with pytest.raises(FileRefused, match="holds a sparse file"):
        unpack(tmp_path / "x.tar", bytes_limit=2**20)


def test_folders_count_too(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "FILES_LIMIT", 100)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number in range(101):
            info = tarfile.TarInfo(f"folder{number}")
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
    with pytest.raises(FileRefused, match="100 files"):
        unpack(tmp_path / "x.tar")


def test_a_damaged_note_of_what_was_unpacked_unpacks_again(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a"), io.BytesIO())
    folder = unpack(tmp_path / "x.tar")
    (folder / ".unpacked-from").write_bytes(b"\xff\xfe")
    assert unpack(tmp_path / "x.tar") == folder
    assert (folder / "a").is_file()
