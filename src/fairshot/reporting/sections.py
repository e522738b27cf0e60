"""The figures of a chapter, section by section, with what a reader sees or hears beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairshot.progress import Reporter
from fairshot.reporting import classfigures, curves, featurefigures, figures
from fairshot.reporting.featurefigures import Featured
from fairshot.reporting.groups import Group
from fairshot.reporting.measures import BASE, INC, OVERALL, SessionMeasure
from fairshot.reporting.report_figures import FigureWriter, ReportFigure
from fairshot.reporting.runs import CurvePoint, Run
from fairshot.reporting.settings import is_baseline
from fairshot.reporting.style import method_name
from fairshot.studies.published import PublishedRow


def accuracy(groups: Sequence[Group], studio: FigureWriter) -> list[ReportFigure]:
    """One plate a method, so that a hidden method leaves no hole; the file holds them all."""
    whole = studio.plate("accuracy", figures.accuracy_per_session(groups), "", "", "")
    plates = []
    for place, group in enumerate(groups):
        told = (_told(group, measure) for measure in (BASE, INC, OVERALL))
        alt = f"Line chart of {group.label}. {' '.join(told)}"
        figure = figures.accuracy_per_session([group])
        plates.append(studio.sketch(f"accuracy-{place}", figure, alt, method_name(place), whole.files))
    return plates


def comparison(
    groups: Sequence[Group], rows: Sequence[PublishedRow], studio: FigureWriter
) -> list[ReportFigure]:
    """All methods in one picture: overall accuracy, the two imbalances, the path of the trade-off."""
    told = " ".join(f"{group.label}: {_told(group, OVERALL)}" for group in groups)
    plates = [
        studio.plate(
            "overall",
            figures.overall_per_session(groups, rows),
            "Overall accuracy after each session",
            f"Line chart of overall accuracy over the sessions. {told}",
            "Thin grey lines are published results." if rows else "",
        )
    ]
    if groups[0].session_count == 1:
        return plates
    told = " ".join(f"{group.label}: {_told(group, BASE)} {_told(group, INC)}" for group in groups)
    trade_off = figures.trade_off(groups)
    diagonal = "On the dashed diagonal base and novel classes are treated alike; thin "
    plates.append(
        studio.plate(
            "trade-off",
            trade_off,
            "Novel against base accuracy",
            f"Each method's path from session 1 to the last: novel against base accuracy. {told}",
            (diagonal if figures.shows_diagonal(trade_off) else "Thin ")
            + "curves join points of equal harmonic mean. Up and to the right is better.",
        )
    )
    plates.append(
        studio.plate(
            "imbalance",
            figures.imbalance(groups),
            "Imbalance between kinds of classes",
            f"Two line charts of accuracy over the sessions, by kind of class. {told}",
            _imbalance_caption(len(groups)),
        )
    )
    return plates


def _imbalance_caption(methods: int) -> str:
    if methods > figures.MOST_METHODS_A_PANEL:
        return (
            "The lower a method lies on the right than on the left, the more it favours one kind of classes: "
            "base over novel above, the newest over earlier novel classes below."
        )
    return (
        "The further two lines of a method lie apart, the more it favours one kind of classes: base over "
        "novel on the left, the newest over earlier novel classes on the right."
    )


def classes(groups: Sequence[Group], studio: FigureWriter) -> list[ReportFigure]:
    """Gain and loss of single classes: against a reference, and of that one since they were learnt.

    The reference is the baseline, or the first method where it is not among them.
    """
    plates = []
    reference = next((g for g in groups if is_baseline(g.results[0].method)), groups[0])
    last = reference.session_count - 1
    for place, group in enumerate(groups):
        if group is not reference and group.results[0].class_names == reference.results[0].class_names:
            points = classfigures.difference(group, reference)
            title = f"{group.class_label} instead of {reference.class_label}, after session {last}"
            key = f"classes-{place}"
        elif last:
            points = classfigures.change_since_learnt(group)
            title = f"{group.class_label}: since the session that introduced the class"
            key = f"change-{place}"
        else:
            continue
        gained, lost = classfigures.extremes(group, points)
        named = f"Most gained: {', '.join(gained) or 'none'}. Most lost: {', '.join(lost) or 'none'}."
        figure = classfigures.class_bars(group, points, title)
        plates.append(
            studio.plate(
                key, figure, "", f"{title}. Bar chart, a bar a class. {named}", named, method_name(place)
            )
        )
    return plates


def confusion(groups: Sequence[Group], studio: FigureWriter) -> tuple[str, ...]:
    """Confusion matrices after the last session, as files for a paper; the page has its own."""
    return studio.plate("confusion", classfigures.confusion(groups), "", "", "").files


def gates(runs: Sequence[Run], studio: FigureWriter) -> list[ReportFigure]:
    """What rules that favour novel classes reach over their settings, for each run that compared some."""
    plates = []
    for place, run in enumerate(run for run in runs if run.trade_off is not None):
        assert run.trade_off is not None
        chosen = [(rule.name, point) for rule in run.trade_off.rules for point in rule.points if point.tuned]
        caption = "Each mark is one setting of a rule on the same features, measured on test images. "
        if chosen:
            caption += "The settings of the table were chosen on pseudo-novel classes."
        title = f"What gates trade, {run.name}"
        figure = curves.gates(run.trade_off, run.name)
        drawn = "Two line charts against novel accuracy: overall accuracy, and harmonic mean."
        plate = studio.plate(f"gates-{place}", figure, title, drawn, caption)
        plates.append(replace(plate, rows=_chosen_gates(chosen)))
    return plates


def _chosen_gates(chosen: Sequence[tuple[str, CurvePoint]]) -> tuple[tuple[str, ...], ...]:
    """The setting of each rule that pseudo-novel classes chose, and what it gives on test images."""
    if not chosen:
        return ()
    rows = []
    for name, point in chosen:
        found = (point.overall_avg, point.inc_avg, point.harmonic_mean_avg)
        rows.append((name, f"{point.setting:g}", *(f"{value:.2f}" for value in found)))
    return (("Rule", "Setting", "Overall (%)", "Novel (%)", "Harmonic mean (%)"), *rows)


def features(
    groups: Sequence[Group], runs: Sequence[Run], studio: FigureWriter, reporter: Reporter
) -> list[ReportFigure]:
    """The feature space, as far as runs kept the features of their test images."""
    panels = _featured(groups, runs)
    if not panels:
        return []
    names = ", ".join(panel.group.label for panel in panels)
    occupied = " ".join(
        f"{panel.group.label}: {panel.base_occupancy:.1f} for base classes." for panel in panels
    )
    return [
        studio.plate(
            "tsne",
            featurefigures.tsne(panels, reporter),
            "Test images in the feature space (t-SNE of g)",
            f"Scatter plots of base and of five novel classes for {names}.",
            "Novel classes on the places of base classes tend to be answered as base classes; clusters "
            "of their own can be told apart. Neighbours are meaningful, distances between clusters are not.",
        ),
        studio.plate(
            "heat-map",
            featurefigures.heat_map(panels),
            "Normalised features of test images",
            f"Heat maps of normalised features, a row an image, for {names}.",
            "A column lit in the base rows only serves base classes; features that transfer are lit in both.",
        ),
        studio.plate(
            "occupancy",
            featurefigures.occupancy(panels),
            "Feature mapping occupancy (FMO)",
            f"Bar chart of FMO. {occupied}",
            featurefigures.occupancy_caption(panels),
        ),
    ]


def training(groups: Sequence[Group], runs: Sequence[Run], studio: FigureWriter) -> list[ReportFigure]:
    """Loss and learning rate of one run of each method."""
    logs = []
    for group, style in zip(groups, figures.method_styles(groups), strict=True):
        kept = [run for run in runs if run.training and group.holds(run.result)]
        if kept:
            logs.append(curves.Training(group.label, style, kept[0].training))
    if not logs:
        return []
    told = " ".join(f"{log.label}: loss {log.columns['loss'][-1]:.3f} at the end." for log in logs)
    speeds = [f"{log.label} {speed:,.0f}" for log in logs if (speed := log.images_per_second) is not None]
    caption = f"Images per second in the median: {', '.join(speeds)}." if speeds else ""
    alt = f"Line charts over the epochs of the base session. {told}"
    return [
        studio.plate("training", curves.training_curve(logs), "Training of the base session", alt, caption)
    ]


def _featured(groups: Sequence[Group], runs: Sequence[Run]) -> list[Featured]:
    found = []
    for place, group in enumerate(groups):
        kept = (run.read_features() for run in runs if group.holds(run.result))
        features = next((one for one in kept if one is not None), None)
        if features is not None:
            found.append(Featured(group, place, features))
    return found


def _told(group: Group, measure: SessionMeasure) -> str:
    """First and last value of a curve in words."""
    sessions, mean, _ = figures.curve(group, measure)
    if len(sessions) == 0:
        return ""
    return f"{measure.title} {mean[0]:.1f} % in session {sessions[0]:.0f}, {mean[-1]:.1f} % in the last."
