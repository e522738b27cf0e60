"""Random views beside torchvision's: the same colours for the same factor, crops of the same distribution."""

import math

import pytest
import torch
from pydantic import ValidationError
from scipy.stats import ks_2samp
from torchvision.transforms import AutoAugment, AutoAugmentPolicy, InterpolationMode, RandomResizedCrop
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.v2 import functional as tv

from fairshot.benchmarks.pictures import Pictures
from fairshot.models.pixels import DevicePictures, crop_resize
from fairshot.training import autoaugment
from fairshot.training.views import (
    CROP_TRIES,
    NOISE_COLUMNS,
    ViewSettings,
    jitter,
    noise_columns,
    random_boxes,
    random_view,
    shift_hue,
    to_grey,
)

UNTOUCHED = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
BOX_COLUMNS = 2 * CROP_TRIES + 2


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def images_of_all_kinds() -> torch.Tensor:
    """Noise, greys, single colours, black and white: the corners of hue and saturation."""
    noise = uniform(3, 3, 5, 7)
    corners = torch.tensor([[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [0, 1, 1], [0.2, 0.2, 0.9]])
    return torch.cat([noise, corners[:, :, None, None].expand(-1, 3, 5, 7)])


@pytest.mark.parametrize("noise", [0.0, 0.13, 0.5, 0.99])
@pytest.mark.parametrize(
    ("name", "adjust"),
    [
        ("brightness", tv.adjust_brightness),
        ("contrast", tv.adjust_contrast),
        ("saturation", tv.adjust_saturation),
        ("hue", tv.adjust_hue),
    ],
)
def test_each_colour_is_changed_as_torchvision_does_for_the_same_factor(name, adjust, noise):
    images, strength = images_of_all_kinds(), 0.4
    ours = jitter(images, torch.full((len(images), 4), noise), ViewSettings(**UNTOUCHED | {name: strength}))
    factor = strength * (2 * noise - 1) + (name != "hue")
    torch.testing.assert_close(ours, adjust(images, factor), atol=2e-6, rtol=0)


def test_each_picture_has_its_own_factors_and_grey_pictures_keep_one_channel():
    images, noise = uniform(4, 1, 6, 6), uniform(4, 4, seed=1)
    settings = ViewSettings(brightness=0.3, contrast=0.2, saturation=0.4, hue=0.1)
    for image, row, ours in zip(images, noise, jitter(images, noise, settings), strict=True):
        expected = tv.adjust_brightness(image, 1 + 0.3 * (2 * float(row[0]) - 1))
        expected = tv.adjust_contrast(expected, 1 + 0.2 * (2 * float(row[1]) - 1))
        torch.testing.assert_close(ours, expected, atol=2e-6, rtol=0)


def test_grey_and_hue_by_themselves():
    images = images_of_all_kinds()
    torch.testing.assert_close(to_grey(images), tv.rgb_to_grayscale(images, 3), atol=1e-6, rtol=0)
    whole_turn = shift_hue(images, torch.ones(len(images), 1, 1, 1))
    torch.testing.assert_close(whole_turn, images, atol=2e-6, rtol=0)


SIZES = [(32, 32), (40, 30), (25, 64), (84, 84)]


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("scale", [(0.2, 1.0), (0.6, 1.0)])
def test_crops_have_the_distribution_of_torchvision(height, width, scale):
    count = 3000
    ours = random_boxes(
        torch.tensor([[height, width]]).expand(count, 2),
        uniform(count, BOX_COLUMNS, seed=2),
        ViewSettings(crop_area=scale),
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        image, ratio = torch.empty(1, height, width), [3 / 4, 4 / 3]
        theirs = torch.tensor(
            [RandomResizedCrop.get_params(image, list(scale), ratio) for _ in range(count)]
        ).float()
    assert torch.equal(ours, ours.round())
    for column in range(4):
        assert ks_2samp(ours[:, column].numpy(), theirs[:, column].numpy()).pvalue > 0.01
    area, their_area = ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3]
    assert ks_2samp(area.numpy(), their_area.numpy()).pvalue > 0.01


@pytest.mark.parametrize(("height", "width"), [(3, 90), (90, 3), (7, 11), (1, 1), (20, 20)])
def test_where_no_crop_fits_the_central_box_of_allowed_ratio_is_taken(height, width):
    """The whole area at ratio 4/3 fits none of these; torchvision is brought to its fallback by area 50."""
    noise = torch.full((1, BOX_COLUMNS), 1 - 2**-24)
    ours = random_boxes(torch.tensor([[height, width]]), noise, ViewSettings(crop_area=(1.0, 1.0)))
    theirs = RandomResizedCrop.get_params(torch.empty(1, height, width), [50.0, 50.0], [3 / 4, 4 / 3])
    assert ours[0].tolist() == list(theirs)


def test_boxes_stay_inside_their_pictures_whatever_the_noise():
    sizes = torch.tensor([[1, 1], [1, 50], [50, 1], [9, 17], [224, 180]]).repeat(60, 1)
    boxes = random_boxes(sizes, uniform(len(sizes), BOX_COLUMNS, seed=4), ViewSettings(crop_area=(0.05, 1)))
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] >= 1).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= sizes).all()


