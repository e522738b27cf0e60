"""A chapter of the report: all that the runs on one benchmark have to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairshot.evaluation.result import Result
from fairshot.progress import SILENT, Reporter
from fairshot.reporting import sections
from fairshot.reporting.ablations import ablation_tables
from fairshot.reporting.classfigures import Answers, answers, base_classes, confusion_pixels
from fairshot.reporting.conditions import Conditions, conditions
from fairshot.reporting.export import write_table
from fairshot.reporting.groups import Group, images_of
from fairshot.reporting.measures import BASE_AVG, BASE_INC, INC_AVG
from fairshot.reporting.orders import orders_table
from fairshot.reporting.papertables import (
    PaperTable,
    comparison_tables,
    diagnosis_table,
    session_table,
    summary_table,
)
from fairshot.reporting.report_figures import FigureWriter, ReportFigure
from fairshot.reporting.runs import Run
from fairshot.reporting.style import method_name
from fairshot.reporting.svg import picture_address
from fairshot.studies.published import PublishedRow, published

MOST_UNFOLDED = 4  # methods that a page shows one by one without being asked


class Confusion(NamedTuple):
    """The picture of a confusion matrix, where its blocks part (in percent), and what was answered."""

    label: str
    method: str
    address: str
    border: float
    answers: dict[str, Answers]


class SessionView(NamedTuple):
    """One session: the classes seen by then, the numbers, the confusion matrices."""

    t: int
    classes: int
    table: PaperTable
    confusions: list[Confusion]


class BalanceCard(NamedTuple):
    """How a method treats base and novel classes on average."""

    label: str
    method: str
    base: float
    novel: float
    ratio: float


@dataclass(frozen=True)
class BenchmarkSection:
    """What the page shows of one benchmark."""

    name: str
    groups: list[Group]
    runs: list[Run]
    shuffled: list[Run]  # in further class orders, of which a table tells and nothing else
    summary: PaperTable
    diagnosis: PaperTable
    conditions: list[Conditions]
    balances: list[BalanceCard]
    sessions: list[SessionView]
    tables: list[PaperTable]
    table_files: dict[str, list[str]]
    plates: dict[str, list[ReportFigure]]  # by section
    confusion_files: tuple[str, ...]
    published_rows: int

    @property
    def method_names(self) -> dict[str, str]:
        """The name of each group on the page, by its label."""
        return {group.label: method_name(place) for place, group in enumerate(self.groups)}

    @property
    def has_namesake(self) -> bool:
        """Whether another chapter has the pictures of another folder of the same name."""
        return self.name.startswith(f"{self.groups[0].benchmark} #")

    @property
    def many(self) -> bool:
        """Whether the page folds up what it shows of each method, so that the comparison stays in sight."""
        return len(self.groups) > MOST_UNFOLDED

    @property
    def means(self) -> dict[tuple[int, ...], list[str]]:
        """The methods that are means over several seeds, by these."""
        found: dict[tuple[int, ...], list[str]] = {}
        for group in self.groups:
            if len(group.results) > 1:
                found.setdefault(tuple(result.seed for result in group.results), []).append(group.label)
        return found

    @property
    def missing(self) -> list[str]:
        """What the runs of this chapter do not hold, runs with the same lack together."""
        lacking: dict[str, list[str]] = {}
        for run in self.runs:
            for text in run.missing:
                lacking.setdefault(text, []).append(run.name)
        everyone = len(self.runs)
        return [
            f"{f'all {everyone} runs' if len(names) == everyone > 1 else ', '.join(names)}: {text}"
            for text, names in lacking.items()
        ]

    def method_of(self, run: Run) -> str:
        """The name of the group that a run belongs to; none for a run in a further class order."""
        places = (i for i, group in enumerate(self.groups) if group.holds(run.result))
        return next(map(method_name, places), "")


def write_chapter(
    name: str, groups: list[Group], runs: Sequence[Run], studio: FigureWriter, reporter: Reporter = SILENT
) -> BenchmarkSection:
    """Draw and write all that these runs allow."""
    alike = [run for run in runs if _is_comparable(run.result, groups[0])]
    own = [run for run in alike if any(group.holds(run.result) for group in groups)]
    rows = published().on(groups[0].official, groups[0].session_count)
    summary, diagnosis = summary_table(groups), diagnosis_table(groups)
    tables = [*comparison_tables(groups, rows), *ablation_tables(groups, published())]
    if (orders := orders_table([run.result for run in alike if run.result], groups)) is not None:
        tables.append(orders)
    written = {
        t.key: write_table(t, studio.out / "tables", studio.prefix) for t in (summary, diagnosis, *tables)
    }
    return BenchmarkSection(
        name=name,
        groups=groups,
        runs=own,
        shuffled=[run for run in alike if not any(group.holds(run.result) for group in groups)],
        summary=summary,
        diagnosis=diagnosis,
        conditions=conditions(groups),
        balances=[balance for place, g in enumerate(groups) if (balance := _balance(place, g)) is not None],
        sessions=[_session_view(groups, t) for t in range(groups[0].session_count)],
        tables=tables,
        table_files={key: [f"tables/{path.name}" for path in paths] for key, paths in written.items()},
        plates=_plates(groups, own, rows, studio, reporter),
        confusion_files=sections.confusion(groups, studio),
        published_rows=len(rows),
    )


def _is_comparable(result: Result | None, group: Group) -> bool:
    task = (group.images, group.session_count)
    return result is not None and (images_of(result), len(result.sessions)) == task


def _plates(
    groups: list[Group], runs: list[Run], rows: list[PublishedRow], studio: FigureWriter, reporter: Reporter
) -> dict[str, list[ReportFigure]]:
    work: dict[str, Callable[[], list[ReportFigure]]] = {
        "accuracy": lambda: sections.accuracy(groups, studio),
        "comparison": lambda: sections.comparison(groups, rows, studio),
        "classes": lambda: sections.classes(groups, studio),
        "gates": lambda: sections.gates(runs, studio),
        "training": lambda: sections.training(groups, runs, studio),
    }
    plates = {}
    with reporter.track("figures", len(work)) as advance:
        for section, draw in work.items():
            plates[section] = draw()
            advance(1, section)
    return plates | {"features": sections.features(groups, runs, studio, reporter)}


def _balance(place: int, group: Group) -> BalanceCard | None:
    base, novel, ratio = (group.summary(measure.pick) for measure in (BASE_AVG, INC_AVG, BASE_INC))
    if base is None or novel is None or ratio is None:
        return None
    return BalanceCard(group.label, method_name(place), base.mean, novel.mean, ratio.mean)


def _session_view(groups: Sequence[Group], t: int) -> SessionView:
    confusions = []
    for place, group in enumerate(groups):
        pixels = confusion_pixels(group, t)
        border = 100 * base_classes(group) / len(pixels)
        picture = picture_address(pixels)
        found = answers(group, t)
        confusions.append(Confusion(group.class_label, method_name(place), picture, border, found))
    seen = sum(len(classes) for classes in groups[0].results[0].sessions[: t + 1])
    return SessionView(t, seen, session_table(groups, t), confusions)
