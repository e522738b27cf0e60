"""Figures of single classes: confusion matrices with their base and novel blocks, gain and loss a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fairshot.reporting.groups import Group
from fairshot.reporting.style import BASE_COLOUR, INK, MUTED, NOVEL_COLOUR, house_style, panel_grid

Floats = NDArray[np.float64]
NAMED_CLASSES = 75  # more class names than these do not fit under bars
EXTREMES = 4  # classes that a caption names on either side


def shares(group: Group, t: int) -> Floats:
    """Rows of the confusion matrix after session t as shares of the class's test images, mean over seeds."""
    confusions = np.stack([result.confusion_arrays[t] for result in group.alike]).astype(np.float64)
    totals = confusions.sum(axis=2, keepdims=True)
    rows: Floats = np.divide(confusions, totals, where=totals > 0, out=np.zeros_like(confusions))
    mean: Floats = rows.mean(axis=0)
    return mean


def base_classes(group: Group) -> int:
    """How many classes session 0 introduced."""
    return len(group.results[0].sessions[0])


def confusion_pixels(group: Group, t: int) -> NDArray[np.uint8]:
    """One RGBA pixel a pair of classes: the colour says base or novel class, the opacity the share.

    The root of the share lets single wrong answers be seen; nothing is drawn where nothing was answered.
    """
    matrix = shares(group, t)
    pixels = np.zeros((*matrix.shape, 4))
    base = base_classes(group)
    pixels[:base, :, :3] = to_rgb(BASE_COLOUR)
    pixels[base:, :, :3] = to_rgb(NOVEL_COLOUR)
    pixels[:, :, 3] = np.sqrt(matrix)
    return np.round(255 * pixels).astype(np.uint8)


class Answers(NamedTuple):
    """Percent of test images answered rightly, with another base class, with another novel class."""

    rightly: float
    other_base: float
    other_novel: float


def answers(group: Group, t: int) -> dict[str, Answers]:
    """What was answered to the test images of base and of novel classes, pooled over classes and seeds."""
    confusion = np.sum([result.confusion_arrays[t] for result in group.alike], axis=0)
    base, found = base_classes(group), {}
    for kind, rows in (("base", slice(0, base)), ("novel", slice(base, None))):
        block = confusion[rows].astype(np.float64)
        if block.size == 0 or block.sum() == 0:
            continue
        right = np.diagonal(confusion)[rows].sum()
        to_base, to_novel = block[:, :base].sum(), block[:, base:].sum()
        wrong = (to_base - right, to_novel) if kind == "base" else (to_base, to_novel - right)
        found[kind] = Answers(*(float(100 * part / block.sum()) for part in (right, *wrong)))
    return found


def confusion(groups: Sequence[Group]) -> Figure:
    """Confusion matrices after the last session."""
    with house_style():
        figure, panels = panel_grid(len(groups), 3.5, 3.8)
        for axes, group in zip(panels, groups, strict=True):
            _draw_confusion(axes, group)
        panels[0].set_ylabel("true class")
        return figure


def _draw_confusion(axes: Axes, group: Group) -> None:
    last, base = group.session_count - 1, base_classes(group)
    pixels = confusion_pixels(group, last)
    seen = len(pixels)
    axes.imshow(pixels, interpolation="nearest", extent=(0, seen, seen, 0), aspect="equal")
    axes.grid(False)
    axes.spines[["top", "right"]].set_visible(True)
    axes.set_title(group.class_label)
    axes.set_xlabel("answered class")
    if base < seen:
        axes.axhline(base, color=INK, linewidth=0.8)
        axes.axvline(base, color=INK, linewidth=0.8)
        axes.set_xticks([base / 2, (base + seen) / 2], ["base", "novel"])
        axes.set_yticks([base / 2, (base + seen) / 2], ["base", "novel"], rotation=90, va="center")
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            labels[0].set_color(BASE_COLOUR)
            labels[1].set_color(NOVEL_COLOUR)
        axes.tick_params(length=0)


def class_accuracies(group: Group, t: int) -> Floats:
    """Accuracy of each class seen after session t, in percent, mean over seeds."""
    accuracies: Floats = 100 * shares(group, t).diagonal()
    return accuracies


def change_since_learnt(group: Group) -> Floats:
    """Points of accuracy each class gained or lost between the session that introduced it and the last."""
    last = class_accuracies(group, group.session_count - 1)
    first = np.concatenate(
        [class_accuracies(group, t)[classes] for t, classes in enumerate(group.results[0].sessions)]
    )
    change: Floats = last - first
    return change


def difference(group: Group, reference: Group) -> Floats:
    """Points of accuracy by which each class is better after the last session than with the reference."""
    last = group.session_count - 1
    return class_accuracies(group, last) - class_accuracies(reference, last)


def class_bars(group: Group, points: Floats, title: str) -> Figure:
    """Bars of gain and loss, base and novel classes apart, each sorted."""
    base, names = base_classes(group), group.results[0].class_names
    order = np.concatenate([_sorted(points, 0, base), _sorted(points, base, len(points))])
    gap = max(1, len(points) // 40)
    x = np.arange(len(points)) + gap * (np.arange(len(points)) >= base)
    with house_style():
        figure = Figure(figsize=(8.4, 3.4), layout="constrained")
        axes = figure.subplots()
        for kind, span, colour in (
            ("base", slice(0, base), BASE_COLOUR),
            ("novel", slice(base, None), NOVEL_COLOUR),
        ):
            values = points[order][span]
            if len(values) == 0:
                continue
            axes.bar(
                x[span], values, width=0.85, color=colour, label=f"{kind}: {values.mean():+.1f} on average"
            )
            middle = (x[span][0] - 0.5, x[span][-1] + 0.5)
            axes.plot(middle, [values.mean()] * 2, color=colour, linewidth=1, linestyle="--", alpha=0.8)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.set(title=title, ylabel="accuracy (percentage points)", xlabel="class, sorted")
        if len(points) <= NAMED_CLASSES:
            axes.set_xticks(x, [names[i] for i in order], rotation=90, fontsize=min(7, 360 / len(points)))
        else:
            axes.set_xticks([])
        axes.grid(False, axis="x")
        figure.legend(loc="outside upper right", ncols=2)
        return figure


def extremes(group: Group, points: Floats) -> tuple[list[str], list[str]]:
    """Names of the few classes that gained and lost most, with their points."""
    order = np.argsort(points, kind="stable")
    named = [f"{group.results[0].class_names[i]} ({points[i]:+.0f})" for i in order]
    gained = [name for i, name in zip(order[::-1], named[::-1], strict=True) if points[i] > 0]
    lost = [name for i, name in zip(order, named, strict=True) if points[i] < 0]
    return gained[:EXTREMES], lost[:EXTREMES]


def _sorted(points: Floats, start: int, stop: int) -> NDArray[np.int64]:
    return start + np.argsort(points[start:stop], kind="stable")
