"""Conditions: what a reader must know of a method to compare it fairly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fairshot.evaluation.result import Result
from fairshot.methods import methods
from fairshot.methods.method import Method, MethodSettings
from fairshot.reporting.groups import Group, backbone_of, without_seed

BUDGETS = {"epochs": "recipe's epochs", "images": "images", "authors": "authors' epochs"}
YES = {True: "yes", False: "no"}
UNKNOWN = "?"  # instead of what this version does not know of a method
CONDITIONS = {
    "method": "and where several runs share it, what sets this one apart",
    "backbone": "the network",
    "epochs": "of the base session, and of further phases of it",
    "images": "through the network in the base session, counted in the training loop: all views, fused and "
    "flipped ones included",
    "budget": "what decided for how long it was trained",
    "engine": "initialisation of the network, crops, average of the weights, further augmentation, "
    "images of fewer pixels in the first epochs",
    "passes": "of the network for one test image",
    "knows future": "whether it must be told the number of classes to come",
    "keeps pictures": "of old classes",
    "unlabelled": "whether unlabelled test images move its classifiers",
    "stores": "what it keeps of each class",
    "per class": "memory that this takes beside the networks, after the last session; what classes share, "
    "such as the space of a gate, is divided among them",
}


@dataclass(frozen=True)
class Conditions:
    """What a reader must know of a method to compare it fairly; `values` by the titles in `CONDITIONS`."""

    summary: str  # what the method does
    values: dict[str, str]


def conditions(group: Group) -> Conditions:
    """Return what a method is told and keeps, what a test image costs, and what it was trained with."""
    result = group.results[0]
    values = dict.fromkeys(CONDITIONS, UNKNOWN) | {
        "method": group.label,
        "backbone": backbone_of(group) or UNKNOWN,
        "epochs": str(
            result.section("training").get("epochs", UNKNOWN) if result.epochs is None else result.epochs
        ),
        "images": _images(result),
        "budget": BUDGETS[result.budget],
        "engine": _engine(result),
        "unlabelled": YES[result.transductive],
        "per class": _per_class(result),
    }
    kind = methods().get(result.method)
    if kind is None:
        return Conditions(UNKNOWN, values)
    settings, card = _settings(kind, result.section("method")), kind.card
    if further := kind.further_epochs(settings):
        values["epochs"] += f" + {further}"
    values |= {
        "passes": str(kind.passes(settings)),
        "knows future": YES[card.knows_future],
        "keeps pictures": YES[card.keeps_exemplars],
        "stores": card.stores,
    }
    return Conditions(card.summary, values)


def known_titles(methods: Sequence[Conditions]) -> list[str]:
    """Return the titles of conditions that are known of at least one of the methods."""
    return [title for title in CONDITIONS if any(one.values[title] != UNKNOWN for one in methods)]


def _images(result: Result) -> str:
    """Return how many images the base session took; none where nothing was trained."""
    images = 0 if result.untrained else result.images
    return UNKNOWN if images is None else f"{images:,}"


def _per_class(result: Result) -> str:
    """Return the memory that a class takes on average, in thousands of bytes."""
    if result.kept_bytes is None:
        return UNKNOWN
    return f"{result.kept_bytes / sum(map(len, result.sessions)) / 1000:,.1f} KB"


def _engine(result: Result) -> str:
    """Return the choices of training that are no method's own, which a comparison gives to all alike."""
    complete = result.model_copy(update={"recipe": without_seed(result)})
    model, views, training = (complete.section(name) for name in ("model", "views", "training"))
    if not {"initialisation", "crop_rule", "average_decay"} <= {*model, *views, *training}:
        return UNKNOWN
    pretrained = model["pretrained"] or model["weights"]
    begins = "pretrained" if pretrained else f"{model['initialisation']} initialisation"
    average = training["average_decay"]
    chosen = [begins, f"{views['crop_rule']} crops", f"average {average:g}" if average else "no average"]
    chosen += ["AutoAugment"] * bool(views["autoaugment"]) + ["Cutout"] * bool(views["cutout"])
    if low := training.get("low_resolution"):
        share = 100 * training["low_resolution_share"]
        chosen.append(f"{low} pixels in the first {share:g} % of the epochs")
    return ", ".join(chosen)


def _settings(kind: type[Method[Any]], given: Mapping[str, Any]) -> MethodSettings:
    """Read the method's own settings; the defaults where the result is of another version."""
    try:
        return kind.Settings.model_validate({k: v for k, v in given.items() if k != "name"})
    except ValidationError:
        return kind.Settings()
