"""Confusion matrices: from which every metric is derived."""

from __future__ import annotations

import numpy as np

from fairshot.benchmarks.pictures import Ints


def confusion_matrix(labels: Ints, answers: Ints, classes: int) -> Ints:
    """Count the images of each true class (rows) by the class that was answered (columns)."""
    for name, ids in (("labels", labels), ("answers", answers)):
        if len(ids) and not (ids.min() >= 0 and ids.max() < classes):
            raise ValueError(f"{name} lie in {ids.min()} .. {ids.max()}; expected 0 .. {classes - 1}")
    if len(labels) != len(answers):
        raise ValueError(f"{len(labels)} labels but {len(answers)} answers")
    pairs = labels.astype(np.int64) * classes + answers
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes).astype(np.int64)
