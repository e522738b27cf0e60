"""Cutting boxes out of pictures, beside torchvision's crop and resize of the same boxes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms.v2 import functional as tv

from fairshot.benchmarks.pictures import Pictures
from fairshot.models.embedder import Embedder, ModelSettings
from fairshot.models.pixels import DevicePictures, centre_boxes, crop_resize


def random_picture(seed: int, height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def on_device(*pictures: np.ndarray) -> DevicePictures:
    return DevicePictures.from_pictures(Pictures.from_list(pictures))


def as_floats(picture: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(picture).permute(2, 0, 1) / 255


def reference(picture: np.ndarray, box: tuple[int, int, int, int], size: int) -> torch.Tensor:
    return tv.resized_crop(as_floats(picture)[None], *box, [size, size], antialias=False)[0]


@st.composite
def pictures_and_boxes(draw):
    """Pictures of different sizes and a box of whole pixels inside each."""
    channels = draw(st.sampled_from([1, 3]))
    cases = []
    for seed in range(draw(st.integers(1, 3))):
        height, width = draw(st.integers(1, 23)), draw(st.integers(1, 23))
        top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
        box = (top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left)))
        cases.append((random_picture(seed, height, width, channels), box))
    return cases


@settings(max_examples=80, deadline=None)
@given(pictures_and_boxes(), st.integers(1, 17))
def test_a_box_is_what_torchvision_crops_and_resizes(cases, size):
    pictures, boxes = zip(*cases, strict=True)
    images = crop_resize(on_device(*pictures), torch.tensor(boxes, dtype=torch.float32), size)
    for image, (picture, box) in zip(images, cases, strict=True):
        torch.testing.assert_close(image, reference(picture, box, size), atol=1e-5, rtol=0)


def test_a_negative_width_mirrors_the_box():
    picture = random_picture(0, 12, 9)
    plain, mirrored = crop_resize(
        on_device(picture, picture), torch.tensor([[2.0, 1.0, 8.0, 6.0], [2.0, 1.0, 8.0, -6.0]]), 7
    )
    torch.testing.assert_close(mirrored, plain.flip(2), atol=1e-5, rtol=0)


def test_the_whole_picture_at_its_own_size_is_the_picture():
    picture = random_picture(1, 28, 28, 1)
    (image,) = crop_resize(on_device(picture), torch.tensor([[0.0, 0.0, 28.0, 28.0]]), 28)
    torch.testing.assert_close(image, as_floats(picture), atol=1e-5, rtol=0)


def test_what_lies_beyond_the_picture_is_black():
    picture = np.full((4, 4, 1), 255, np.uint8)
    (image,) = crop_resize(on_device(picture), torch.tensor([[-4.0, -4.0, 12.0, 12.0]]), 12)
    expected = torch.zeros(1, 12, 12)
    expected[:, 4:8, 4:8] = 1
    torch.testing.assert_close(image, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("quarter_turns", [1, 2, 3])
def test_a_turned_box_shows_the_picture_turned_the_other_way(quarter_turns):
    picture = random_picture(2, 10, 10)
    box = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    (turned,) = crop_resize(on_device(picture), box, 10, torch.tensor([quarter_turns * torch.pi / 2]))
    expected = as_floats(np.rot90(picture, quarter_turns).copy())
    inner = (slice(None), slice(1, -1), slice(1, -1))  # at the rim, rounding decides what lies outside
    torch.testing.assert_close(turned[inner], expected[inner], atol=1e-4, rtol=0)


def test_a_small_turn_is_torchvisions_rotation():
    picture = random_picture(3, 11, 11)
    (turned,) = crop_resize(
        on_device(picture), torch.tensor([[0.0, 0.0, 11.0, 11.0]]), 11, torch.tensor([torch.pi / 12])
    )
    expected = tv.rotate(as_floats(picture), 15, interpolation=tv.InterpolationMode.BILINEAR)
    centre = (slice(None), slice(3, 8), slice(3, 8))
    torch.testing.assert_close(turned[centre], expected[centre], atol=1e-4, rtol=0)


@settings(max_examples=30, deadline=None)
@given(st.integers(8, 40), st.integers(8, 40), st.sampled_from([1.0, 0.5, 84 / 92]))
def test_the_central_box_is_square_centred_and_of_the_asked_share(height, width, share):
    top, left, tall, broad = centre_boxes(torch.tensor([[height, width]]), share)[0].tolist()
    assert tall == broad == pytest.approx(min(height, width) * share)
    assert top == pytest.approx((height - tall) / 2)
    assert left == pytest.approx((width - broad) / 2)


def test_the_test_view_is_resize_then_centre_crop():
    """A picture of short side `resize` needs no resizing: its view is the crop, pixel by pixel."""
    picture = random_picture(4, 24, 30)
    embedder = Embedder(ModelSettings(backbone="tiny", size=20, resize=24), channels=3)
    (view,) = embedder.test_view(on_device(picture))
    torch.testing.assert_close(view, tv.center_crop(as_floats(picture), [20, 20]), atol=1e-5, rtol=0)