def test_views_beyond_the_picture_have_the_asked_areas():
    sizes = torch.tensor([[28, 28]]).expand(2000, 2)
    boxes = random_boxes(sizes, uniform(2000, BOX_COLUMNS, seed=5), ViewSettings(crop_area=(0.6, 1.4)))
    share = boxes[:, 2] * boxes[:, 3] / 28**2
    assert 0.55 < share.min() < 0.65
    assert 1.35 < share.max() < 1.45
    assert share.mean() == pytest.approx(1.0, abs=0.02)
    ratio = (boxes[:, 3] / boxes[:, 2]).log()
    assert ratio.abs().max() < math.log(4 / 3) + 0.1


def test_continuous_boxes_are_drawn_once_and_cut_down_to_the_picture():
    sizes = torch.tensor([[32, 32], [9, 40], [40, 9], [1, 1]]).repeat(50, 1)
    noise = uniform(len(sizes), BOX_COLUMNS, seed=7)
    settings = ViewSettings(crop_area=(0.2, 1.0), crop_rule="continuous")
    cut_down = 0
    for size, row, box in zip(sizes, noise, random_boxes(sizes, noise, settings), strict=True):
        (height, width), (y, x) = size.tolist(), row[2 * CROP_TRIES :].tolist()
        area = height * width * (0.2 + 0.8 * float(row[0]))
        ratio = (3 / 4) ** (1 - 2 * float(row[CROP_TRIES]))
        tall, broad = min(math.sqrt(area / ratio), height), min(math.sqrt(area * ratio), width)
        assert box.tolist() == pytest.approx(
            [y * (height - tall), x * (width - broad), tall, broad], abs=1e-4
        )
        cut_down += tall == height or broad == width
    assert 50 < cut_down < 150


def test_continuous_views_read_the_neighbours_of_their_boxes():
    given, noise = pictures(40), uniform(40, NOISE_COLUMNS, seed=8)
    settings = ViewSettings(horizontal_flip=0.0, jitter=0.0, crop_rule="continuous")
    views = random_view(given, noise, settings, 12)
    steps = (torch.arange(12) + 0.5) / 12
    for index, box in enumerate(random_boxes(given.sizes, noise[:, :BOX_COLUMNS], settings)):
        picture = given.buffer.view(40, 16, 16, 3)[index].permute(2, 0, 1)[None] / 255
        y, x = box[0] + box[2] * steps, box[1] + box[3] * steps
        points = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)[None] / 8 - 1
        expected = torch.nn.functional.grid_sample(
            picture, points, padding_mode="border", align_corners=False
        )
        torch.testing.assert_close(views[index], expected[0], atol=1e-5, rtol=0)


def test_continuous_views_cannot_reach_beyond_the_picture():
    with pytest.raises(ValidationError, match="never reach beyond the picture"):
        ViewSettings(crop_area=(0.5, 1.2), crop_rule="continuous")


def pictures(count: int, channels: int = 3) -> DevicePictures:
    return DevicePictures.from_pictures(
        Pictures.from_array((255 * uniform(count, 16, 16, channels)).to(torch.uint8).numpy())
    )


def test_a_view_is_the_crop_the_flip_and_the_colours_its_noise_asks_for():
    settings = ViewSettings(horizontal_flip=0.5, jitter=0.5, hue=0.1, greyscale=0.5)
    given, noise = pictures(64), uniform(64, NOISE_COLUMNS, seed=6)
    views = random_view(given, noise, settings, 12)
    boxes = random_boxes(given.sizes, noise[:, :BOX_COLUMNS], settings)
    flip, _, apply, *_, grey = noise[:, BOX_COLUMNS:].unbind(1)
    seen = set()
    for index, view in enumerate(views):
        expected = crop_resize(given.take(torch.tensor([index])), boxes[index : index + 1], 12)
        choices = (bool(flip[index] < 0.5), bool(apply[index] < 0.5), bool(grey[index] < 0.5))
        if choices[0]:
            expected = expected.flip(3)
        if choices[1]:
            expected = jitter(expected, noise[index : index + 1, BOX_COLUMNS + 3 : BOX_COLUMNS + 7], settings)
        if choices[2]:
            expected = to_grey(expected)
        torch.testing.assert_close(view, expected[0], atol=1e-5, rtol=0)
        seen.add(choices)
    assert len(seen) == 8


def test_a_view_depends_on_its_own_noise_alone():
    given, noise = pictures(6), uniform(6, NOISE_COLUMNS, seed=7)
    settings = ViewSettings(rotation=10)
    together = random_view(given, noise, settings, 10)
    alone = random_view(given.take(torch.tensor([4])), noise[4:5], settings, 10)
    torch.testing.assert_close(together[4:5], alone, atol=0, rtol=0)


