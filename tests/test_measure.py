"""The measurement of reading pictures: every reader delivers the same pictures."""

import os

import numpy as np
from PIL import Image

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.measure import measure_data


def test_each_way_of_reading_is_measured_and_the_own_cache_left_alone(tmp_path):
    before = os.environ["FAIRSHOT_CACHE"]
    files = [tmp_path / f"{number}.jpg" for number in range(12)]
    for number, file in enumerate(files):
        Image.fromarray(np.full((20 + number, 30, 3), number, np.uint8)).save(file)
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
