"""AutoAugment's policy for CIFAR-10, and Cutout, for a batch at once on the device, as torchvision has them.

Images are pixels of whole numbers 0 to 255 held as floats. Each of the two steps of a policy moves all images
by one look-up, then computes every change of colour for the whole batch and keeps that of each image's own
operation, so that nothing depends on the images drawn and a step can be compiled.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

LEVELS = 10  # of each magnitude
WHITE = 255
SIGNED = (  # operations whose magnitude may be negative
    *("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"),
    *("Brightness", "Color", "Contrast", "Sharpness"),
)
OPERATIONS = (*SIGNED, "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert")
POLICY_NOISE = 5  # columns of noise: the policy, then for each of its two steps whether it happens
CUTOUT_NOISE = 2  # columns: the centre of the hole


def autoaugment(images: Tensor, noise: Tensor) -> Tensor:
    """Apply a random policy to each image (N, C, H, W) of whole numbers; `noise` is (N, POLICY_NOISE)."""
    operations, chances, levels = (table.to(images.device) for table in _policies())
    policy = (noise[:, 0] * len(operations)).long()
    for step in (0, 1):
        operation, level = operations[policy, step], levels[policy, step]
        happens = noise[:, 1 + step] <= chances[policy, step].to(noise)
        magnitude = magnitudes(operation, level, images.shape[-1], noise[:, 3 + step] >= 0.5)
        changed = apply(images, operation, magnitude)
        images = torch.where(happens[:, None, None, None], changed, images)
    return images


@cache
def _policies() -> tuple[Tensor, Tensor, Tensor]:
    """Return the table of torchvision: operation, probability and level of both steps, each (25, 2)."""
    from torchvision.transforms import AutoAugment, AutoAugmentPolicy  # a second to import

    policies = AutoAugment(AutoAugmentPolicy.CIFAR10).policies
    operations = [[OPERATIONS.index(name) for name, _, _ in each] for each in policies]
    chances = [[chance for _, chance, _ in each] for each in policies]
    levels = [[level or 0 for _, _, level in each] for each in policies]
    return torch.tensor(operations), torch.tensor(chances), torch.tensor(levels)


@cache
def _magnitudes(side: int) -> Tensor:
    """Return the magnitude of each operation at each level (operations, LEVELS)."""
    rising = torch.linspace(0, 1, LEVELS)
    reach = {"ShearX": 0.3, "ShearY": 0.3, "TranslateX": 150 / 331 * side, "TranslateY": 150 / 331 * side}
    reach |= {"Rotate": 30.0} | dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), 0.9)
    table = torch.stack([reach.get(name, 0.0) * rising for name in OPERATIONS])
    table[OPERATIONS.index("Posterize")] = 8 - (torch.arange(LEVELS) / ((LEVELS - 1) / 4)).round()
    table[OPERATIONS.index("Solarize")] = torch.linspace(WHITE, 0, LEVELS)
    return table


def magnitudes(operation: Tensor, level: Tensor, side: int, positive: Tensor) -> Tensor:
    """Return how strongly each image (N,) is changed, negative where that is drawn and it can be."""
    signed = torch.tensor([name in SIGNED for name in OPERATIONS], device=operation.device)[operation]
    size = _magnitudes(side).to(operation.device)[operation, level]
    return torch.where(signed & ~positive, -size, size)


def apply(images: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Apply to each image (N, C, H, W) its operation, an index into OPERATIONS, with its magnitude (N,)."""
    moved = _move(images, operation, magnitude)
    factor = magnitude[:, None, None, None]
    changes = {
        "Brightness": _blend(images, torch.zeros_like(images), 1 + factor),
        "Color": _blend(images, _grey(images), 1 + factor),
        "Contrast": _blend(images, _grey(images).mean((1, 2, 3), keepdim=True), 1 + factor),
        "Sharpness": _blend(images, _blurred(images), 1 + factor),
        "Posterize": _posterise(images, factor),
        "Solarize": torch.where(images >= factor, WHITE - images, images),
        "AutoContrast": _stretched(images),
        "Equalize": _equalised(images),
        "Invert": WHITE - images,
    }
    for name, changed in changes.items():
        own = (operation == OPERATIONS.index(name))[:, None, None, None]
        moved = torch.where(own, changed, moved)
    return moved


