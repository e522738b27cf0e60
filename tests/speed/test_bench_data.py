"""The measurement of reading pictures: every reader delivers the same pictures."""

import os

import numpy as np
import pytest

from fairshot.benchmarks.cache import Resize
from fairshot.errors import UserError
from fairshot.speed.data import generated_photographs, measure_data


def test_each_way_of_reading_is_measured_and_the_own_cache_left_alone(tmp_path):
    before = os.environ["FAIRSHOT_CACHE"]
    files = generated_photographs(tmp_path, 12)
    assert 60_000 < np.mean([file.stat().st_size for file in files]) < 120_000
    speeds = measure_data(files, Resize(16))
    assert [speed.what for speed in speeds] == [
        "build the cache",
        "open and verify the cache",
        "read from the cache",
        "PIL DataLoader",
    ]
    assert all(speed.images == 12 and speed.images_per_second > 0 for speed in speeds)
    assert os.environ["FAIRSHOT_CACHE"] == before
    assert not list(tmp_path.glob("*.pixels"))


def test_files_that_are_no_pictures_are_passed_over(tmp_path):
    files = generated_photographs(tmp_path, 3)
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    *_, cache, plain = measure_data([broken, *files], Resize(16))
    assert cache.images == plain.images == 3
    for none in ([], [broken]):
        with pytest.raises(UserError, match=f"none of the {len(none)} files"):
            measure_data(none, Resize(16))
