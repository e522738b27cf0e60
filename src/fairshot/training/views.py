"""Random views of pictures, for a batch at once on the device, as torchvision defines them.

All random choices are made from columns of uniform noise that are given, so a step is a pure function of its
inputs: it can be compiled, resumed and divided among processes.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor

from fairshot.models.pixels import DevicePictures, crop_resize
from fairshot.settings import PositiveRange, Settings, Share
from fairshot.training.autoaugment import CUTOUT_NOISE, POLICY_NOISE, autoaugment, cutout

CROP_TRIES = 10  # torchvision draws so many crops before it falls back to the centre
GREY = (0.2989, 0.587, 0.114)
NOISE_COLUMNS = 2 * CROP_TRIES + 10  # crops, position (2), flip, rotation, jitter (5), grey


def noise_columns(settings: ViewSettings) -> int:
    """Return how many columns of noise a view takes; those of AutoAugment and Cutout come last."""
    return NOISE_COLUMNS + POLICY_NOISE * bool(settings.autoaugment) + CUTOUT_NOISE * bool(settings.cutout)


class ViewSettings(Settings):
    """How random views are drawn from a picture."""

    crop_area: PositiveRange = Field(
        (0.2, 1.0),
        description="Share of the picture that a crop shows; above 1 the view reaches beyond the picture.",
    )
    crop_ratio: PositiveRange = Field((3 / 4, 4 / 3), description="Width of a crop divided by its height.")
    crop_rule: Literal["torchvision", "continuous", "padded"] = Field(
        "torchvision",
        description="How crops are drawn: boxes of whole pixels, of any size at any place, or the whole "
        "picture moved by up to `padding` pixels.",
    )
    padding: int = Field(4, ge=0, description="Pixels by which the crop rule `padded` moves a picture.")
    horizontal_flip: Share = Field(0.5, description="Probability of a mirror image.")
    rotation: float = Field(0.0, ge=0, le=180, description="Largest rotation to either side, in degrees.")
    jitter: Share = Field(0.8, description="Probability that colours are jittered at all.")
    brightness: Share = Field(0.4, description="Largest relative change of brightness.")
    contrast: Share = Field(0.4, description="Largest relative change of contrast.")
    saturation: Share = Field(0.4, description="Largest relative change of saturation.")
    hue: float = Field(
        0.0, ge=0, le=0.5, description="Largest shift of hue, as a share of the colour circle."
    )
    greyscale: Share = Field(0.0, description="Probability that a view is grey.")
    autoaugment: Literal["cifar10"] | None = Field(
        None, description="AutoAugment's policy, applied before colours are jittered; null: none."
    )
    cutout: int = Field(0, ge=0, description="Pixels per side of a black square in each view; 0: none.")

    @field_validator("crop_rule")
    @classmethod
    def _stays_inside(cls, rule: str, info: ValidationInfo) -> str:
        if rule == "continuous" and info.data.get("crop_area", (0, 0))[1] > 1:
            raise ValueError("its views never reach beyond the picture, as crop_area above 1 asks")
        return rule


def random_view(pictures: DevicePictures, noise: Tensor, settings: ViewSettings, size: int) -> Tensor:
    """Return one random view of each picture, (N, C, size, size) in [0, 1].

    `noise` has the columns that `noise_columns` asks for.
    """
    noise, policy, hole = noise.tensor_split(
        [NOISE_COLUMNS, noise.shape[1] - CUTOUT_NOISE * bool(settings.cutout)], 1
    )
    boxes = random_boxes(pictures.sizes, noise[:, : 2 * CROP_TRIES + 2], settings)
    flip, turn, apply, *colour, grey = noise[:, 2 * CROP_TRIES + 2 :].unbind(1)
    mirrored = torch.where(flip < settings.horizontal_flip, -1.0, 1.0)
    boxes = torch.cat([boxes[:, :3], boxes[:, 3:] * mirrored[:, None]], dim=1)
    angles = (2 * turn - 1) * math.radians(settings.rotation) if settings.rotation else None
    images = crop_resize(pictures, boxes, size, angles, confined=settings.crop_rule != "continuous")
    if settings.autoaugment:
        images = autoaugment((255 * images).round(), policy) / 255
    jittered = jitter(images, torch.stack(colour, dim=1), settings)
    images = torch.where((apply < settings.jitter)[:, None, None, None], jittered, images)
    if settings.greyscale and images.shape[1] == 3:
        images = torch.where((grey < settings.greyscale)[:, None, None, None], to_grey(images), images)
    return cutout(images, settings.cutout, hole) if settings.cutout else images


def random_boxes(sizes: Tensor, noise: Tensor, settings: ViewSettings) -> Tensor:
    """Draw boxes (top, left, height, width): by torchvision's rule for random resized crops, or continuous.

    torchvision's rule takes the first of CROP_TRIES candidates that fits, else the largest central box of an
    allowed ratio. If views may reach beyond the picture, every candidate fits, and positions are not rounded
    to pixels. Continuous boxes use the first candidate, cut down to the picture, and are not rounded at all.
    Padded ones are as large as the picture.
    """
    whole, position = sizes.to(noise.dtype), noise[:, 2 * CROP_TRIES :]
    (smallest, largest), (narrow, wide) = settings.crop_area, settings.crop_ratio
    area = whole[:, :1] * whole[:, 1:] * (smallest + (largest - smallest) * noise[:, :CROP_TRIES])
    ratio = torch.exp(
        math.log(narrow) + (math.log(wide) - math.log(narrow)) * noise[:, CROP_TRIES : 2 * CROP_TRIES]
    )
    sides = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()], dim=2)  # (N, CROP_TRIES, 2)
    if settings.crop_rule == "continuous":
        chosen = sides[:, 0].minimum(whole)
        return torch.cat([position * (whole - chosen), chosen], dim=1)
    if settings.crop_rule == "padded":
        corner = (position * (2 * settings.padding + 1)).floor() - settings.padding
        return torch.cat([corner, whole], dim=1)
    sides = sides.round().clamp(min=1)
    if largest > 1:
        return torch.cat([position * (whole - sides[:, 0]), sides[:, 0]], dim=1)
    fits = (sides <= whole[:, None]).all(dim=2)
    first = fits.to(torch.int8).argmax(dim=1)
    chosen = sides[torch.arange(len(sides), device=sides.device), first]
    free = whole - chosen
    drawn = torch.cat([(position * (free + 1)).floor().minimum(free), chosen], dim=1)
    return torch.where(fits.any(dim=1, keepdim=True), drawn, _central_boxes(whole, narrow, wide))


def _central_boxes(sizes: Tensor, narrow: float, wide: float) -> Tensor:
    """Return the largest central box of an allowed ratio in each picture (N, 4)."""
    height, width = sizes[:, :1], sizes[:, 1:]
    sides = sizes.minimum(torch.cat([width / narrow, height * wide], dim=1).round())
    return torch.cat([((sizes - sides) / 2).floor(), sides], dim=1)


def jitter(images: Tensor, noise: Tensor, settings: ViewSettings) -> Tensor:
    """Jitter brightness, contrast, saturation and hue by four columns of noise.

    torchvision draws the order of the four for each picture; here the order is fixed.
    """
    factors = 2 * noise - 1
    brightness, contrast, saturation, hue = factors.unbind(1)
    if settings.brightness:
        images = (images * _column(1 + settings.brightness * brightness)).clamp(0, 1)
    if settings.contrast:
        mean = to_grey(images).mean(dim=(1, 2, 3), keepdim=True)
        images = mean.lerp(images, _column(1 + settings.contrast * contrast)).clamp(0, 1)
    if images.shape[1] == 3 and settings.saturation:
        images = to_grey(images).lerp(images, _column(1 + settings.saturation * saturation)).clamp(0, 1)
    if images.shape[1] == 3 and settings.hue:
        images = shift_hue(images, _column(settings.hue * hue))
    return images


def to_grey(images: Tensor) -> Tensor:
    """Return the luma of colour images in every channel; grey images are returned as they are."""
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None].expand_as(images)


def shift_hue(images: Tensor, shift: Tensor) -> Tensor:
    """Shift the hue of RGB images by `shift` (in turns), keeping saturation and value."""
    red, green, blue = images.unbind(1)
    value, lowest = images.amax(dim=1), images.amin(dim=1)
    chroma = value - lowest
    safe = torch.where(chroma > 0, chroma, 1.0)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sector = hue[:, None] + 6 * shift
    offsets = torch.tensor([5.0, 3.0, 1.0], device=images.device).view(1, 3, 1, 1)
    position = (offsets + sector) % 6
    return value[:, None] - chroma[:, None] * torch.minimum(position, 4 - position).clamp(0, 1)


def _column(factors: Tensor) -> Tensor:
    return factors[:, None, None, None]
