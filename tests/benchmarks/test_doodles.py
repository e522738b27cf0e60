"""The embedded benchmark: what it holds, and that its script makes it."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from fairshot.benchmarks import doodles, load_stream
from fairshot.benchmarks.stream import StreamSettings

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src/fairshot/benchmarks/data/doodles.npz"


def test_the_official_stream_has_the_promised_counts():
    stream = load_stream("doodles", StreamSettings())
    assert [len(session.classes) for session in stream.sessions] == [30] + [5] * 8
    np.testing.assert_array_equal(np.bincount(stream.base.train.labels), 75)
    for session in stream.sessions[1:]:
        np.testing.assert_array_equal(np.bincount(session.train.labels)[session.classes[0] :], 5)
    np.testing.assert_array_equal(np.bincount(stream.seen_test(8).labels), 25)
    assert len(set(stream.class_names)) == 70


def test_the_shots_of_a_class_are_the_first_of_its_drawings():
    session = load_stream("doodles", StreamSettings()).sessions[3]
    with np.load(SHIPPED) as shipped:
        wanted = doodles.unpack_levels(shipped["pixels"])[list(session.classes), :5]
    np.testing.assert_array_equal(np.stack(list(session.train.pictures)), wanted.reshape(25, 28, 28, 1))


def test_drawings_are_grey_pictures_of_sixteen_levels_and_not_repeated_between_train_and_test():
    benchmark = doodles.load()
    pixels = np.stack([*benchmark.train.pictures, *benchmark.test.pictures])
    assert pixels.shape == (7000, 28, 28, 1)
    np.testing.assert_array_equal(np.unique(pixels), np.arange(16) * 17)
    train = {picture.tobytes() for picture in benchmark.train.pictures}
    assert sum(picture.tobytes() in train for picture in benchmark.test.pictures) == 0


def test_the_file_is_small_and_carries_its_licence():
    assert SHIPPED.stat().st_size <= 1_500_000
    notes = SHIPPED.with_name("DOODLES.md").read_text()
    assert "Creative Commons Attribution 4.0" in notes
    assert "Google" in notes


def test_the_script_makes_the_shipped_file(shared_data, tmp_path):
    source = shared_data / "quickdraw" / "quickdraw_345x100_28_u8.npz"
    made = tmp_path / "doodles.npz"
    subprocess.run([sys.executable, ROOT / "scripts/make_doodles.py", source, made], check=True)
    with np.load(made) as new, np.load(SHIPPED) as shipped, np.load(source) as original:
        assert sorted(new.files) == sorted(shipped.files)
        for name in new.files:
            np.testing.assert_array_equal(new[name], shipped[name])
        # the drawings of a class are the original ones, but for the grey levels
        crown = original["x"][original["classes"].tolist().index("crown")].astype(int)
        mine = doodles.unpack_levels(shipped["pixels"])[shipped["classes"].tolist().index("crown")].astype(
            int
        )
        distance = np.abs(mine[:, None] - crown[None]).max(axis=(2, 3))
        assert sorted(distance.argmin(axis=1)) == list(range(100))
        assert distance.min(axis=1).max() <= 8
