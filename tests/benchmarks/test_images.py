"""Images of users: every kind of file and array becomes what a viewer shows, or one clear error."""

import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fairshot.benchmarks.images import PIXEL_LIMIT, as_pictures, decode_image, image_formats, read_image
from fairshot.errors import BadImage, BadInput

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = RGB[:, :, 0]


def _saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif", "a.tiff", "a.webp"])
def test_lossless_formats_give_the_same_pixels(tmp_path, name):
    path = _saved(Image.fromarray(RGB), tmp_path / name, **({"lossless": True} if "webp" in name else {}))
    np.testing.assert_array_equal(read_image(path), RGB)


def test_jpeg_is_near_and_cmyk_jpeg_too(tmp_path):
    smooth = np.full((16, 16, 3), (200, 120, 40), np.uint8)
    for mode in ("RGB", "CMYK"):
        path = _saved(Image.fromarray(smooth).convert(mode), tmp_path / f"{mode}.jpg", quality=95)
        assert np.abs(read_image(path).astype(int) - smooth).max() <= 4


def test_gif_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "blue")]
    path = _saved(frames[0], tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(read_image(path), np.full((4, 4, 3), (255, 0, 0)))


def test_grey_sixteen_bit_one_bit_and_float_files(tmp_path):
    cases = {
        "grey.png": (Image.fromarray(GREY), GREY),
        "deep.png": (Image.fromarray(GREY.astype(np.uint16) * 257), GREY),
        "deep.tif": (Image.fromarray(GREY.astype(np.uint16) * 257), GREY),
        "wide.tif": (Image.fromarray(GREY.astype(np.int32)), GREY),
        "float.tif": (Image.fromarray((GREY / 255).astype(np.float32)), GREY),
        "bit.png": (Image.fromarray(GREY > 127), np.where(GREY > 127, 255, 0)),
    }
    for name, (image, expected) in cases.items():
        path = _saved(image, tmp_path / name)
        np.testing.assert_array_equal(read_image(path, channels=1)[:, :, 0], expected, err_msg=name)
        np.testing.assert_array_equal(
            read_image(path), np.repeat(expected[:, :, None], 3, axis=2), err_msg=name
        )


def test_grey_of_a_colour_file_is_its_luma(tmp_path):
    path = _saved(Image.fromarray(RGB), tmp_path / "a.png")
    luma = np.asarray(Image.fromarray(RGB).convert("L"))
    np.testing.assert_array_equal(read_image(path, channels=1)[:, :, 0], luma)


def test_values_outside_every_range_are_refused_with_the_file(tmp_path):
    path = _saved(Image.fromarray(np.array([[-4.0, 9.0]], np.float32)), tmp_path / "odd.tif")
    with pytest.raises(BadImage, match=r"odd\.tif.*range"):
        read_image(path)


def test_transparency_lies_over_white(tmp_path):
    rgba = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 51]]], np.uint8)
    expected = [[[10, 20, 30], [255, 255, 255], [204, 204, 204]]]
    path = _saved(Image.fromarray(rgba), tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(path), expected)
    np.testing.assert_array_equal(as_pictures(rgba[None], 3)[0], expected)
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), mode="P")
    palette.putpalette([9, 8, 7, 1, 2, 3])
    path = _saved(palette, tmp_path / "p.png", transparency=1)
    np.testing.assert_array_equal(read_image(path), [[[9, 8, 7], [255, 255, 255]]])


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8, 5])
def test_exif_rotation_is_applied(tmp_path, suffix, orientation):
    tall = np.zeros((32, 16, 3), np.uint8)
    tall[:16] = 255  # white above black
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = _saved(Image.fromarray(tall), tmp_path / f"a.{suffix}", exif=exif)
    undo = {1: lambda a: a, 3: lambda a: a[::-1, ::-1], 6: lambda a: np.rot90(a, -1), 8: np.rot90}
    undo[5] = lambda a: a.transpose(1, 0, 2)
    assert np.abs(read_image(path).astype(int) - undo[orientation](tall)).max() < 30


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif"])
def test_truncated_and_garbled_files_are_one_error_naming_the_file(tmp_path, suffix):
    whole = _saved(
        Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)), tmp_path / f"a.{suffix}"
    )
    content = whole.read_bytes()
    for number, broken in enumerate(
        [b"", content[:20], content[: len(content) // 2], b"not an image at all"]
    ):
        path = tmp_path / f"broken{number}.{suffix}"
        path.write_bytes(broken)
        with pytest.raises(BadImage) as refused:
            read_image(path)
        assert refused.value.name == str(path)
        assert path.name not in refused.value.reason
        with pytest.raises(BadImage) as refused:
            decode_image(broken, "7.jpg")
        assert refused.value.name == "7.jpg"
        assert "0x" not in refused.value.reason  # nor where in memory it lies


@pytest.fixture
def without_heif(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    image_formats.cache_clear()
    yield
    image_formats.cache_clear()


def test_heic_needs_its_plug_in(tmp_path, without_heif):
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    with pytest.raises(BadImage, match=r"a\.heic.*pip install pillow-heif"):
        read_image(tmp_path / "a.heic")


def test_heic_is_read_with_its_plug_in(tmp_path):
    pytest.importorskip("pillow_heif", reason="the plug-in for HEIC is not installed")
    image_formats()
    smooth = np.full((64, 48, 3), (200, 120, 40), np.uint8)
    path = _saved(Image.fromarray(smooth), tmp_path / "a.heic", quality=95)
    assert np.abs(read_image(path).astype(int) - smooth).max() <= 4


def test_missing_files_and_folders_are_named(tmp_path):
    for path in (tmp_path / "nowhere.png", tmp_path):
        with pytest.raises(BadImage) as refused:
            read_image(path)
        assert refused.value.name == str(path)


def _png(width: int, height: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def _gif(width: int, height: int) -> bytes:
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    return screen + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\x00;"


def _bmp(width: int, height: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header


def test_huge_images_are_refused_in_bounded_memory(tmp_path):
    """The images are read under a limit on memory into which no decoded one would fit."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("a limit on memory above that in use needs Linux")
    side = int(PIXEL_LIMIT**0.5) + 1
    huge = {
        "bomb.png": _png(50_000, 50_000, bytes(50_000 * 600)),
        "above.png": _png(side, side, bytes(side * (side // 8 + 2))),
        "bomb.gif": _gif(50_000, 50_000),
        "bomb.bmp": _bmp(50_000, 50_000),
    }
    for name, content in huge.items():
        (tmp_path / name).write_bytes(content)
    script = """
        import resource, sys
        from fairshot.benchmarks.images import read_image
        from fairshot.errors import UserError
        in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + 60_000_000, -1))
        for path in sys.argv[1:]:
            try:
                read_image(path)
            except UserError as problem:
                print(problem)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *(tmp_path / name for name in huge)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(huge)
    for name, line in zip(huge, lines, strict=True):
        assert name in line
        assert "80,000,000 pixels" in line


def test_arrays_of_each_shape_become_pictures_without_a_copy_where_they_fit():
    batch = RNG.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    pictures = as_pictures(batch, 3)
    assert np.shares_memory(pictures.buffer, batch)
    np.testing.assert_array_equal(np.stack(list(pictures)), batch)
    grey = as_pictures(batch[..., 0], 3)
    np.testing.assert_array_equal(np.stack(list(grey)), np.repeat(batch[..., :1], 3, axis=-1))
    assert as_pictures(batch[..., :1], 1)[0].shape == (5, 6, 1)
    assert as_pictures(pictures, 1).channels == 1


def test_lists_may_mix_paths_arrays_and_sizes(tmp_path):
    path = _saved(Image.fromarray(RGB), tmp_path / "a.png")
    pictures = as_pictures([str(path), path, GREY[:2], np.dstack([RGB, np.full_like(GREY, 255)])], 3)
    assert [picture.shape for picture in pictures] == [(5, 7, 3), (5, 7, 3), (2, 7, 3), (5, 7, 3)]
    for index in (0, 1, 3):
        np.testing.assert_array_equal(pictures[index], RGB)
    np.testing.assert_array_equal(as_pictures(np.array([str(path)]), 3)[0], RGB)


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        (np.zeros((2, 4, 4, 3)), "X", r"float64.*\* 255"),
        (np.zeros((2, 4, 4), np.int64), "X", "int64"),
        (np.zeros((2, 3, 8, 8), np.uint8), "X", "channels come last"),
        (np.zeros((4, 4), np.uint8), "X", "shape"),
        (np.zeros((0, 4, 4, 3), np.uint8), "X", "no pixel"),
        ([np.zeros((4, 4), np.uint8), np.zeros((4, 4))], "X[1]", "float64"),
        ([], "X", "no images"),
        ("photo.jpg", "X", r"\['photo.jpg'\]"),
        (7, "X", "got int"),
    ],
)
def test_arrays_that_are_no_images_get_a_clear_error(given, name, reason):
    with pytest.raises(BadInput, match=reason) as refused:
        as_pictures(given, 3)
    assert refused.value.name == name


def test_one_colour_picture_is_not_taken_for_many_grey_ones():
    picture = np.zeros((28, 28, 3), dtype=np.uint8)
    with pytest.raises(BadImage, match=r"looks like one colour picture: give X\[None\]"):
        as_pictures(picture, 3)
    assert len(as_pictures(picture[None], 3)) == 1
    assert len(as_pictures(np.zeros((5, 28, 28), dtype=np.uint8), 1)) == 5


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F"])
def test_large_images_are_converted_strip_by_strip_to_the_same_pixels(monkeypatch, mode):
    if mode in ("I", "I;16", "F"):
        kinds = {"I": np.int32, "I;16": np.uint16, "F": np.float32}
        image = Image.fromarray(np.linspace(0, 250, 35).reshape(5, 7).astype(kinds[mode]))
    else:
        image = Image.fromarray(np.dstack([RGB, GREY])).convert(mode)
    for channels in (1, 3):
        whole = as_pictures([image], channels)[0]
        with monkeypatch.context() as patched:
            patched.setattr("fairshot.benchmarks.images.STRIP_PIXELS", 14)  # two rows
            np.testing.assert_array_equal(as_pictures([image], channels)[0], whole)
