"""The official lists: those of the field, complete, and made by the script."""

import lzma
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest
from timm.data import ImageNetInfo

from fairshot.benchmarks import cub200, lists

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src/fairshot/benchmarks/data/lists"


def test_every_shipped_list_has_its_md5():
    assert {path.name for path in SHIPPED.glob("*.txt.xz")} == {f"{name}.txt.xz" for name in lists.MD5}
    counts = {name: len(lists.read_list(name)) for name in lists.MD5}
    assert counts == {
        "cifar100": 30_200,
        "cub200": 3_500,
        "mini_imagenet": 30_200,
        "mini_imagenet_train": 50_000,
        "mini_imagenet_test": 10_000,
    }


def test_a_damaged_list_is_refused(tmp_path, monkeypatch):
    content = lzma.decompress((SHIPPED / "cub200.txt.xz").read_bytes())
    (tmp_path / "cub200.txt.xz").write_bytes(lzma.compress(content.replace(b"0041", b"0042", 1)))
    monkeypatch.setattr(lists, "_FOLDER", tmp_path)
    with pytest.raises(RuntimeError, match="damaged"):
        lists.read_list("cub200")


def test_the_lists_are_small_and_carry_their_licence():
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 400_000
    assert "MIT License" in (SHIPPED / "LICENSE").read_text()


def test_the_script_makes_the_shipped_lists(shared_data, tmp_path, monkeypatch):
    compress = lzma.compress
    monkeypatch.setattr(lzma, "compress", lambda content, preset: compress(content, preset=0))  # quickly
    monkeypatch.setattr(sys, "argv", ["make_lists.py", str(shared_data / "index_list"), str(tmp_path)])
    runpy.run_path(str(ROOT / "scripts/make_lists.py"), run_name="__main__")
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in SHIPPED.iterdir() if path.suffix not in (".csv", ".md")}
    for path in tmp_path.iterdir():
        shipped = (SHIPPED / path.name).read_bytes()
        made = path.read_bytes()
        unpack = lzma.decompress if path.suffix == ".xz" else bytes
        assert unpack(made) == unpack(shipped), path.name


def test_mini_imagenet_lists_fit_together():
    names = lists.mini_imagenet_names()
    assert list(names) == sorted(names)
    assert len(set(names.values())) == 100
    described = ImageNetInfo("imagenet-1k")
    for wnid, name in names.items():
        assert name.lower() in described.label_name_to_description(wnid, detailed=False).lower()
    train, test = lists.read_list("mini_imagenet_train"), lists.read_list("mini_imagenet_test")
    assert Counter(line.split("/")[2] for line in train) == dict.fromkeys(names, 500)
    assert Counter(line.split("/")[2] for line in test) == dict.fromkeys(names, 100)
    base = {line for line in train if line.split("/")[2] in list(names)[:60]}
    assert set(lists.read_list("mini_imagenet")[:30_000]) == base


def test_cub_counts_are_those_of_the_protocol_table():
    counts = lists.cub200_counts()
    assert [name[:3] for name, _, _ in counts] == [f"{number:03}" for number in range(1, 201)]
    assert sum(train for _, train, _ in counts[:100]) == 3000
    tests = [test for _, _, test in counts]
    sessions = [sum(tests[start : start + 10]) for start in range(100, 200, 10)]
    assert sum(tests[:100]) == 2864
    assert sessions == [279, 287, 298, 300, 298, 288, 297, 295, 288, 300]
    shots = Counter(line.split("/")[2] for line in lists.shot_lines("cub200", cub200.PROTOCOL))
    assert shots == {name: 5 for name, _, _ in counts[100:]}
