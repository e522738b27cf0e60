"""The real CIFAR-100, where it is at hand: the official shots and every count of the protocol."""

import pickle
import shutil

import numpy as np
import pytest
from torchvision.datasets import CIFAR100

from fairshot.benchmarks import cifar100
from fairshot.benchmarks.dataset import MissingData, WrongData
from fairshot.benchmarks.stream import StreamSettings, build_stream


@pytest.fixture(scope="module")
def benchmark(cifar100_folder):
    return cifar100.load(cifar100_folder)


@pytest.fixture(scope="module")
def stream(benchmark):
    return build_stream(benchmark, StreamSettings())


def test_every_count_of_the_protocol_holds(stream):
    assert [len(session.classes) for session in stream.sessions] == [60] + [5] * 8
    assert len(stream.base.train) == 30_000
    np.testing.assert_array_equal(np.bincount(stream.base.train.labels), 500)
    for session in stream.sessions[1:]:
        np.testing.assert_array_equal(np.bincount(session.train.labels)[list(session.classes)], 5)
    np.testing.assert_array_equal(np.bincount(stream.seen_test(8).labels), 100)
    assert [len(stream.seen_test(t)) for t in range(9)] == [6000 + 500 * t for t in range(9)]
    assert stream.class_names[0] == "apple"
    assert stream.class_names[99] == "worm"


def test_the_shots_are_the_images_the_lists_name(stream, cifar100_folder, shared_data):
    with (cifar100_folder / "cifar-100-python" / "train").open("rb") as file:
        raw = pickle.load(file, encoding="latin1")  # noqa: S301 - rebuilt and checked by its md5 above
    images = raw["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    for number in range(1, 9):
        listed = (shared_data / "index_list" / "cifar100" / f"session_{number + 1}.txt").read_text().split()
        wanted = {(raw["fine_labels"][int(index)], images[int(index)].tobytes()) for index in listed}
        shown = stream.sessions[number].train
        got = {
            (int(label), picture.tobytes())
            for label, picture in zip(shown.labels, shown.pictures, strict=True)
        }
        assert got == wanted
        assert len(got) == 25
    base = np.loadtxt(shared_data / "index_list" / "cifar100" / "session_1.txt", dtype=int)
    np.testing.assert_array_equal(np.sort(base), np.flatnonzero(np.array(raw["fine_labels"]) < 60))


def test_other_class_orders_and_ways_keep_images_and_labels_together(benchmark, stream):
    other = build_stream(benchmark, StreamSettings(class_order_seed=3, way=10, shots=1))
    assert [len(session.classes) for session in other.sessions] == [60, 10, 10, 10, 10]
    shown = other.sessions[2]
    label = stream.class_names.index(other.class_names[shown.classes[0]])
    everything = stream.seen_test(8)
    wanted = [p.tobytes() for p in everything.take(np.flatnonzero(everything.labels == label)).pictures]
    mine = shown.test.take(np.flatnonzero(shown.test.labels == shown.classes[0]))
    assert [picture.tobytes() for picture in mine.pictures] == wanted


def test_damaged_and_missing_data_are_refused(cifar100_folder, tmp_path):
    with pytest.raises(MissingData, match="CIFAR-100 was not found in") as missing:
        cifar100.load(tmp_path)
    assert (missing.value.dataset, missing.value.root) == (cifar100.DATASET, tmp_path)
    shutil.copytree(cifar100_folder / "cifar-100-python", tmp_path / "cifar-100-python")
    with (tmp_path / "cifar-100-python" / "test").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"damage")
    with pytest.raises(WrongData, match="md5 differs") as wrong:
        cifar100.load(tmp_path)
    assert wrong.value.folder == tmp_path / "cifar-100-python"


def test_the_archive_is_the_one_torchvision_knows():
    source = cifar100.DATASET.source
    assert (source.url, source.md5, source.archive) == (CIFAR100.url, CIFAR100.tgz_md5, CIFAR100.filename)
