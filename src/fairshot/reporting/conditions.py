"""Conditions: what a reader must know of each row to compare it fairly with the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from rich.console import Group as Lines
from rich.console import RenderableType

from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.methods.method import Method, MethodSettings
from fairshot.reporting.groups import Group, group_results
from fairshot.reporting.settings import backbone_of, section
from fairshot.reporting.terminal import heading, plain_table

UNKNOWN = "?"  # in place of what this version does not know of a method


@dataclass(frozen=True)
class Conditions:
    """What a method is told and keeps, what it costs, and what it was trained with."""

    label: str
    summary: str
    backbone: str
    epochs: str
    future: str  # whether it must be told the number of classes to come
    pictures: str  # whether it keeps pictures of old classes
    stores: str
    passes: str
    unlabelled: str  # whether unlabelled test images moved the classifiers

    @property
    def cells(self) -> tuple[str, ...]:
        """The values, in the order of `TITLES`."""
        return (
            self.label,
            self.backbone,
            self.epochs,
            self.passes,
            self.future,
            self.pictures,
            self.unlabelled,
            self.stores,
        )


TITLES = {
    "method": "and where several runs share it, what sets this one apart",
    "backbone": "the network",
    "epochs": "of the base session, and of further phases of it",
    "passes": "of the network for one test image",
    "knows future": "whether it must be told the number of classes to come",
    "keeps pictures": "of old classes",
    "unlabelled": "whether unlabelled test images move its classifiers",
    "stores": "what it keeps of each class",
}


def conditions(groups: Sequence[Group]) -> list[Conditions]:
    """Return the conditions of each group of runs."""
    return [_conditions(group) for group in groups]


def conditions_table(results: Sequence[Result]) -> RenderableType:
    """Show the conditions of runs in a terminal, methods on several benchmarks once for each."""
    table = plain_table()
    for title in TITLES:
        table.add_column(title.replace(" ", "\n"))
    seen = dict.fromkeys(one.cells for one in conditions(group_results(results)))
    for cells in seen:
        table.add_row(*cells)
    return Lines(heading("conditions"), table)


def _conditions(group: Group) -> Conditions:
    result = group.results[0]
    kind = methods().get(result.method)
    card = kind.card if kind else None
    epochs, passes = str(section(result.recipe, "training").get("epochs", UNKNOWN)), UNKNOWN
    if kind is not None:
        settings = _settings(kind, section(result.recipe, "method"))
        passes = str(kind.passes(settings))
        further = kind.further_epochs(settings)
        epochs += f" + {further}" if further else ""
    return Conditions(
        label=group.label,
        summary=card.summary if card else UNKNOWN,
        backbone=backbone_of(result.recipe) or UNKNOWN,
        epochs=epochs,
        future=_yes(card.knows_future) if card else UNKNOWN,
        pictures=_yes(card.keeps_exemplars) if card else UNKNOWN,
        stores=card.stores if card else UNKNOWN,
        passes=passes,
        unlabelled=_yes(result.transductive),
    )


def _settings(kind: type[Method[Any]], given: Mapping[str, Any]) -> MethodSettings:
    """Read the method's own settings; the defaults where the result is of another version."""
    try:
        return kind.Settings.model_validate({k: v for k, v in given.items() if k != "name"})
    except ValidationError:
        return kind.Settings()


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
