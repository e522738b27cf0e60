"""Curves of the work itself: training, and what rules that favour novel classes trade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fairshot.reporting.runs import RuleCurve, TradeOff
from fairshot.reporting.style import MUTED, house_style, legend_columns, method_style, name_legend


@dataclass(frozen=True)
class Training:
    """The training log of a run, and the look of its method."""

    label: str
    style: dict[str, Any]
    columns: dict[str, NDArray[np.float64]]

    @property
    def images_per_second(self) -> float | None:
        """The median speed."""
        speeds = self.columns.get("images_per_second")
        return None if speeds is None else float(np.median(speeds))


def training_curve(logs: Sequence[Training]) -> Figure:
    """Loss and learning rate over the epochs."""
    with house_style():
        figure = Figure(figsize=(8.4, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        names = []
        for log in logs:
            style = log.style | {"marker": ""}
            names.append(style["gid"])
            left.plot(log.columns["epoch"], log.columns["loss"], label=log.label, **style)
            if "learning_rate" in log.columns:
                right.plot(log.columns["epoch"], log.columns["learning_rate"], **style)
        left.set(xlabel="epoch", ylabel="loss (nats)", title="Training loss", ylim=(0, None))
        right.set(xlabel="epoch", ylabel="learning rate", title="Learning rate", ylim=(0, None))
        if not right.lines:
            right.remove()
        columns = legend_columns([log.label for log in logs], 8.4)
        name_legend(figure.legend(loc="outside lower center", ncols=columns), names)
        return figure


def gates(trade_off: TradeOff, label: str) -> Figure:
    """What each rule reaches over its settings: overall accuracy and harmonic mean against novel accuracy."""
    with house_style():
        figure = Figure(figsize=(8.4, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        for place, curve in enumerate(trade_off.rules):
            _draw_rule(left, right, place, curve)
        left.set(ylabel="average overall accuracy (%)", title=f"{label}: overall accuracy")
        right.set(ylabel="average harmonic mean (%)", title="Harmonic mean, chosen setting ringed")
        for axes in (left, right):
            axes.set_xlabel("average novel accuracy (%)")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure


def _draw_rule(left: Axes, right: Axes, place: int, curve: RuleCurve) -> None:
    points = sorted(curve.points, key=lambda point: point.inc_avg)
    style = method_style(place) | {"gid": None}
    novel = [point.inc_avg for point in points]
    left.plot(novel, [point.overall_avg for point in points], label=curve.name, **style)
    harmonic = [point.harmonic_mean_avg for point in points]
    right.plot(novel, harmonic, label=curve.name, **style)
    for point in points:
        if point.tuned:
            at = (point.inc_avg, point.harmonic_mean_avg)
            right.plot(*at, "o", markersize=12, fillstyle="none", color=MUTED)
