"""The gates that are tried: every bias over its strengths, in every space."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from fairshot.classifiers.novel_bias import Bias

POWERS = (0.5, 0.7, 1.0)
SHRINKAGES = (0.5, 1.0, 2.0, 4.0, 8.0)
SHARES = (0.1, 0.2, 0.4, 0.6)
STRENGTHS: Mapping[Bias, tuple[float, ...]] = {
    "constant": (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2),
    "unbiased": (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
    "left_out": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
}
GAMMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclass(frozen=True, order=True)
class Space:
    """How features g are compared: whitened, and with a share of each class's own covariance."""

    power: float
    shrinkage: float
    class_covariance_share: float = 0.0


@dataclass(frozen=True)
class Gate:
    """A rule with all of its parameters: the settings of SSS that decide between g and g~."""

    rule: Bias
    strength: float
    space: Space | None = None  # None: features are compared as they are
    gamma: float = 0.0  # of Resistance, on g~

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Gate:
        """Return the gate that has these settings."""
        space = Space(*(settings[each.name] for each in fields(Space))) if settings["whitening"] else None
        return cls(settings["gate"], settings["gate_strength"], space, settings["gamma"])

    @property
    def family(self) -> str:
        """The name of its curve."""
        if self.rule == "plain":
            return "Resistance"
        if self.space is None:
            kind = ""
        else:
            kind = "own covariance, " if self.space.class_covariance_share else "whitened, "
        return kind + self.rule.replace("_", " ")

    @property
    def position(self) -> float:
        """The parameter that moves along the curve."""
        return self.gamma if self.rule == "plain" else self.strength

    def settings(self) -> dict[str, Any]:
        """The settings of SSS that are this gate."""
        space = {"whitening": False} if self.space is None else {"whitening": True, **asdict(self.space)}
        resistance = {"resistance": self.gamma > 0, "gamma": self.gamma}
        return {"gate": self.rule, "gate_strength": self.strength, **space, **resistance}


def curve(gate: Gate) -> list[Gate]:
    """Return the gates that differ from this one only in where they are on the curve."""
    if gate.rule == "plain":
        return [replace(gate, gamma=gamma) for gamma in GAMMAS]
    return [replace(gate, strength=strength) for strength in STRENGTHS[gate.rule]]


def gates_of(spaces: Iterable[Space | None]) -> list[Gate]:
    """Return every rule at every strength in some spaces."""
    starts = [Gate(rule, 0.0, space) for space in spaces for rule in STRENGTHS]
    return [gate for start in starts for gate in curve(start)]


def common_gates() -> list[Gate]:
    """Return Resistance, and every rule on features as they are and whitened alike for all classes."""
    spaces = itertools.starmap(Space, itertools.product(POWERS, SHRINKAGES))
    return [*curve(Gate("plain", 0.0)), *gates_of([None, *spaces])]


def own_gates(near: Space) -> list[Gate]:
    """Return the rules with classes' own covariances, in spaces near one that is good without them."""
    index = SHRINKAGES.index(near.shrinkage)
    around = SHRINKAGES[max(0, index - 1) : index + 2]
    return gates_of(Space(near.power, s, share) for s, share in itertools.product(around, SHARES))
