"""SSS: Stimulation, Separately dual-feature classification, Self-optimizing classifiers."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fairshot.classifiers import bounded_calibration
from fairshot.classifiers.bounded_calibration import Bounds, Calibration, Entry
from fairshot.classifiers.calibration import calibrate, calibrate_labelled, degrees
from fairshot.classifiers.gate import Rule, TransferableClassifier
from fairshot.classifiers.prototypes import prototypes
from fairshot.classifiers.resistance import accumulate, resist
from fairshot.classifiers.whitening import OwnSpread, Spread
from fairshot.errors import UserError
from fairshot.methods.dual import Dual, DualSettings
from fairshot.methods.method import MethodCard, split_known
from fairshot.models.embedder import Features
from fairshot.settings import Share

GATE, MEMORY = "gate.", "calibration."  # before the names of their tensors


class SSSSettings(DualSettings):
    """The gate, and the strengths of self-optimizing prototypes."""

    # The gate between the two looks, which the paper has not; `fairshot tradeoff` chooses it
    gate: Rule = Field(
        "plain", description="How the transferable scores favour novel classes; the paper's rule is plain."
    )
    gate_strength: float = Field(
        0.0, ge=0, description="Strength of the gate; with left_out a share of the shots."
    )
    whitening: bool = Field(False, description="Compare whitened features in the transferable scores.")
    power: float = Field(
        0.5, gt=0, description="Exponent of the features before they are whitened, which tames large ones."
    )
    shrinkage: float = Field(
        1.0, gt=0, description="Amount of the identity added to the covariance before it is inverted."
    )
    class_covariance_share: float = Field(
        0.0, ge=0, lt=1, description="Share of a class's own covariance in whitening."
    )
    # Self-optimizing classifiers (section 3.3)
    gamma: float = Field(0.2, ge=0, description="Strength of Resistance; more favours novel classes.")
    alpha_base: Share = Field(0.1, description="Degree of Calibration of base classes (alpha of eq. 9).")
    alpha_novel: Share = Field(0.6, description="Degree of Calibration of novel classes (alpha of eq. 9).")
    bounded: bool = Field(
        False, description="Calibration with bounds that no stream of unlabelled pictures exceeds."
    )
    drift: float = Field(
        0.2,
        ge=0,
        description="Farthest it moves a class, as a share of the distance to the nearest other one.",
    )

    @model_validator(mode="after")
    def _gate_fits(self) -> Self:
        if self.gate == "left_out" and self.gate_strength > 1:
            raise ValueError(f"gate_strength is a share of the shots with left_out, got {self.gate_strength}")
        if self.has_gate and self.decision != "separately":
            raise ValueError(f"a gate needs decision separately, got {self.decision}")
        if self.has_gate and self.bounded:
            raise ValueError("bounded Calibration moves the first look of the paper; expected gate plain")
        return self

    @property
    def bounds(self) -> Bounds:
        """How much unlabelled pictures may do in bounded Calibration."""
        return Bounds(self.threshold, self.at_most, self.drift)

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
    card = MethodCard(
        "surplus classes, two kinds of features decided separately, self-optimizing classifiers",
        stores="four mean features a class",
    )
    decision_settings = Dual.decision_settings | {
        *("gate", "gate_strength", "whitening", "power", "shrinkage", "class_covariance_share"),
        *("gamma", "alpha_base", "alpha_novel", "bounded", "drift"),
    }
    buffers = ("prototypes", "prototypes_tilde", "delta", "counts")
    prototypes_tilde: Tensor  # P~ of h~, (C, V, d~)
    delta: Tensor  # directions of the novel classes met so far, for each base class (B, V, d~)
    counts: Tensor  # (C,) labelled pictures behind each prototype
    look: TransferableClassifier | None = None  # in place of h in the first look, if there is a gate
    memory: Calibration | None = None  # of bounded Calibration, once pictures without labels came

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Make h and h~ of the base classes."""
        base = range(self.base_classes)
        self.prototypes = prototypes(features["g"], labels, base)
        self.prototypes_tilde = prototypes(features["g_tilde"], labels, base)
        self.delta = torch.zeros_like(self.prototypes_tilde)
        self.counts = labels.bincount(minlength=self.base_classes)
        self.look, self.memory = self._begin_look(features["g"], labels), None

    def _begin_look(self, g: Tensor, labels: Tensor) -> TransferableClassifier | None:
        """Make the first look of the settings, or none if it is the paper's."""
        chosen = self.settings
        if not chosen.whitening:
            return TransferableClassifier.begin(self.prototypes, self.counts) if chosen.has_gate else None
        spread = Spread.fit(g, labels, self.base_classes, chosen.power)
        own = None
        if chosen.class_covariance_share:
            own = OwnSpread.fit(g, labels, spread, chosen.shrinkage).metrics(chosen.class_covariance_share)
        return TransferableClassifier.whitened(spread, self.counts, chosen.shrinkage, own)

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Add new classes to h and h~ and to Delta; labelled pictures of known classes calibrate them."""
        known, fresh = split_known(labels, self.seen_classes)
        g, g_tilde = features["g"], features["g_tilde"]
        labelled = self.prototypes if self.memory is None else self.memory.labelled
        P, counts = calibrate_labelled(labelled, self.counts, g[known], labels[known])
        P_tilde, _ = calibrate_labelled(self.prototypes_tilde, self.counts, g_tilde[known], labels[known])
        delta = self.delta
        if fresh:
            novel_tilde = prototypes(g_tilde, labels, fresh)
            delta = accumulate(delta, P_tilde[: self.base_classes], novel_tilde)
            P, P_tilde = torch.cat([P, prototypes(g, labels, fresh)]), torch.cat([P_tilde, novel_tilde])
            counts = torch.cat([counts, labels.bincount()[fresh.start :]])
        look = None if self.look is None else self.look.extended(self.look.see(g), labels, fresh)
        memory = None
        if self.memory is not None:
            memory = bounded_calibration.relabel(self.memory, P, self._alpha(len(P)), self.settings.bounds)
            P = bounded_calibration.prototypes(memory, self.settings.bounds)
        # Assigned together and last: whatever fails above, nothing is learnt by half.
        self.look, self.memory = look, memory
        self.prototypes, self.prototypes_tilde, self.delta, self.counts = P, P_tilde, delta, counts

    def adapt(self, features: Features) -> None:
        """Calibrate h with unlabelled pictures (eq. 9 and 10), within bounds if the settings say so."""
        chosen, g = self.settings, features["g"]
        alpha = self._alpha(self.seen_classes)
        if chosen.bounded:
            memory = bounded_calibration.begin(self.prototypes, alpha) if self.memory is None else self.memory
            ids = torch.arange(len(g), device=g.device) + memory.shown
            self._remember(bounded_calibration.absorb(memory, g, ids, chosen.bounds))
            return
        found = calibrate(self.prototypes, g, alpha, chosen.threshold, chosen.at_most)
        if self.look is not None:
            self.look = self.look.calibrated(g, found.absorbed_by, alpha)
        self.prototypes = found.prototypes

    @property
    def journal(self) -> tuple[Entry, ...]:
        """What each batch of unlabelled pictures did, if Calibration is bounded."""
        return () if self.memory is None else self.memory.journal

    def rollback(self, batches: int = 1) -> None:
        """Undo the last batches of unlabelled pictures, if Calibration is bounded."""
        if not 0 <= batches <= len(self.journal):
            raise UserError(
                f"rollback: {batches} batches of unlabelled pictures were to be undone; "
                f"the journal has {len(self.journal)}"
            )
        if self.memory is not None:
            self._remember(bounded_calibration.rollback(self.memory, batches, self.settings.bounds))

    def _remember(self, memory: Calibration) -> None:
        self.memory, self.prototypes = memory, bounded_calibration.prototypes(memory, self.settings.bounds)

    def _alpha(self, classes: int) -> Tensor:
        return degrees(classes, self.base_classes, self.settings.alpha_base, self.settings.alpha_novel)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt, the gate and what Calibration remembers too."""
        learnt = super().tensors()
        for prefix, part in ((GATE, self.look), (MEMORY, self.memory)):
            if part is not None:
                learnt |= {f"{prefix}{name}": value for name, value in part.tensors().items()}
        return learnt

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned earlier."""
        super().restore(tensors)
        gate, memory = (self._own(prefix, tensors) for prefix in (GATE, MEMORY))
        self.look = (
            TransferableClassifier.from_tensors(self.base_classes, gate, self.settings.power)
            if gate
            else None
        )
        self.memory = Calibration.from_tensors(memory) if memory else None

    def first_look(self, g: Tensor) -> Tensor:
        """Return what g and h say of every class (N, C), novel classes favoured if there is a gate."""
        if self.look is None:
            return super().first_look(g)
        return self.look.opened(self.look.scores(g), self.settings.gate, self.settings.gate_strength)

    def resisting_prototypes(self) -> Tensor:
        """Return P~ with the base classes moved for this inference (eq. 7); what is stored stays."""
        if not self.settings.resistance:
            return self.prototypes_tilde
        base = self.prototypes_tilde[: self.base_classes]
        novel = self.prototypes_tilde[self.base_classes :]
        return torch.cat([resist(base, self.delta, self.settings.gamma), novel])