def _move(images: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Shear, translate or rotate each image, reading the nearest pixel; beyond the image it is black."""
    height, width = images.shape[-2:]

    def of(name: str, value: Tensor) -> Tensor:
        return torch.where(operation == OPERATIONS.index(name), value, 0.0)[:, None, None]

    y, x = (torch.arange(side, device=images.device, dtype=magnitude.dtype) + 0.5 for side in (height, width))
    y, x = y[:, None].expand(height, width), x[None].expand(height, width)
    turn = of("Rotate", magnitude * (math.pi / 180))
    from_middle_y, from_middle_x = y - height / 2, x - width / 2
    column = width / 2 + turn.cos() * from_middle_x - turn.sin() * from_middle_y
    row = height / 2 + turn.sin() * from_middle_x + turn.cos() * from_middle_y
    column = column + of("ShearX", magnitude) * y - of("TranslateX", magnitude.trunc())
    row = row + of("ShearY", magnitude) * x - of("TranslateY", magnitude.trunc())
    column, row = (column - 0.5).round().long(), (row - 0.5).round().long()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    places = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).flatten(1)
    moved = images.flatten(2).gather(2, places[:, None].expand(-1, images.shape[1], -1))
    return moved.view_as(images) * inside[:, None]


def _blend(images: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Mix two images, beyond either if the share is above 1; down to whole numbers, but for rounding."""
    return (share * images + (1 - share) * other + 1e-3).clamp(0, WHITE).floor()


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).floor()[:, None].expand_as(images)


def _blurred(images: Tensor) -> Tensor:
    """Average each pixel, weighted by five, with its eight neighbours; those at the edge stay."""
    height, width = images.shape[-2:]
    inner = 4 * images[:, :, 1:-1, 1:-1]  # and once more in the sum of nine
    for down in range(3):
        for right in range(3):
            inner = inner + images[:, :, down : height - 2 + down, right : width - 2 + right]
    blurred = images.clone()
    blurred[:, :, 1:-1, 1:-1] = (inner / 13).round()
    return blurred


def _posterise(images: Tensor, bits: Tensor) -> Tensor:
    step = torch.exp2(8 - bits.trunc().clamp(0, 8))
    return (images / step).floor() * step


def _stretched(images: Tensor) -> Tensor:
    """Stretch each channel over all values; a channel of one value stays."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    flat = low == high
    scale = WHITE / torch.where(flat, 1.0, high - low)
    return torch.where(flat, images, ((images - low) * scale).clamp(0, WHITE).floor())


def _equalised(images: Tensor) -> Tensor:
    """Spread the values of each channel evenly, by its histogram."""
    values = images.flatten(2).long()
    counts = torch.zeros(*values.shape[:2], WHITE + 1, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, values, torch.ones_like(values))
    highest = counts.gather(2, values.amax(2, keepdim=True))
    step = (values.shape[2] - highest) // WHITE
    safe = step.clamp(min=1)
    table = (counts.cumsum(2) + safe // 2) // safe
    table = torch.nn.functional.pad(table, (1, 0))[:, :, :-1].clamp(0, WHITE)
    spread = table.gather(2, values).view_as(images).to(images.dtype)
    return torch.where((step == 0)[..., None], images, spread)


def cutout(images: Tensor, side: int, noise: Tensor) -> Tensor:
    """Blacken a square of each image around a random pixel, (N, 2) columns of noise; it may reach beyond."""
    half, inside = side // 2, []
    for column, size in zip(noise.unbind(1), images.shape[-2:], strict=True):
        centre = (column * size).floor()[:, None]
        index = torch.arange(size, device=images.device)
        inside.append((index >= centre - half) & (index < centre + half))
    rows, columns = inside
    return torch.where(rows[:, None, :, None] & columns[:, None, None], 0.0, images)
