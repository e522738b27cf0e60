"""Figures of the base session's training: loss and learning rate over the epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fairshot.reporting.figures.style import WIDE, legend_below, method_styles, report_style
from fairshot.reporting.figures.writer import FigureInput, FigureSection, FigureWriter, ReportFigure


@dataclass(frozen=True)
class TrainingLog:
    """The training log of a run, and the style of its method."""

    label: str
    style: dict[str, Any]
    columns: dict[str, NDArray[np.float64]]


@report_style()
def training_curve(logs: Sequence[TrainingLog]) -> Figure:
    """Draw loss and learning rate over the epochs."""
    figure = Figure(figsize=(WIDE, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for log in logs:
        style = log.style | {"marker": ""}
        left.plot(log.columns["epoch"], log.columns["loss"], label=log.label, **style)
        if "learning_rate" in log.columns:
            right.plot(log.columns["epoch"], log.columns["learning_rate"], **style)
    left.set(xlabel="epoch", ylabel="loss (nats)", title="Training loss", ylim=(0, None))
    right.set(xlabel="epoch", ylabel="learning rate", title="Learning rate", ylim=(0, None))
    if not right.lines:
        right.remove()
    legend_below(figure, left.lines, [log.label for log in logs])
    return figure


def _draw(given: FigureInput, writer: FigureWriter) -> list[ReportFigure]:
    """Draw the training of one run of each method."""
    logs = []
    for group, style in zip(given.groups, method_styles(given.groups), strict=True):
        kept = [run.training for run in given.runs if run.training and group.holds(run.result)]
        if kept:
            logs.append(TrainingLog(group.label, style, kept[0]))
    if not logs:
        return []
    losses = " ".join(f"{log.label}: loss {log.columns['loss'][-1]:.3f} at the end." for log in logs)
    speeds = [
        f"{log.label} {np.median(log.columns['images_per_second']):,.0f}"
        for log in logs
        if "images_per_second" in log.columns
    ]
    unit = "Source images per second in the median, however many views of each the network saw"
    caption = f"{unit}: {', '.join(speeds)}." if speeds else ""
    alt = f"Line charts over the epochs of the base session. {losses}"
    return [writer.write("training", training_curve(logs), "Training of the base session", alt, caption)]


SECTION = FigureSection(
    4,
    "training",
    "Training",
    "Training",
    "The base session; later sessions train nothing unless the method says so.",
    "No run here trained and kept training.csv.",
    _draw,
)
