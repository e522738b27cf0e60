"""From an export of labelled images to `photos/<class>/`, which a store is taught from."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from PIL import Image

from fairshot.benchmarks.images import is_image_name, read_image
from fairshot.benchmarks.pictures import Bytes
from fairshot.errors import BadImage, CannotWrite, PathUnusable, UserError
from fairshot.files import write_atomically
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.errors import ExportRefused
from fairshot.teaching.label_exports import Box, LabelledImage, read_export
from fairshot.teaching.names import folder_name

MARGIN = 0.1  # of the width and height of a box, added on each side
SMALLEST = 8  # pixels per side of a crop that is worth keeping
QUALITY = 95  # of the JPEGs that crops are written as
MOST_BYTES = 2**28  # of an image file
MOST_BOXES = 1000  # of an image: each becomes a file that may be as large as the image
SAME_SHAPE = 0.02  # by which the sides of an image may relate otherwise than in the export
WITHOUT_LOSS = {".png", ".bmp", ".gif", ".tif", ".tiff"}  # crops of which are PNGs
UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # what Label Studio puts before the names of uploaded files


@dataclass
class ImportReport:
    """What was written, and what was not."""

    photos: Counter[str] = field(default_factory=Counter)  # by class: its photos, with those there before
    written: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # images of the export, and why
    renamed: dict[str, str] = field(default_factory=dict)  # classes whose folder has another name


def import_photos(
    export: str | Path,
    out: str | Path,
    images: str | Path | None = None,
    margin: float = MARGIN,
    reporter: Reporter = SILENT,
) -> ImportReport:
    """Write the labelled images of an export to `out/<class>/`: whole ones as they are, and boxes cut out.

    Images are looked for in the folder of the export, or in `images`, by path and by name. What was written
    before is not written again.
    """
    export, out = Path(export), Path(out)
    labelled = read_export(export)
    finder = _Finder(Path(images) if images is not None else export.parent)
    report = ImportReport()
    with reporter.track("importing", len(labelled)) as advance:
        for image in labelled:
            try:
                for name, target, content in _photos_of(image, finder.find(image.reference), margin):
                    _write(out, name, target, content, report)
                if image.passed_over:
                    report.skipped[image.reference] = f"{image.passed_over} labels that are no class or box"
            except CannotWrite:  # neither could the others be
                raise
            except UserError as problem:
                reason = problem.reason if isinstance(problem, BadImage) else str(problem)
                report.skipped[image.reference] = reason
            except OSError as problem:  # it may not be read, or its name is none that a file can have
                report.skipped[image.reference] = problem.strerror or str(problem)
            advance()
    if not report.photos:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(report.skipped.items())[:3])
        raise ExportRefused(export, reasons or "it holds no labelled image")
    return report


def _photos_of(image: LabelledImage, path: Path, margin: float) -> Iterator[tuple[str, str, bytes | Bytes]]:
    """Go through the photos of an image: class, file name, and content of the file or pixels."""
    stem = folder_name(path.stem)[:60]
    if len(image.classes) > 1:
        raise BadImage(image.reference, f"it is of several classes: {', '.join(sorted(image.classes))}")
    if path.stat().st_size > MOST_BYTES:
        raise BadImage(image.reference, f"it has more than {MOST_BYTES:,} bytes")
    for name in image.classes:
        yield name, f"{stem}-{_short(image.reference)}{path.suffix.lower()}", path.read_bytes()
    if not image.boxes:
        return
    if len(image.boxes) > MOST_BOXES:
        raise BadImage(
            image.reference,
            f"it has {len(image.boxes):,} boxes; at most {MOST_BOXES:,} are cut out of an image",
        )
    pixels = read_image(path)
    _check_shape(image, pixels)
    suffix = ".png" if path.suffix.lower() in WITHOUT_LOSS else ".jpg"
    for name, box in image.boxes:
        crop = cut_out(pixels, box, margin)
        if min(crop.shape[:2]) >= SMALLEST:
            yield name, f"{stem}-{_short(image.reference, *box)}{suffix}", crop
        else:
            image.passed_over += 1


def _check_shape(image: LabelledImage, pixels: Bytes) -> None:
    """Refuse an image that is turned or cropped otherwise than the one the boxes were drawn on."""
    if image.size is None:
        return
    (width, height), (rows, columns) = image.size, pixels.shape[:2]
    if abs(columns / rows / (width / height) - 1) > SAME_SHAPE:
        raise BadImage(
            image.reference,
            f"it has {columns} x {rows} pixels, and its boxes were drawn on {width} x {height}",
        )


def cut_out(pixels: Bytes, box: Box, margin: float = MARGIN) -> Bytes:
    """Return the pixels of a box with a margin, as far as the image goes; none if it lies outside."""
    rows, columns = pixels.shape[:2]
    across, down = margin * (box.right - box.left), margin * (box.bottom - box.top)
    left, right = (_within(share * columns, columns) for share in (box.left - across, box.right + across))
    top, bottom = (_within(share * rows, rows) for share in (box.top - down, box.bottom + down))
    return pixels[top:bottom, left:right]


def _within(position: float, most: int) -> int:
    return round(min(max(position, 0), most))


def _short(*parts: object) -> str:
    """Return eight characters that tell images and boxes of the same name apart."""
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:8]


def _write(out: Path, name: str, target: str, content: bytes | Bytes, report: ImportReport) -> None:
    """Write a photo of a class, unless it is there; its folder lies inside `out` whatever its name."""
    inside = folder_name(name)
    if inside != name:
        report.renamed[name] = inside
    path = out / inside / target
    if not path.parent.resolve().is_relative_to(out.resolve()):
        raise PathUnusable(path.parent, f"is a link that leads out of {out}")
    report.photos[inside] += 1
    if path.exists():
        return
    if not isinstance(content, bytes):
        file = io.BytesIO()
        Image.fromarray(content).save(file, "PNG" if path.suffix == ".png" else "JPEG", quality=QUALITY)
        content = file.getvalue()
    write_atomically(path, content)
    report.written += 1


class _Finder:
    """Finds the images of an export in a folder, and nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, reference: str) -> Path:
        """Return the file of a path or an address: the longest end of it that is there, or its name alone."""
        parts = self._parts(reference)
        if not parts or not is_image_name(parts[-1]):
            raise BadImage(reference, "it is no image file")
        for start in range(len(parts)):
            path = self.folder.joinpath(*parts[start:])
            if path.is_file():
                return self._inside(path)
        for name in (parts[-1], UPLOADED.sub("", parts[-1])):
            if (found := self._by_name.get(name)) is not None:
                return self._inside(found)
            if name in self._by_name:
                raise BadImage(reference, f"several files in {self.folder} are called {name}")
        raise BadImage(reference, f"it is not in {self.folder}")

    def _parts(self, reference: str) -> list[str]:
        """Return the parts of a path or an address that can be those of a path inside the folder."""
        try:
            address = urlsplit(reference.replace("\\", "/"))
        except ValueError:
            return []
        local = parse_qs(address.query).get("d") if address.path.endswith("local-files/") else None
        path = local[0] if local else unquote(address.path)
        parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..", ".")]
        return [] if "\0" in path else parts

    def _inside(self, path: Path) -> Path:
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise PathUnusable(path, f"is a link that leads out of {self.folder}")
        if not path.is_file():  # reading a pipe would wait for ever
            raise PathUnusable(path, "is no file")
        return path

    @cached_property
    def _by_name(self) -> dict[str, Path | None]:
        """The image files below the folder by their names; none where several have one."""
        names: dict[str, Path | None] = {}
        for parent, folders, files in os.walk(self.folder):
            folders.sort()
            for name in filter(is_image_name, files):
                names[name] = None if name in names else Path(parent, name)
        return names
