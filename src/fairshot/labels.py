"""Labels of users, which may be of any hashable type; methods use class ids instead."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairshot.errors import BadInput

STORABLE = (str, int, float, bool, type(None))  # types that JSON keeps; and tuples of these


def as_labels(y: Any) -> list[Hashable]:
    """Convert labels of users, any one-dimensional sequence, array or series, to a list.

    Numbers and strings of numpy become Python's own, so that the same label is equal wherever it comes from.
    As in a dictionary, equal labels (1 and 1.0 and True) are the same label. A column (N, 1) is taken with
    scikit-learn's warning; numbers that are no labels, because they are not whole, are refused.
    """
    if y is None:
        raise BadInput("y", "this estimator requires y to be passed, but the target y is None")
    if hasattr(y, "__array__") and not isinstance(y, Iterable):
        y = np.asarray(y)
    if isinstance(y, str | bytes) or not isinstance(y, Iterable):
        raise BadInput("y", f"expected a sequence of labels, one per image, got {y!r}")
    shape = tuple(getattr(y, "shape", (0,)))
    if len(shape) == 2 and shape[1] == 1:
        y, shape = _as_row(y), shape[:1]
    if len(shape) != 1:
        raise BadInput("y", f"expected one label per image, got the shape {shape}")
    labels = [item.item() if isinstance(item, np.generic) else item for item in _items(y)]
    for index, label in enumerate(labels):
        if not _is_hashable(label):
            raise BadInput(f"y[{index}]", f"{label!r} cannot be a label, because it is not hashable")
        if label != label:
            raise BadInput(f"y[{index}]", f"{label!r} cannot be a label, because it does not equal itself")
    _check_discrete(labels)
    return labels


def _as_row(column: Any) -> Any:
    from sklearn.exceptions import DataConversionWarning

    warnings.warn(
        "A column-vector y was passed when a 1d array was expected: labels (N,) are expected, not (N, 1)",
        DataConversionWarning,
        stacklevel=4,
    )
    return np.asarray(column).reshape(-1)


def _check_discrete(labels: Sequence[Hashable]) -> None:
    """Refuse measurements in place of labels: numbers alone, some of which are not whole."""
    if not all(isinstance(label, int | float) for label in labels):
        return
    for index, label in enumerate(labels):
        if isinstance(label, float) and not label.is_integer():
            raise BadInput(
                f"y[{index}]",
                f"Unknown label type: {label!r} is a continuous value, and no label; give whole numbers or "
                "strings",
            )


def _items(y: Any) -> Iterable[Any]:
    """Return the items as Python objects, from arrays, tensors and series too."""
    return y.tolist() if hasattr(y, "tolist") else list(y)


def _is_hashable(label: Any) -> bool:
    try:
        hash(label)
    except TypeError:  # also a tuple with a list inside
        return False
    return True


def distinct(labels: Iterable[Hashable]) -> list[Hashable]:
    """Return each label once, in ascending order if they can be compared, else as they first appear."""
    found = list(dict.fromkeys(labels))
    try:
        return sorted(found)  # type: ignore[type-var]
    except TypeError:
        return found


def as_array(labels: Sequence[Hashable]) -> npt.NDArray[Any]:
    """Return labels as an array of their own type or, where that would change them, of objects."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], str | int | float):
        array = np.array(labels)
        kept = array.tolist()
        if kept == list(labels) and type(kept[0]) is type(labels[0]):  # not 2**63, which would become a float
            return array
    array = np.empty(len(labels), dtype=object)
    for index, label in enumerate(labels):  # a tuple assigned to a slice would become a row
        array[index] = label
    return array


def to_json(label: Any) -> Any:
    """Return a JSON value from which `from_json` restores a label with its type."""
    if type(label) in STORABLE:
        return label
    if type(label) is tuple:
        return {"tuple": [to_json(part) for part in label]}
    raise BadInput(
        f"label {label!r}",
        f"its type {type(label).__name__} cannot be saved; use strings, numbers, bools, None, or tuples of "
        "these",
    )


def from_json(value: Any) -> Hashable:
    """Restore a label from what `to_json` made of it."""
    if isinstance(value, dict):
        return tuple(from_json(part) for part in value["tuple"])
    if type(value) not in STORABLE:
        raise ValueError(f"{value!r} is not a stored label")
    return value  # type: ignore[no-any-return]
