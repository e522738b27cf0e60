"""The measurement of reading pictures: every reader delivers the same pictures."""

import numpy as np
import pytest

from fairshot.benchmarks.cache import Resize, cache_folder
from fairshot.errors import BadInput
from fairshot.speed.data import generated_photographs, measure_data


def test_each_reader_is_measured_and_the_own_cache_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRSHOT_CACHE", str(tmp_path / "own"))
    files = generated_photographs(tmp_path, 12)
    assert 60_000 < np.mean([file.stat().st_size for file in files]) < 120_000
    speed = measure_data(files, Resize(16))
    assert (speed.files, speed.readable) == (12, 12)
    assert min(speed.build_cache, speed.open_cache, speed.read_cache, speed.plain) > 0
    assert not cache_folder().exists()


def test_files_that_are_no_pictures_are_passed_over(tmp_path):
    files = generated_photographs(tmp_path, 3)
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    speed = measure_data([broken, *files], Resize(16))
    assert (speed.files, speed.readable) == (4, 3)
    for none in ([], [broken]):
        with pytest.raises(BadInput, match=f"none of {len(none)} "):
            measure_data(none, Resize(16))
