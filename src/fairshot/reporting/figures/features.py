"""Figures of the features of test images: t-SNE (fig. 1 and 6), heat map (fig. 7), occupancy (fig. 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from fairshot.reporting.figures import style
from fairshot.reporting.figures.writer import FigureInput, FigureSection, FigureWriter, ReportFigure
from fairshot.reporting.groups import Group
from fairshot.reporting.measures import INC_AVG
from fairshot.reporting.runs import Features, Floats

NOVEL_SHADES = ("#ffb27a", "#d55e00", "#a84300", "#f0803c", "#8a3600")  # of the colour of novel classes
SHOWN_NOVEL_CLASSES = len(NOVEL_SHADES)
SHOWN_IMAGES = 1500
HEAT_ROWS = 240
SAME = 1e-6  # normalised features that differ by less are equal


@dataclass(frozen=True)
class MethodFeatures:
    """A group of runs, its index among the methods, and the features of one of its runs."""

    group: Group
    index: int
    features: Features

    @property
    def normalised(self) -> Floats:
        """The features g of the plain view, scaled to length 1; a row of zeros stays."""
        g = self.features.g[:, 0]
        scaled: Floats = g / np.maximum(np.linalg.norm(g, axis=1, keepdims=True), 1e-12)
        return scaled

    @property
    def occupancies(self) -> Floats:
        """FMO of each image, averaged over its views."""
        values: Floats = feature_mapping_occupancy(torch.from_numpy(self.features.g)).numpy()
        return values

    @property
    def base_occupancy(self) -> float:
        """FMO of the test images of base classes on average."""
        return float(self.occupancies[self.features.is_base].mean())


def shown_images(features: Features) -> NDArray[np.int64]:
    """Choose images of all base classes and of five novel classes from all sessions, as many of each."""
    novel = np.unique(features.labels[~features.is_base])
    picked = novel[np.linspace(0, len(novel) - 1, min(SHOWN_NOVEL_CLASSES, len(novel))).round().astype(int)]
    classes = [*np.unique(features.labels[features.is_base]), *picked]
    many = max(1, SHOWN_IMAGES // max(1, len(classes)))
    return np.concatenate([np.flatnonzero(features.labels == label)[:many] for label in classes])


def embed_on_plane(vectors: Floats) -> Floats:
    """Map the vectors to two dimensions by t-SNE, with a fixed seed.

    t-SNE would crash where a network maps all images to one vector: they then share one point.
    """
    if np.ptp(vectors, axis=0).max() < SAME:
        return np.zeros((len(vectors), 2), dtype=np.float32)
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    embedding = TSNE(perplexity=perplexity, init="pca", random_state=0, max_iter=600, n_jobs=1)
    plane: Floats = embedding.fit_transform(vectors)
    return plane


@style.report_style()
def tsne(methods: Sequence[MethodFeatures], reporter: Reporter = SILENT) -> Figure:
    """Draw test features in two dimensions: whether novel classes form clusters of their own (fig. 1, 6)."""
    figure, panels = style.panel_grid(len(methods), 3.1, 3.3)
    with reporter.track("t-SNE", len(methods)) as advance:
        for axes, method in zip(panels, methods, strict=True):
            _draw_plane(axes, method)
            advance(1, method.group.label)
    handles, names = panels[0].get_legend_handles_labels()
    legend = figure.legend(handles, names, loc="outside lower center", ncols=3, markerscale=2)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    return figure


def _draw_plane(axes: Axes, method: MethodFeatures) -> None:
    chosen = shown_images(method.features)
    plane = embed_on_plane(method.normalised[chosen])
    labels, is_base = method.features.labels[chosen], method.features.is_base[chosen]
    clouds = [(plane[is_base], 5.0, 0.3, "base", style.BASE, "o")]
    for label, colour, marker in zip(np.unique(labels[~is_base]), NOVEL_SHADES, style.MARKERS, strict=False):
        name = f"novel: {method.group.results[0].class_names[label]}"
        clouds.append((plane[labels == label], 13.0, 0.9, name, colour, marker))
    for points, size, alpha, name, colour, marker in clouds:
        x, y = points.T
        axes.scatter(
            x, y, size, color=colour, marker=marker, alpha=alpha, label=name, linewidth=0, rasterized=True
        )
    axes.set_title(method.group.label)
    axes.set_gid(style.method_id(method.index))
    axes.set(xticks=[], yticks=[], xlabel="t-SNE axis 1 (no unit)", ylabel="t-SNE axis 2 (no unit)")
    axes.grid(False)


@style.report_style()
def heat_map(methods: Sequence[MethodFeatures]) -> Figure:
    """Draw normalised features, one row per image: which of them base and novel classes use (fig. 7)."""
    figure, panels = style.panel_grid(len(methods), 3.6, 3.6)
    tables, borders = [], []
    for method in methods:  # every n-th image in the order of classes: base and novel keep their proportion
        order = np.argsort(method.features.labels, kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, min(HEAT_ROWS, len(order))).round().astype(int)]
        tables.append(method.normalised[chosen])
        borders.append(int(method.features.is_base[chosen].sum()))
    top = max(float(np.percentile(table, 99.5)) for table in tables)
    for axes, method, table, border in zip(panels, methods, tables, borders, strict=True):
        image = axes.imshow(table, "cividis", aspect="auto", vmin=0, vmax=top, interpolation="nearest")
        axes.axhline(border - 0.5, color="white", linewidth=1.2)
        style.label_blocks(axes.yaxis, border, len(table), rotation=90, va="center")
        axes.grid(False)
        axes.set_title(method.group.label)
        axes.set_gid(style.method_id(method.index))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel("feature of g (index)")
    panels[0].set_ylabel("test images")
    figure.colorbar(image, ax=panels, label="normalised feature value (no unit)", pad=0.02)
    return figure


@style.report_style()
def occupancy(methods: Sequence[MethodFeatures]) -> Figure:
    """Draw FMO of base and of novel test images, a pair of bars per method (fig. 8)."""
    figure = Figure(figsize=(6.2, 0.62 * len(methods) + 1.2), layout="constrained")
    axes = figure.subplots()
    for row, method in enumerate(methods):
        values, is_base = method.occupancies, method.features.is_base
        for shift, chosen, colour in (
            (-0.19, is_base, style.BASE),
            (0.19, ~is_base, style.NOVEL),
        ):
            if chosen.any():
                bars = axes.barh(row + shift, float(values[chosen].mean()), height=0.36, color=colour)
                for drawn in (*bars, *axes.bar_label(bars, fmt="%.1f", padding=4, fontsize=8)):
                    drawn.set_gid(style.method_id(method.index))
    axes.set_yticks(range(len(methods)), [method.group.label for method in methods])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("FMO (sum of normalised features, no unit)")
    axes.grid(False, axis="y")
    handles = [Patch(color=style.BASE, label="base"), Patch(color=style.NOVEL, label="novel")]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    return figure


def occupancy_caption(methods: Sequence[MethodFeatures]) -> str:
    """Say what FMO is, what the paper expects of it, and what the numbers of these runs are."""
    caption = (
        "FMO (definition 3 of the paper) is the sum of an image's features scaled to length 1: from 1, where "
        "a single feature is lit, to the square root of their number, where all are lit alike. The paper "
        "expects room for novel classes where base classes have a low FMO."
    )
    novel = {m.group.label: s.mean for m in methods if (s := m.group.summary(INC_AVG.pick)) is not None}
    occupied = {m.group.label: m.base_occupancy for m in methods if m.group.label in novel}
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


def _draw(given: FigureInput, writer: FigureWriter) -> list[ReportFigure]:
    """Draw t-SNE, heat map and FMO of one run of each method that kept its features."""
    methods = []
    for index, group in enumerate(given.groups):
        kept = (run.read_features() for run in given.runs if group.holds(run.result))
        if (features := next((one for one in kept if one is not None), None)) is not None:
            methods.append(MethodFeatures(group, index, features))
    if not methods:
        return []
    names = ", ".join(method.group.label for method in methods)
    occupied = " ".join(f"{m.group.label}: {m.base_occupancy:.1f} for base classes." for m in methods)
    return [
        writer.write(
            "tsne",
            tsne(methods, given.reporter),
            "Test images in the feature space (t-SNE of g)",
            f"Scatter plots of base and of five novel classes for {names}.",
            "Novel classes that lie among base classes tend to be answered as base classes; clusters "
            "of their own can be told apart. Neighbours are meaningful, distances between clusters are not.",
        ),
        writer.write(
            "heat-map",
            heat_map(methods),
            "Normalised features of test images",
            f"Heat maps of normalised features, one row per image, for {names}.",
            "A column lit in the base rows only serves base classes; features that transfer are lit in both.",
        ),
        writer.write(
            "occupancy",
            occupancy(methods),
            "Feature mapping occupancy (FMO)",
            f"Bar chart of FMO. {occupied}",
            occupancy_caption(methods),
        ),
    ]


SECTION = FigureSection(
    3,
    "features",
    "Features",
    "Feature space",
    "Features of test images before any classifier.",
    "No run here kept the features of its test images (features.safetensors), so that t-SNE, heat map and "
    "FMO cannot be drawn.",
    _draw,
    own_progress=True,
)
