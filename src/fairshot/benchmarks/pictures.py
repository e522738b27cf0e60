"""Pictures: uint8 images of equal or different sizes in one flat buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pictures:
    """N uint8 pictures (height, width, channels) in one flat buffer.

    The buffer may be a memory-mapped cache on disk. A selection of pictures copies no pixels: it has other
    offsets into the same buffer. All pictures have the same number of channels; their sizes may differ.
    """

    buffer: Bytes  # flat
    offsets: Ints  # (N,) where each picture starts in the buffer
    sizes: Ints  # (N, 2) height and width
    channels: int

    @classmethod
    def from_array(cls, array: Bytes) -> Pictures:
        """Make pictures of one size from an array (N, H, W) or (N, H, W, C)."""
        if array.dtype != np.uint8 or array.ndim not in (3, 4):
            raise ValueError(
                f"expected pictures as uint8 (N, H, W) or (N, H, W, C); got {array.dtype} {array.shape}"
            )
        count, height, width = array.shape[:3]
        channels = array.shape[3] if array.ndim == 4 else 1
        return cls(
            buffer=np.ascontiguousarray(array).reshape(-1),
            offsets=np.arange(count, dtype=np.int64) * (height * width * channels),
            sizes=np.tile(np.array([[height, width]], dtype=np.int64), (count, 1)),
            channels=channels,
        )

    @classmethod
    def from_list(cls, images: Sequence[Bytes]) -> Pictures:
        """Make pictures of any sizes from arrays (H, W, C) with the same number of channels."""
        channels = {image.shape[2] for image in images}
        if len(channels) != 1:
            raise ValueError(f"pictures of one set share their channels; got {sorted(channels)}")
        lengths = np.array([image.size for image in images], dtype=np.int64)
        return cls(
            buffer=np.concatenate([np.ascontiguousarray(image).reshape(-1) for image in images]),
            offsets=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
            sizes=np.array([image.shape[:2] for image in images], dtype=np.int64),
            channels=channels.pop(),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Pictures]) -> Pictures:
        """Concatenate selections; pixels are copied only if their buffers differ."""
        if any(part.buffer is not parts[0].buffer for part in parts):
            return cls.from_list([picture for part in parts for picture in part])
        return cls(
            buffer=parts[0].buffer,
            offsets=np.concatenate([part.offsets for part in parts]),
            sizes=np.concatenate([part.sizes for part in parts]),
            channels=parts[0].channels,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> Bytes:
        """Return one picture as (H, W, C)."""
        height, width = self.sizes[index]
        start = self.offsets[index]
        flat = self.buffer[start : start + height * width * self.channels]
        return flat.reshape(int(height), int(width), self.channels)

    def __iter__(self) -> Iterator[Bytes]:
        return (self[index] for index in range(len(self)))

    def take(self, indices: npt.ArrayLike) -> Pictures:
        """Select pictures, in the order given, without copying pixels."""
        index = np.asarray(indices, dtype=np.int64)
        return Pictures(self.buffer, self.offsets[index], self.sizes[index], self.channels)

    def compact(self) -> Pictures:
        """Copy the selected pixels into a buffer of their own, before it is copied to a device."""
        if len(self) == 0:
            return Pictures(np.empty(0, np.uint8), self.offsets, self.sizes, self.channels)
        return Pictures.from_list(list(self))

    @property
    def nbytes(self) -> int:
        """Bytes of the selected pixels."""
        return int(np.prod(self.sizes, axis=1).sum()) * self.channels
