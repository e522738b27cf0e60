"""Drawings of the embedded benchmark as image files, to try a store with."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from fairshot.benchmarks import load_stream
from fairshot.benchmarks.pictures import Bytes
from fairshot.benchmarks.stream import LabelledPictures, StreamSettings
from fairshot.files import write_atomically
from fairshot.teaching.folders import check_free


def write_doodles(folder: Path, photos: int = 5) -> int:
    """Write `teach/<class>/` of classes that come after the base session, and `test/<class>/` of all.

    Test drawings are the second half of each class's: the first half is held out for choosing confidence.
    Dark ink on light paper, as people draw. Returns how many files were written.
    """
    check_free(folder)
    stream = load_stream("doodles", StreamSettings(shots=photos))
    written = 0
    for number, session in enumerate(stream.sessions):
        for label in session.classes:
            name = stream.class_names[label]
            test = _of_class(session.test, label)
            parts = {"test": test[(len(test) + 1) // 2 :]}
            if number > 0:
                parts["teach"] = _of_class(session.train, label)
            for part, drawings in parts.items():
                for index, drawing in enumerate(drawings, start=1):
                    write_atomically(folder / part / name / f"{index:02}.png", _png(255 - drawing))
                    written += 1
    return written


def _of_class(images: LabelledPictures, label: int) -> list[Bytes]:
    return list(images.pictures.take(np.flatnonzero(images.labels == label)))


def _png(picture: Bytes) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture[:, :, 0]).save(file, "PNG")
    return file.getvalue()
