"""From uint8 pictures to network input: boxes are cropped and resized, a batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Pictures


@dataclass(frozen=True)
class DevicePictures:
    """Pictures on a device; see `Pictures` for the layout."""

    buffer: Tensor  # uint8, flat
    offsets: Tensor  # (N,)
    sizes: Tensor  # (N, 2) height and width
    channels: int

    @classmethod
    def from_pictures(cls, pictures: Pictures, device: torch.device | str = "cpu") -> DevicePictures:
        """Copy the pixels of selected pictures to a device."""
        compact = pictures.compact()
        arrays = (compact.buffer, compact.offsets, compact.sizes)
        buffer, offsets, sizes = (torch.from_numpy(array).to(device) for array in arrays)
        return cls(buffer, offsets, sizes, compact.channels)

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, indices: Tensor) -> DevicePictures:
        """Select pictures without copying pixels."""
        return DevicePictures(self.buffer, self.offsets[indices], self.sizes[indices], self.channels)


def centre_boxes(sizes: Tensor, share: float) -> Tensor:
    """Return (N, 4) boxes: the central square of each picture, whose side is `share` of the short side."""
    side = sizes.min(dim=1).values * share
    corner = (sizes - side[:, None]) / 2
    return torch.cat([corner, side[:, None], side[:, None]], dim=1)


def crop_resize(
    pictures: DevicePictures, boxes: Tensor, size: int, angles: Tensor | None = None, confined: bool = True
) -> Tensor:
    """Crop one box (top, left, height, width in pixels) from each picture and resize it bilinearly.

    A negative width mirrors the box. `angles` (in radians) rotate it around its centre. A box may reach
    beyond its picture, where pixels are 0. With `confined` and without `angles` no pixel outside the box is
    read, as if the box had been cropped before resizing; otherwise pixels at its edges are interpolated with
    their neighbours in the picture. Returns (N, C, size, size) in [0, 1].
    """
    y, x = _source_points(boxes, size, angles, confined)
    height, width = pictures.sizes[:, 0, None, None], pictures.sizes[:, 1, None, None]
    inside = (y > -0.5) & (y < height - 0.5) & (x > -0.5) & (x < width - 0.5)
    top, left = y.floor(), x.floor()
    down, right = (y - top)[:, None], (x - left)[:, None]
    rows = [_clip(top, height), _clip(top + 1, height)]
    columns = [_clip(left, width), _clip(left + 1, width)]

    def pixels(row: Tensor, column: Tensor) -> Tensor:
        start = pictures.offsets[:, None, None] + (row * width + column) * pictures.channels
        channels = torch.arange(pictures.channels, device=start.device)[None, :, None, None]
        return pictures.buffer[start[:, None] + channels].to(down.dtype)

    above = pixels(rows[0], columns[0]).lerp(pixels(rows[0], columns[1]), right)
    below = pixels(rows[1], columns[0]).lerp(pixels(rows[1], columns[1]), right)
    return above.lerp(below, down) * (inside[:, None] / 255)


def _source_points(boxes: Tensor, size: int, angles: Tensor | None, confined: bool) -> tuple[Tensor, Tensor]:
    """Return the position in its picture of each output pixel: y and x, each (N, size, size)."""
    steps = (torch.arange(size, device=boxes.device, dtype=boxes.dtype) + 0.5) / size - 0.5
    height, width = boxes[:, 2, None, None], boxes[:, 3, None, None]
    centre_y = boxes[:, 0, None, None] + height / 2 - 0.5
    centre_x = boxes[:, 1, None, None] + width.abs() / 2 - 0.5
    dy = (height * steps[None, :, None]).expand(-1, size, size)
    dx = (width * steps[None, None, :]).expand(-1, size, size)
    if angles is None:
        if confined:
            reach_y, reach_x = (height - 1) / 2, (width.abs() - 1) / 2
            dy, dx = dy.clamp(-reach_y, reach_y), dx.clamp(-reach_x, reach_x)
        return centre_y + dy, centre_x + dx
    sine, cosine = angles.sin()[:, None, None], angles.cos()[:, None, None]
    return centre_y + cosine * dy + sine * dx, centre_x - sine * dy + cosine * dx


def _clip(index: Tensor, length: Tensor) -> Tensor:
    return torch.minimum(index.long().clamp(min=0), length - 1)
