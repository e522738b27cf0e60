"""SSS: Stimulation, Separately dual-feature classification, Self-optimizing classifiers."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fairshot.classifiers.calibration import calibrate, calibrate_labelled, degrees
from fairshot.classifiers.gate import FirstLook, Rule, Space, Spread
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, resist
from fairshot.classifiers.similarity import similarity
from fairshot.methods.dual import Dual, DualSettings
from fairshot.methods.method import Facts, split_known
from fairshot.models.embedder import Features

GATE = "gate."  # before the names of its tensors


class SSSSettings(DualSettings):
    """The gate, and the strengths of self-optimizing prototypes."""

    # The gate between the two looks, which the paper has not; `fairshot tradeoff` chooses it
    gate: Rule = "plain"  # how the first look favours novel classes
    gate_strength: float = Field(0.0, ge=0)
    whitening: bool = False  # whether the first look compares whitened features
    power: float = Field(0.5, gt=0)
    shrinkage: float = Field(1.0, gt=0)
    own_share: float = Field(0.0, ge=0, lt=1)  # of a class's own covariance in whitening
    # Self-optimizing classifiers (section 3.3)
    gamma: float = Field(0.2, ge=0)
    alpha_base: float = Field(0.1, ge=0, le=1)
    alpha_novel: float = Field(0.6, ge=0, le=1)

    @model_validator(mode="after")
    def _gate_fits(self) -> Self:
        if self.gate == "left_out" and self.gate_strength > 1:
            raise ValueError(f"gate_strength is a share of the shots with left_out, got {self.gate_strength}")
        if self.has_gate and self.way != "separately":
            raise ValueError(f"a gate decides between two looks, and way is {self.way}; expected separately")
        return self

    @property
    def has_gate(self) -> bool:
        """Whether the first look differs from the paper's."""
        return self.gate != "plain" or self.whitening


class SSS(Dual[SSSSettings]):
    """The paper's method with prototype classifiers.

    Needs to know in advance: nothing. Stores: mean features g and g~ of each class, plain and flipped.
    Costs at test time: two passes, of the picture as it is and flipped.
    """

    name = "sss"
    Settings = SSSSettings
    facts = Facts(
        "surplus classes, two kinds of features decided separately, self-optimizing classifiers",
        stores="four mean features a class",
        passes=2,
    )
    decision_settings = Dual.decision_settings | {
        *("gate", "gate_strength", "whitening", "power", "shrinkage", "own_share"),
        *("gamma", "alpha_base", "alpha_novel"),
    }
    state = ("prototypes", "prototypes_tilde", "delta", "counts")
    prototypes_tilde: Tensor  # P~ of h~, (C, V, d~)
    delta: Tensor  # directions of the novel classes met so far, for each base class (B, V, d~)
    counts: Tensor  # (C,) labelled pictures behind each prototype
    look: FirstLook | None = None  # in place of h in the first look, if there is a gate

    def start(self, features: Features, labels: Tensor) -> None:
        """Make h and h~ of the base classes."""
        base = range(self.base_classes)
        self.prototypes = prototypes(features["g"], labels, base)
        self.prototypes_tilde = prototypes(features["g_tilde"], labels, base)
        self.delta = torch.zeros_like(self.prototypes_tilde)
        self.counts = labels.bincount(minlength=self.base_classes)
        self.look = self._gate(features["g"], labels)

    def _gate(self, g: Tensor, labels: Tensor) -> FirstLook | None:
        """Make the first look of the settings, or none if it is the paper's."""
        chosen = self.settings
        if not chosen.whitening:
            return FirstLook.begin(self.prototypes, self.counts) if chosen.has_gate else None
        spread = Spread.fit(g, labels, self.base_classes, chosen.power)
        return FirstLook.whitened(g, labels, spread, Space(chosen.power, chosen.shrinkage, chosen.own_share))

    def extend(self, features: Features, labels: Tensor) -> None:
        """Add new classes to h and h~ and to Delta; labelled pictures of known classes calibrate them."""
        known, fresh = split_known(labels, self.seen_classes)
        g, g_tilde = features["g"], features["g_tilde"]
        P, counts = calibrate_labelled(self.prototypes, self.counts, g[known], labels[known])
        P_tilde, _ = calibrate_labelled(self.prototypes_tilde, self.counts, g_tilde[known], labels[known])
        delta = self.delta
        if fresh:
            novel_tilde = prototypes(g_tilde, labels, fresh)
            delta = accumulate(delta, P_tilde[: self.base_classes], novel_tilde)
            P, P_tilde = torch.cat([P, prototypes(g, labels, fresh)]), torch.cat([P_tilde, novel_tilde])
            counts = torch.cat([counts, labels.bincount()[fresh.start :]])
        look = None if self.look is None else self.look.extended(g, labels, fresh)
        # Assigned together and last: whatever fails above, nothing is learnt by half.
        self.look = look
        self.prototypes, self.prototypes_tilde, self.delta, self.counts = P, P_tilde, delta, counts

    def adapt(self, features: Features) -> None:
        """Calibrate h with unlabelled pictures (eq. 9 and 10)."""
        chosen = self.settings
        alpha = degrees(self.seen_classes, self.base_classes, chosen.alpha_base, chosen.alpha_novel)
        found = calibrate(self.prototypes, features["g"], alpha, chosen.threshold, chosen.at_most)
        if self.look is not None:
            self.look = self.look.calibrated(features["g"], found.absorbed_by, alpha)
        self.prototypes = found.prototypes

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt, the gate too."""
        gate = {} if self.look is None else self.look.tensors()
        return super().tensors() | {f"{GATE}{name}": value for name, value in gate.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned earlier."""
        super().restore(tensors)
        device = self.embedder.device
        gate = {k.removeprefix(GATE): v.to(device) for k, v in tensors.items() if k.startswith(GATE)}
        if self.settings.has_gate:
            self.look = FirstLook.from_tensors(self.base_classes, gate, self.settings.power)

    def first_look(self, g: Tensor) -> Tensor:
        """Return what g and h say of every class (N, C), novel classes favoured if there is a gate."""
        if self.look is None:
            return similarity(g, self.prototypes)
        return self.look.opened(self.look.scores(g), self.settings.gate, self.settings.gate_strength)

    def resisting_prototypes(self) -> Tensor:
        """Return P~ with the base classes moved for this inference (eq. 7); what is stored stays."""
        if not self.settings.resistance:
            return self.prototypes_tilde
        base = self.prototypes_tilde[: self.base_classes]
        novel = self.prototypes_tilde[self.base_classes :]
        return torch.cat([resist(base, self.delta, self.settings.gamma), novel])