def photo_like(count: int = 6, side: int = 17) -> torch.Tensor:
    """Smooth pictures, noise and single colours, in whole numbers."""
    smooth = torch.nn.functional.interpolate(uniform(count, 3, 4, 4), size=(side, side), mode="bicubic")
    images = (255 * smooth.clamp(0, 1)).round()
    images[-2] = (255 * uniform(3, side, side, seed=5)).round()
    images[-1, :2] = 90.0  # channels of one value
    return images


@pytest.mark.parametrize("name", autoaugment.OPERATIONS)
def test_each_operation_of_autoaugment_is_torchvisions(name):
    images, index = photo_like(), autoaugment.OPERATIONS.index(name)
    for level in range(autoaugment.LEVELS):
        for positive in (True, False):
            operation = torch.full((len(images),), index)
            size = autoaugment.magnitudes(
                operation, torch.full_like(operation, level), 17, torch.tensor(positive)
            )
            magnitude, signed = tv_magnitude(name, level, 17)
            assert size[0] == pytest.approx(-magnitude if signed and not positive else magnitude, rel=1e-6)
            ours = autoaugment.apply(images, operation, size)
            exact = float(size[0].double())  # as a policy passes it on
            theirs = torch.stack(
                [_apply_op(each, name, exact, InterpolationMode.NEAREST, None) for each in images.byte()]
            )
            difference = (ours - theirs).abs()
            if name in ("ShearX", "ShearY", "Rotate"):  # half a pixel may be rounded to either side
                assert (difference > 0).float().mean() <= 0.08, (level, positive)
            else:  # torchvision may miss a colour that is a whole number by its rounding, and go one down
                assert difference.max() <= (1 if name in BLENDS else 0), (level, positive)


BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")


def tv_magnitude(name, level, side):
    space = AutoAugment(AutoAugmentPolicy.CIFAR10)._augmentation_space(autoaugment.LEVELS, (side, side))
    values, signed = space[name]
    return (float(values[level]) if values.dim() else 0.0), signed


def test_a_policy_is_its_two_operations_one_after_the_other():
    images, policies = photo_like(25), AutoAugment(AutoAugmentPolicy.CIFAR10).policies
    noise = torch.zeros(25, autoaugment.POLICY_NOISE)
    noise[:, 0] = (torch.arange(25) + 0.5) / 25  # each policy once, both steps happening
    noise[:, 4] = 0.9  # a positive second magnitude
    ours = autoaugment.autoaugment(images, noise)
    for image, policy, changed in zip(images, policies, ours, strict=True):
        expected = image[None]
        for (name, _, level), positive in zip(policy, (False, True), strict=True):
            operation = torch.tensor([autoaugment.OPERATIONS.index(name)])
            size = autoaugment.magnitudes(operation, torch.tensor([level or 0]), 17, torch.tensor([positive]))
            expected = autoaugment.apply(expected, operation, size)
        assert torch.equal(changed, expected[0])
    noise[:, 1:3] = 0.999  # more than any probability
    assert torch.equal(autoaugment.autoaugment(images, noise), images)


def test_cutout_blackens_the_square_around_a_pixel():
    images, noise = torch.ones(40, 3, 9, 11), uniform(40, 2)
    ours = autoaugment.cutout(images, 4, noise)
    for image, (down, right) in zip(ours, noise.tolist(), strict=True):
        expected, y, x = torch.ones(3, 9, 11), int(9 * down), int(11 * right)
        for row in range(y - 2, y + 2):
            for column in range(x - 2, x + 2):
                if 0 <= row < 9 and 0 <= column < 11:
                    expected[:, row, column] = 0
        assert torch.equal(image, expected)


def test_padded_views_are_the_picture_moved_then_changed():
    pictures = DevicePictures.from_pictures(Pictures.from_array(photo_like().byte().movedim(1, 3).numpy()))
    settings = ViewSettings(crop_rule="padded", padding=2, horizontal_flip=0, jitter=0)
    noise = uniform(6, noise_columns(settings), seed=3)
    assert noise.shape[1] == NOISE_COLUMNS  # what is not asked for draws no random number
    views = random_view(pictures, noise, settings, 17)
    shifts = (noise[:, BOX_COLUMNS - 2 : BOX_COLUMNS] * 5).long() - 2
    padded = torch.nn.functional.pad(photo_like() / 255, (2, 2, 2, 2))
    for view, whole, (down, right) in zip(views, padded, shifts.tolist(), strict=True):
        torch.testing.assert_close(view, whole[:, 2 + down : 19 + down, 2 + right : 19 + right])
    both = settings.model_copy(update={"autoaugment": "cifar10", "cutout": 6})
    more = torch.cat([noise, uniform(6, noise_columns(both) - NOISE_COLUMNS, seed=4)], dim=1)
    policy, hole = more[:, NOISE_COLUMNS:].split([autoaugment.POLICY_NOISE, autoaugment.CUTOUT_NOISE], 1)
    expected = autoaugment.autoaugment((255 * views).round(), policy) / 255
    expected = autoaugment.cutout(expected, 6, hole)
    torch.testing.assert_close(random_view(pictures, more, both, 17), expected)
