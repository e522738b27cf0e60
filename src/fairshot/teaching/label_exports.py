"""What programs for labelling export: Label Studio's JSON and COCO's, as labels of images.

Label Studio: choices about an image, rectangles with labels, and choices about single rectangles. COCO:
annotations with a box, and annotations without one, which are about the whole image. What else there is,
polygons, masks and captions for example, is counted and passed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from fairshot.documents import first_problem, load_foreign_json
from fairshot.teaching.errors import ExportRefused


class Box(NamedTuple):
    """A rectangle of an image, in shares of its width and height."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass
class LabelledImage:
    """An image of an export: the classes of the whole, and the boxes with their classes."""

    reference: str  # a path or address, as the export has it
    size: tuple[int, int] | None = None  # width and height that the boxes were drawn on, if known
    classes: set[str] = field(default_factory=set)
    boxes: dict[tuple[str, Box], None] = field(default_factory=dict)  # in their order, each once
    passed_over: int = 0  # labels of a kind that is not read


def read_export(path: Path) -> list[LabelledImage]:
    """Read the labels of an export; images without any are left out."""
    document = load_foreign_json(path)
    try:
        if isinstance(document, dict):
            images = list(_coco(_CocoExport.model_validate(document)))
        else:
            images = [_label_studio(task) for task in _TASKS.validate_python(document)]
    except ValidationError as problem:
        raise ExportRefused(
            path, f"it is neither COCO's nor Label Studio's JSON: {first_problem(problem)}"
        ) from None
    return [image for image in images if image.classes or image.boxes or image.passed_over]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


# COCO

Id = int | str
Name = Annotated[str, Field(min_length=1, max_length=1000)]
Side = Annotated[float, Field(ge=-1e9, le=1e9)]
Pixels = Annotated[int, Field(ge=1, le=10**9)]


class _CocoImage(_Part):
    id: Id
    file_name: Name
    width: Pixels | None = None
    height: Pixels | None = None


class _CocoCategory(_Part):
    id: Id
    name: Name


class _CocoAnnotation(_Part):
    image_id: Id
    category_id: Id
    bbox: Annotated[tuple[Side, Side, Side, Side] | None, BeforeValidator(lambda given: given or None)] = None
    iscrowd: int = 0


class _CocoExport(_Part):
    images: list[_CocoImage]
    categories: list[_CocoCategory]
    annotations: list[_CocoAnnotation]


def _coco(export: _CocoExport) -> Iterator[LabelledImage]:
    names = {category.id: category.name for category in export.categories}
    by_image: dict[Id, list[_CocoAnnotation]] = {}
    for annotation in export.annotations:
        by_image.setdefault(annotation.image_id, []).append(annotation)
    for image in export.images:
        known = image.width and image.height
        labelled = LabelledImage(image.file_name, (image.width or 0, image.height or 0) if known else None)
        for annotation in by_image.get(image.id, ()):
            name = names.get(annotation.category_id)
            if name is None or annotation.iscrowd or (annotation.bbox and not known):
                labelled.passed_over += 1
            elif annotation.bbox is None:
                labelled.classes.add(name)
            else:
                left, top, width, height = annotation.bbox
                corners = [(left, top), (left + width, top + height)]
                labelled.boxes[name, _around(corners, *(labelled.size or (1, 1)))] = None
        yield labelled


# Label Studio


class _Value(_Part):
    x: Side | None = None  # the box: percent of the image
    y: Side | None = None
    width: Side | None = None
    height: Side | None = None
    rotation: Side = 0  # degrees, clockwise, around the upper left corner
    choices: list[Name] = []
    rectanglelabels: list[Name] = []


class _Region(_Part):
    id: Id | None = None
    type: str = ""
    value: _Value = _Value()
    original_width: Pixels | None = None
    original_height: Pixels | None = None


class _Annotation(_Part):
    result: list[_Region] = []
    was_cancelled: bool = False


class _Task(_Part):
    data: dict[str, Any]
    annotations: list[_Annotation] = []
    completions: list[_Annotation] = []  # what annotations were called in early versions


_TASKS = TypeAdapter(list[_Task])


def _label_studio(task: _Task) -> LabelledImage:
    texts = {key: value for key, value in task.data.items() if isinstance(value, str)}
    labelled = LabelledImage(texts.get("image") or next(iter(texts.values()), ""))
    for annotation in (*task.annotations, *task.completions):
        if annotation.was_cancelled:
            continue
        regions: dict[object, list[_Region]] = {}
        for number, region in enumerate(annotation.result):
            regions.setdefault(region.id or number, []).append(region)
        for parts in regions.values():
            _add_region(labelled, parts)
    return labelled


def _add_region(labelled: LabelledImage, parts: list[_Region]) -> None:
    """Add what was said about one region, or about the whole image if none of the parts has a box."""
    read = [part for part in parts if part.type in ("choices", "rectanglelabels", "rectangle")]
    labelled.passed_over += len(parts) - len(read)
    if not read:
        return
    names = {name for part in read for name in (*part.value.rectanglelabels, *part.value.choices)}
    drawn = next((part for part in read if part.type != "choices"), None)
    box = None if drawn is None else _percent_box(drawn)
    if not names or (drawn is not None and box is None):
        labelled.passed_over += 1
    elif box is None:
        labelled.classes |= names
    else:
        labelled.boxes |= {(name, box): None for name in sorted(names)}


def _percent_box(region: _Region) -> Box | None:
    """Return the upright box around a rectangle that may be rotated."""
    value = region.value
    if value.x is None or value.y is None or value.width is None or value.height is None:
        return None
    if value.rotation and not (region.original_width and region.original_height):
        return None  # what a right angle is in percent depends on the size
    across, down = (region.original_width or 100) / 100, (region.original_height or 100) / 100
    cosine, sine = math.cos(math.radians(value.rotation)), math.sin(math.radians(value.rotation))
    corners = []
    width, height = value.width * across, value.height * down
    for x, y in ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height)):
        corners.append((value.x * across + x * cosine - y * sine, value.y * down + x * sine + y * cosine))
    return _around(corners, 100 * across, 100 * down)


def _around(corners: list[tuple[float, float]], width: float, height: float) -> Box:
    """Return the upright box around some points of an image of this size."""
    xs, ys = [x / width for x, _ in corners], [y / height for _, y in corners]
    return Box(min(xs), min(ys), max(xs), max(ys))
