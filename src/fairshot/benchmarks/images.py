"""Images as users have them, in files of several formats and arrays of several shapes, as uint8 pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from fairshot.benchmarks.pictures import Bytes, Pictures
from fairshot.errors import BadImage, BadInput

PIXEL_LIMIT = 80_000_000  # of one image, judged by its header before a pixel is decoded
SCAN_LIMIT = 64  # of one JPEG; programs write about ten, and each may take as long as the whole image
MARKER_LIMIT = 10_000  # of one JPEG, up to its last scan
STRIP_PIXELS = 2**20  # converted at once, which bounds the memory of conversions
JPEG_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")  # the others belong to the data of a scan
JPEG_SCAN, JPEG_END = 0xDA, 0xD9
JPEG_BARE = (0x01, 0xD8)  # markers that nothing belongs to
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".heic", ".heif"})


def is_image_name(name: str) -> bool:
    """Say whether a file counts as an image: its suffix is known and it is not hidden."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def image_files(folder: Path) -> Iterator[Path]:
    """Go through all image files below a folder, in a fixed order."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(files) if is_image_name(name))


def read_image(path: str | os.PathLike[str], channels: int = 3) -> Bytes:
    """Read an image file as uint8 (H, W, channels), as a viewer would show it.

    Turned upright by its EXIF tag, transparency over white, the first frame of an animation, 16-bit and
    floating-point grey brought to 0 .. 255. A file that cannot be read, or declares more than `PIXEL_LIMIT`
    pixels, is a `BadImage` that names it.
    """
    return _read(path, str(path), channels, PIXEL_LIMIT)


def decode_image(content: bytes, name: str, channels: int = 3, pixel_limit: int = PIXEL_LIMIT) -> Bytes:
    """Decode the content of an image file as `read_image` does; errors name it by `name`."""
    return _read(BytesIO(content), name, channels, pixel_limit)


@dataclass(frozen=True)
class ImageHeader:
    """What an image file says about itself before it is decoded."""

    width: int
    height: int
    scans: int  # passes over the pixels that decoding takes; more than one in some JPEGs only

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height


def read_header(content: bytes, name: str, pixel_limit: int = PIXEL_LIMIT) -> ImageHeader:
    """Read the header of an image file, with the errors of `decode_image` as far as it shows them."""
    with _opened(BytesIO(content), name, pixel_limit) as image:
        return _header(image)


def _read(file: str | os.PathLike[str] | BytesIO, name: str, channels: int, pixel_limit: int) -> Bytes:
    with _opened(file, name, pixel_limit) as image:
        ImageOps.exif_transpose(image, in_place=True)
        return _converted(image, channels)


@contextmanager
def _opened(file: str | os.PathLike[str] | BytesIO, name: str, pixel_limit: int) -> Iterator[Image.Image]:
    """Open an image file whose header is within the limits; whatever fails is an error that names it."""
    too_large = f"but at most {pixel_limit:,} pixels are decoded; give a smaller version of it"
    try:
        with Image.open(file, formats=image_formats()) as image:
            header = _header(image)
            if header.pixels > pixel_limit:
                raise BadImage(name, f"{image.width} x {image.height} pixels, {too_large}")
            if header.scans > SCAN_LIMIT:
                raise BadImage(
                    name,
                    f"a JPEG of more than {SCAN_LIMIT} scans, which would take very long to decode; save it "
                    "again with another program",
                )
            yield image
    except BadImage:
        raise
    except FileNotFoundError:
        raise BadImage(name, "there is no such file or folder") from None
    except Image.DecompressionBombError as problem:
        raise BadImage(name, f"{problem}, {too_large}") from None
    except MemoryError:
        raise BadImage(name, "decoding it needs too much memory; give a smaller version of it") from None
    except Exception as problem:  # a hostile file makes decoders fail in any way at all
        heic = Path(name).suffix.lower() in {".heic", ".heif"} and "HEIF" not in image_formats()
        advice = "; HEIC needs a plug-in: pip install pillow-heif" if heic else ""
        raise BadImage(
            name, f"this file cannot be read as an image ({_reason(problem)}){advice}"
        ) from problem


def _header(image: Image.Image) -> ImageHeader:
    scans = 1
    file: IO[bytes] | None = getattr(image, "fp", None)
    if image.format in ("JPEG", "MPO") and file is not None:
        position = file.tell()
        file.seek(0)
        scans = _count_scans(file.read())
        file.seek(position)
    return ImageHeader(image.width, image.height, scans)


def _count_scans(content: bytes) -> int:
    """Count the scans of a JPEG up to its end; one more than the limit if there are too many, or markers."""
    scans, position = 0, 0
    for _ in range(MARKER_LIMIT):
        found = JPEG_MARKER.search(content, position)
        if found is None or found[1][0] == JPEG_END or scans > SCAN_LIMIT:
            return scans
        position = found.end()
        if found[1][0] not in JPEG_BARE:
            position += int.from_bytes(content[position : position + 2])  # its length
        scans += found[1][0] == JPEG_SCAN
    return SCAN_LIMIT + 1


def _reason(problem: Exception) -> str:
    """Say why a file cannot be read, without its name, which the message has already."""
    if isinstance(problem, UnidentifiedImageError):
        return f"it is damaged, or none of {', '.join(image_formats())}"
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


@cache
def image_formats() -> tuple[str, ...]:
    """Return the formats that are tried: few, because hostile files attack decoders."""
    formats = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
    try:
        import pillow_heif
    except ImportError:
        return formats
    pillow_heif.register_heif_opener()
    return (*formats, "HEIF")


def _converted(image: Image.Image, channels: int) -> Bytes:
    """Convert a decoded image to uint8 (H, W, channels), strip by strip: a copy of the whole is large."""
    rows = max(STRIP_PIXELS // max(image.width, 1), 1)
    scale = _grey_scale(image)
    if rows >= image.height:
        return with_channels(_eight_bit(image, scale), channels)
    converted = np.empty((image.height, image.width, channels), np.uint8)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        converted[top : top + rows] = with_channels(_eight_bit(strip, scale), channels)
    return converted


def _grey_scale(image: Image.Image) -> float | None:
    """Return the value of white in a grey image of more than 8 bits per pixel; none of other images."""
    if image.mode.startswith("I;16"):
        return 65535.0
    if image.mode not in ("I", "F"):
        return None
    most = np.max(image.getextrema())
    if image.mode == "I":  # 32 bits per pixel, of which files use 8 or 16
        return 255.0 if most <= 255 else 65535.0
    return 1.0 if most <= 1 else 255.0


def _eight_bit(image: Image.Image, scale: float | None) -> Bytes:
    """Convert to uint8 (H, W, C) with 1 (grey), 3 (RGB) or 4 (RGBA) channels."""
    if scale is not None:
        return _to_bytes(np.asarray(image).astype(np.float64) / scale)
    if image.has_transparency_data:
        return np.asarray(image.convert("RGBA"))
    if image.mode in {"1", "L"}:
        return np.asarray(image.convert("L"))[:, :, None]
    return np.asarray(image.convert("RGB"))


def _to_bytes(values: npt.NDArray[np.float64]) -> Bytes:
    """Convert grey values of 0 .. 1 to uint8."""
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        raise ValueError("grey values outside every usual range: 0..1, 0..255 or 0..65535")
    return np.rint(values * 255).astype(np.uint8)[:, :, None]


def with_channels(images: Bytes, channels: int) -> Bytes:
    """Convert uint8 (..., C) from 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA) channels to 1 or 3."""
    if channels not in (1, 3):
        raise ValueError(f"pictures have 1 or 3 channels, not {channels}")
    given = images.shape[-1]
    if given in (2, 4):
        alpha = images[..., -1:].astype(np.uint16)  # wide enough: no sum exceeds 255 * 255 + 127
        over_white = images[..., :-1] * alpha + 255 * (255 - alpha)
        images = ((over_white + 127) // 255).astype(np.uint8)
        given -= 1
    if given == channels:
        return images
    if given == 1:
        return np.repeat(images, 3, axis=-1)
    weights = np.array([19595, 38470, 7471], dtype=np.uint32)  # ITU-R 601 luma, as viewers use, times 65536
    return ((images @ weights + 32768) >> 16).astype(np.uint8)[..., None]


def as_pictures(X: Any, channels: int, prepare: Callable[[Bytes], Bytes] | None = None) -> Pictures:
    """Convert images as users have them to pictures.

    `X` is a uint8 array (N, H, W) or (N, H, W, C), or a sequence whose items are file paths or uint8 arrays
    (H, W) or (H, W, C), of any sizes. Grey, RGB and RGBA are converted to the channels asked for. `prepare`,
    for example a resize, is applied to each image as it is read, so that large ones are not all in memory.
    """
    if isinstance(X, Pictures) and prepare is None and X.channels == channels:
        return X
    if isinstance(X, Pictures):
        X = list(X)
    if isinstance(X, str | os.PathLike):
        raise BadInput("X", f"it is the single path {str(X)!r}; give a list of paths: [{str(X)!r}]")
    if not hasattr(X, "__len__") or not isinstance(X, Iterable):
        raise BadInput(
            "X", f"expected an array of images or a list of images or paths, got {type(X).__name__}"
        )
    if not isinstance(X, Sequence):
        X = np.asarray(X) if hasattr(X, "__array__") else list(X)
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUS":
        array = with_channels(_checked(X, "X", 4), channels)
        return Pictures.from_list(list(map(prepare, array))) if prepare else Pictures.from_array(array)
    if len(X) == 0:
        raise BadInput("X", "it holds no images")
    images = (_one(item, f"X[{index}]", channels) for index, item in enumerate(X))
    return Pictures.from_list(list(map(prepare, images) if prepare else images))


def channels_of(X: Any) -> int:
    """Return how many channels images need: 1 if all are grey arrays, else 3 (also for files)."""
    if isinstance(X, Pictures):
        return X.channels
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) in (3, 4):
        return 1 if len(shape) == 3 or shape[-1] < 3 else 3
    shapes: list[tuple[int, ...]] = [getattr(x, "shape", ()) for x in X] if isinstance(X, Iterable) else []
    return 1 if shapes and all(len(s) == 2 or (len(s) == 3 and s[-1] < 3) for s in shapes) else 3


def _one(item: Any, name: str, channels: int) -> Bytes:
    if isinstance(item, str | os.PathLike):
        return read_image(item, channels)
    if isinstance(item, Image.Image):
        try:
            return _converted(item, channels)
        except ValueError as problem:
            raise BadImage(name, f"this image cannot be used ({problem})") from problem
    return with_channels(_checked(np.asarray(item), name, 3), channels)


def _checked(array: npt.NDArray[Any], name: str, dimensions: int) -> Bytes:
    """Return uint8 images with a channel axis, or say what is wrong with them."""
    expected = "(N, H, W) or (N, H, W, C)" if dimensions == 4 else "(H, W) or (H, W, C)"
    if array.dtype != np.uint8:
        advice = "give values 0..255 as uint8"
        if array.dtype.kind == "f":
            advice += f"; if they lie in 0..1: ({name} * 255).round().astype(numpy.uint8)"
        raise BadImage(name, f"images are uint8 {expected}; this has dtype {array.dtype}: {advice}")
    if dimensions == 4 and array.ndim == 3 and array.shape[-1] in (3, 4) and min(array.shape[:2]) > 4:
        raise BadImage(
            name,
            f"images are uint8 {expected}; this has shape {array.shape}, which looks like one colour "
            f"picture: give {name}[None]",
        )
    if array.ndim == dimensions - 1:
        array = array[..., None]
    if array.ndim != dimensions:
        raise BadImage(name, f"images are uint8 {expected}; this has shape {array.shape}")
    if array.size == 0:
        raise BadImage(name, f"there is no pixel in an array of shape {array.shape}")
    if array.shape[-1] not in (1, 2, 3, 4):
        advice = "; channels come last: move axis 1 to the end" if array.shape[-3] in (1, 3, 4) else ""
        raise BadImage(name, f"images have 1 to 4 channels, this has shape {array.shape}{advice}")
    return array
