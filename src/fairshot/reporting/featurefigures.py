"""Figures of the features of test images: t-SNE (fig. 1 and 6), heat map (fig. 7), occupancy (fig. 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from fairshot.evaluation.diagnostics import feature_mapping_occupancy
from fairshot.progress import SILENT, Reporter
from fairshot.reporting.groups import Group
from fairshot.reporting.measures import INC_AVG
from fairshot.reporting.runs import Features, Floats
from fairshot.reporting.style import BASE_COLOUR, MARKERS, NOVEL_COLOUR, house_style, method_name, panel_grid

NOVEL_SHADES = ("#ffb27a", "#d55e00", "#a84300", "#f0803c", "#8a3600")  # of the colour of novel classes
SHOWN_NOVEL_CLASSES = len(NOVEL_SHADES)
SHOWN_IMAGES = 1500
HEAT_ROWS = 240
SAME = 1e-6  # a difference between normalised features that is none


@dataclass(frozen=True)
class Featured:
    """A group of runs, its place among the methods, and the features of one of its runs."""

    group: Group
    place: int
    features: Features

    @property
    def normalised(self) -> Floats:
        """G of the plain view, of length 1."""
        return normalised(self.features.g[:, 0])

    @property
    def occupancies(self) -> Floats:
        """FMO of each image, averaged over its views."""
        values: Floats = feature_mapping_occupancy(torch.from_numpy(self.features.g)).numpy()
        return values

    @property
    def base_occupancy(self) -> float:
        """FMO of the test images of base classes on average."""
        return float(self.occupancies[self.features.is_base].mean())


def normalised(features: Floats) -> Floats:
    """Scale each row to length 1; a row of zeros stays."""
    scaled: Floats = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    return scaled


def shown_images(features: Features) -> NDArray[np.int64]:
    """Images of all base classes and of five novel classes spread over the sessions, as many of each."""
    novel = np.unique(features.labels[~features.is_base])
    picked = novel[np.linspace(0, len(novel) - 1, min(SHOWN_NOVEL_CLASSES, len(novel))).round().astype(int)]
    classes = [*np.unique(features.labels[features.is_base]), *picked]
    many = max(1, SHOWN_IMAGES // max(1, len(classes)))
    return np.concatenate([np.flatnonzero(features.labels == label)[:many] for label in classes])


def embed_on_plane(vectors: Floats) -> Floats:
    """Place the vectors on a plane by t-SNE, the same way each time.

    Where a network maps all images to one vector there is nothing to unfold, and t-SNE would crash.
    """
    if np.ptp(vectors, axis=0).max() < SAME:
        return np.zeros((len(vectors), 2), dtype=np.float32)
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    plane: Floats = TSNE(
        perplexity=perplexity, init="pca", random_state=0, max_iter=600, n_jobs=1
    ).fit_transform(vectors)
    return plane


def tsne(panels: Sequence[Featured], reporter: Reporter = SILENT) -> Figure:
    """Test features of each run on a plane: whether novel classes find places of their own (fig. 1, 6)."""
    with house_style():
        figure, grid = panel_grid(len(panels), 3.1, 3.3)
        with reporter.track("t-SNE", len(panels)) as advance:
            for axes, panel in zip(grid, panels, strict=True):
                _draw_plane(axes, panel)
                advance(1, panel.group.label)
        handles, names = grid[0].get_legend_handles_labels()
        legend = figure.legend(handles, names, loc="outside lower center", ncols=3, markerscale=2)
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1)
        return figure


def _draw_plane(axes: Axes, panel: Featured) -> None:
    chosen = shown_images(panel.features)
    plane = embed_on_plane(panel.normalised[chosen])
    labels, is_base = panel.features.labels[chosen], panel.features.is_base[chosen]
    _scatter(axes, plane[is_base], "base", BASE_COLOUR, "o", size=5, alpha=0.3)
    for place, label in enumerate(np.unique(labels[~is_base])):
        name = f"novel: {panel.group.results[0].class_names[label]}"
        _scatter(axes, plane[labels == label], name, NOVEL_SHADES[place], MARKERS[place], size=13, alpha=0.9)
    axes.set_title(panel.group.label)
    axes.set_gid(method_name(panel.place))
    axes.set(xticks=[], yticks=[], xlabel="t-SNE axis 1 (no unit)", ylabel="t-SNE axis 2 (no unit)")
    axes.grid(False)


def _scatter(
    axes: Axes, points: Floats, label: str, colour: str, marker: str, size: float, alpha: float
) -> None:
    x, y = points.T
    look: dict[str, Any] = {"color": colour, "marker": marker, "alpha": alpha, "label": label}
    axes.scatter(x, y, size, linewidth=0, rasterized=True, **look)


def heat_map(panels: Sequence[Featured]) -> Figure:
    """Normalised features, a row an image: which mappings base and novel classes use (fig. 7)."""
    with house_style():
        figure, grid = panel_grid(len(panels), 3.6, 3.6)
        rows = [_heat_rows(panel.features) for panel in panels]
        tables = [panel.normalised[chosen] for panel, chosen in zip(panels, rows, strict=True)]
        top = max(float(np.percentile(table, 99.5)) for table in tables)
        for axes, panel, table, chosen in zip(grid, panels, tables, rows, strict=True):
            image = axes.imshow(table, "cividis", aspect="auto", vmin=0, vmax=top, interpolation="nearest")
            _part_base_from_novel(axes, int(panel.features.is_base[chosen].sum()), len(chosen))
            axes.set_title(panel.group.label)
            axes.set_gid(method_name(panel.place))
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.set_xlabel("feature of g (index)")
        grid[0].set_ylabel("test images")
        figure.colorbar(image, ax=grid, label="normalised feature value (no unit)", pad=0.02)
        return figure


def _part_base_from_novel(axes: Axes, border: int, rows: int) -> None:
    axes.axhline(border - 0.5, color="white", linewidth=1.2)
    axes.set_yticks([border / 2, (border + rows) / 2], ["base", "novel"], rotation=90, va="center")
    for tick, colour in zip(axes.get_yticklabels(), (BASE_COLOUR, NOVEL_COLOUR), strict=True):
        tick.set_color(colour)
    axes.grid(False)


def _heat_rows(features: Features) -> NDArray[np.int64]:
    """Every n-th image in the order of classes, so that base and novel keep their proportion."""
    order = np.argsort(features.labels, kind="stable")
    rows: NDArray[np.int64] = order[
        np.linspace(0, len(order) - 1, min(HEAT_ROWS, len(order))).round().astype(int)
    ]
    return rows


def occupancy(panels: Sequence[Featured]) -> Figure:
    """FMO of base and of novel test images, a pair of bars a run (fig. 8)."""
    with house_style():
        figure = Figure(figsize=(6.2, 0.62 * len(panels) + 1.2), layout="constrained")
        axes = figure.subplots()
        for row, panel in enumerate(panels):
            values = panel.occupancies
            is_base, name = panel.features.is_base, method_name(panel.place)
            for shift, chosen, colour in ((-0.19, is_base, BASE_COLOUR), (0.19, ~is_base, NOVEL_COLOUR)):
                if chosen.any():
                    mean = float(values[chosen].mean())
                    bars = axes.barh(row + shift, mean, height=0.36, color=colour)
                    for drawn in (*bars, *axes.bar_label(bars, fmt="%.1f", padding=4, fontsize=8)):
                        drawn.set_gid(name)
        axes.set_yticks(range(len(panels)), [panel.group.label for panel in panels])
        axes.invert_yaxis()
        axes.margins(x=0.1)
        axes.set_xlabel("FMO (sum of normalised features, no unit)")
        axes.grid(False, axis="y")
        handles = [Patch(color=BASE_COLOUR, label="base"), Patch(color=NOVEL_COLOUR, label="novel")]
        figure.legend(handles=handles, loc="outside upper right", ncols=2)
        return figure


def occupancy_caption(panels: Sequence[Featured]) -> str:
    """Say what FMO is and what the paper expects of it; what came of it here, only the numbers say."""
    caption = (
        "FMO (definition 3 of the paper) is the sum of an image's features scaled to length 1: from 1, where "
        "a single feature is lit, to the square root of their number, where all are lit alike. The paper "
        "expects room for novel classes where base classes have a low FMO."
    )
    novel = {p.group.label: s.mean for p in panels if (s := p.group.summary(INC_AVG.pick)) is not None}
    occupied = {p.group.label: p.base_occupancy for p in panels if p.group.label in novel}
    if len(novel) < 2:
        return caption
    least, most = min(occupied.values()), max(novel.values())
    return (
        f"{caption} Here the lowest of base classes is {least:.1f} ({_with(least, occupied)}); the highest "
        f"novel accuracy (Inc avg) is {most:.1f} % ({_with(most, novel)})."
    )


def _with(value: float, values: Mapping[str, float]) -> str:
    """Name all that have this value, as it reads."""
    return ", ".join(label for label, other in values.items() if f"{other:.1f}" == f"{value:.1f}")
