"""Figures of single classes: confusion matrices with base and novel blocks, gain and loss per class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fairshot.evaluation.starting_weights import starting_weights
from fairshot.reporting.figures import style
from fairshot.reporting.figures.writer import FigureInput, FigureSection, FigureWriter, ReportFigure
from fairshot.reporting.groups import Group, backbone_of, is_baseline

Floats = NDArray[np.float64]
NAMED_CLASSES = 75  # more class names than these do not fit under bars
EXTREMES = 4  # classes that a caption names on either side


def shares(group: Group, t: int) -> Floats:
    """Return the confusion matrix after session t as shares of each class's test images, mean over seeds."""
    confusions = np.stack([result.confusion_arrays[t] for result in group.alike]).astype(np.float64)
    totals = confusions.sum(axis=2, keepdims=True)
    rows: Floats = np.divide(confusions, totals, where=totals > 0, out=np.zeros_like(confusions))
    mean: Floats = rows.mean(axis=0)
    return mean


def confusion_pixels(group: Group, t: int) -> NDArray[np.uint8]:
    """Return one RGBA pixel per pair of classes: the colour says base or novel class, the opacity the share.

    The root of the share lets single wrong answers be seen; nothing is drawn where nothing was answered.
    """
    matrix = shares(group, t)
    pixels = np.zeros((*matrix.shape, 4))
    pixels[: group.base_classes, :, :3] = to_rgb(style.BASE)
    pixels[group.base_classes :, :, :3] = to_rgb(style.NOVEL)
    pixels[:, :, 3] = np.sqrt(matrix)
    return np.round(255 * pixels).astype(np.uint8)


def answers(group: Group, t: int) -> dict[str, tuple[float, ...]]:
    """Return percent of test images answered rightly, with a wrong base class, with a wrong novel class.

    By kind of class, base or novel, pooled over classes and seeds.
    """
    confusion = np.sum([result.confusion_arrays[t] for result in group.alike], axis=0)
    base, found = group.base_classes, {}
    for kind, rows in (("base", slice(0, base)), ("novel", slice(base, None))):
        block = confusion[rows].astype(np.float64)
        if block.sum() == 0:
            continue
        right = np.diagonal(confusion)[rows].sum()
        to_base, to_novel = block[:, :base].sum(), block[:, base:].sum()
        wrong = (to_base - right, to_novel) if kind == "base" else (to_base, to_novel - right)
        found[kind] = tuple(float(100 * part / block.sum()) for part in (right, *wrong))
    return found


@style.report_style()
def confusion(groups: Sequence[Group]) -> Figure:
    """Draw confusion matrices after the last session."""
    figure, panels = style.panel_grid(len(groups), 3.5, 3.8)
    for axes, group in zip(panels, groups, strict=True):
        _draw_confusion(axes, group)
    panels[0].set_ylabel("true class")
    return figure


def _draw_confusion(axes: Axes, group: Group) -> None:
    pixels = confusion_pixels(group, group.session_count - 1)
    base, seen = group.base_classes, len(pixels)
    axes.imshow(pixels, interpolation="nearest", extent=(0, seen, seen, 0), aspect="equal")
    axes.grid(False)
    axes.spines[["top", "right"]].set_visible(True)
    axes.set_title(group.class_label)
    axes.set_xlabel("answered class")
    if base < seen:
        axes.axhline(base, color=style.INK, linewidth=0.8)
        axes.axvline(base, color=style.INK, linewidth=0.8)
        style.label_blocks(axes.xaxis, base, seen)
        style.label_blocks(axes.yaxis, base, seen, rotation=90, va="center")
        axes.tick_params(length=0)


def class_accuracies(group: Group, t: int) -> Floats:
    """Return the accuracy of each class seen after session t, in percent, mean over seeds."""
    accuracies: Floats = 100 * shares(group, t).diagonal()
    return accuracies


def change_since_learnt(group: Group) -> Floats:
    """Return the points of accuracy each class gained between the session that introduced it and the last."""
    first = [class_accuracies(group, t)[classes] for t, classes in enumerate(group.results[0].sessions)]
    change: Floats = class_accuracies(group, group.session_count - 1) - np.concatenate(first)
    return change


