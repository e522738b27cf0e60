"""What a report needs to know of a resolved recipe: the backbone, and which parts of SSS were on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairshot.errors import UserError
from fairshot.methods import methods
from fairshot.methods.dual_method import DualMethod
from fairshot.recipes import check_recipe

PARTS = {
    "intra": ("Intra", "the vertical flip is a second component of each class"),
    "inter": ("Inter", "blends of two classes are classes of their own"),
    "sr": ("SR", "a module after the backbone, and with it two kinds of features"),
    "resistance": ("R", "base prototypes move away from similar novel classes"),
    "calibration": ("C", "prototypes move towards unlabelled samples recognised as theirs"),
}


def section(recipe: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of a recipe; an empty one where a result of another version has none."""
    found = recipe.get(name)
    return found if isinstance(found, Mapping) else {}


def without_seed(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What runs with different seeds have in common.

    An option that a run of an earlier version could not name counts as its default, which is how it ran.
    """
    name = section(recipe, "method").get("name")
    try:
        complete = check_recipe(recipe).as_dict() if name in methods() else recipe
    except UserError:  # of another version, or not one of ours: taken as it was written
        complete = recipe
    return {key: value for key, value in complete.items() if key != "seed"}


def backbone_of(recipe: Mapping[str, Any]) -> str | None:
    """Find the name of the backbone."""
    return section(recipe, "model").get("backbone")


def is_baseline(method: str) -> bool:
    """Whether a method is the one that others add something to."""
    kind = methods().get(method)
    return kind is not None and kind.card.baseline


def is_sss(method: str) -> bool:
    """Whether a method is the paper's own, with either kind of classifiers; figures draw it thick."""
    kind = methods().get(method)
    return kind is not None and issubclass(kind, DualMethod)


def parts_of(method: str, recipe: Mapping[str, Any]) -> frozenset[str] | None:
    """Find which parts of SSS were on; the baseline is SSS without any, others have no such parts."""
    if is_baseline(method):
        return frozenset()
    switches = section(recipe, "method")
    if not PARTS.keys() <= switches.keys():
        return None
    return frozenset(part for part in PARTS if switches[part])


def decision_of(recipe: Mapping[str, Any]) -> str:
    """Find the way in which a run of SSS combined the two kinds of features."""
    return str(section(recipe, "method").get("decision", "separately"))
