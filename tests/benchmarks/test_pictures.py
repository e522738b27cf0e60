"""Pictures: selection without copies, equal and different sizes."""

import numpy as np
import pytest

from fairshot.benchmarks.pictures import Pictures


def test_selection_returns_the_same_pixels_and_shares_the_buffer():
    array = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    pictures = Pictures.from_array(array)
    chosen = pictures.take([4, 1, 1])
    assert chosen.buffer is pictures.buffer
    for got, want in zip(chosen, array[[4, 1, 1]], strict=True):
        np.testing.assert_array_equal(got, want)


def test_pictures_of_different_sizes_survive_selection_and_compaction():
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in [(3, 4), (7, 2), (1, 9)]]
    compact = Pictures.from_list(images).take([2, 0]).compact()
    assert compact.nbytes == compact.buffer.size == (9 + 12) * 3
    for got, want in zip(compact, [images[2], images[0]], strict=True):
        np.testing.assert_array_equal(got, want)


def test_wrong_arrays_are_refused():
    with pytest.raises(ValueError, match="float64"):
        Pictures.from_array(np.zeros((2, 3, 3)))


def test_selections_join_in_their_buffer_and_others_are_copied():
    pictures = Pictures.from_array(np.arange(24, dtype=np.uint8).reshape(4, 2, 3))
    joined = Pictures.concatenate([pictures.take([3]), pictures.take([0, 1])])
    assert joined.buffer is pictures.buffer
    np.testing.assert_array_equal(np.stack(list(joined))[..., 0], pictures.buffer.reshape(4, 2, 3)[[3, 0, 1]])
    other = Pictures.from_array(np.full((1, 5, 2), 9, np.uint8))
    mixed = Pictures.concatenate([pictures.take([2]), other])
    assert [picture.shape for picture in mixed] == [(2, 3, 1), (5, 2, 1)]
    np.testing.assert_array_equal(mixed[1][..., 0], 9)