def difference(group: Group, reference: Group) -> Floats:
    """Return the points of accuracy by which each class is better after the last session."""
    last = group.session_count - 1
    return class_accuracies(group, last) - class_accuracies(reference, last)


@style.report_style()
def class_bars(group: Group, points: Floats, title: str) -> Figure:
    """Draw bars of gain and loss, base and novel classes apart, each sorted."""
    base, names = group.base_classes, group.results[0].class_names
    kinds = (("base", slice(0, base), style.BASE), ("novel", slice(base, None), style.NOVEL))
    everyone = np.arange(len(points))
    order = np.concatenate([everyone[span][np.argsort(points[span], kind="stable")] for _, span, _ in kinds])
    x = everyone + max(1, len(points) // 40) * (everyone >= base)  # a gap between base and novel
    figure = Figure(figsize=(style.WIDE, 3.4), layout="constrained")
    axes = figure.subplots()
    for kind, span, colour in kinds:
        values = points[order][span]
        if len(values):
            label = f"{kind}: {values.mean():+.1f} on average"
            axes.bar(x[span], values, width=0.85, color=colour, label=label)
            ends = (x[span][0] - 0.5, x[span][-1] + 0.5)
            axes.plot(ends, [values.mean()] * 2, color=colour, linewidth=1, linestyle="--", alpha=0.8)
    axes.axhline(0, color=style.MUTED, linewidth=0.8)
    axes.set(title=title, ylabel="accuracy (percentage points)", xlabel="class, sorted")
    if len(points) <= NAMED_CLASSES:
        axes.set_xticks(x, [names[i] for i in order], rotation=90, fontsize=min(7, 360 / len(points)))
    else:
        axes.set_xticks([])
    axes.grid(False, axis="x")
    figure.legend(loc="outside upper right", ncols=2)
    return figure


def extremes(group: Group, points: Floats) -> tuple[list[str], list[str]]:
    """Name the few classes that gained and that lost most, with their points."""
    rising = np.argsort(points, kind="stable")
    named = {i: f"{group.results[0].class_names[i]} ({points[i]:+.0f})" for i in rising}
    gained = [named[i] for i in rising[::-1] if points[i] > 0]
    return gained[:EXTREMES], [named[i] for i in rising if points[i] < 0][:EXTREMES]


def _draw(given: FigureInput, writer: FigureWriter) -> list[ReportFigure]:
    """Draw each method against its reference, a reference against the sessions that taught its classes."""
    figures = []
    last = given.groups[0].session_count - 1
    for index, group in enumerate(given.groups):
        reference = _reference(group, given.groups)
        if group is not reference:
            key, points = f"classes-{index}", difference(group, reference)
            title = f"{group.class_label} instead of {reference.class_label}, after session {last}"
        elif last:
            key, points = f"change-{index}", change_since_learnt(group)
            title = f"{group.class_label}: since the session that introduced the class"
        else:
            continue
        gained, lost = extremes(group, points)
        named = f"Most gained: {', '.join(gained) or 'none'}. Most lost: {', '.join(lost) or 'none'}."
        alt = f"{title}. Bar chart, one bar per class. {named}"
        figure = class_bars(group, points, title)
        figures.append(writer.write(key, figure, alt=alt, caption=named, method=style.method_id(index)))
    return figures


def _reference(group: Group, groups: Sequence[Group]) -> Group:
    """Return the baseline with the same network and classes, or the first method where there is none.

    A method with a network of its own has no reference but itself: more than the method would differ.
    """

    def common(one: Group) -> tuple[object, ...]:
        result = one.results[0]
        return backbone_of(one), starting_weights(result), result.class_names

    alike = [one for one in groups if common(one) == common(group)]
    return next((one for one in alike if is_baseline(one.results[0].method)), alike[0])


SECTION = FigureSection(
    1,
    "classes",
    "Classes",
    "Gain and loss of single classes",
    "Accuracy of each class in percentage points, base and novel classes apart; dashed lines are averages.",
    "There is nothing to compare: one method, and the base session alone.",
    _draw,
)
