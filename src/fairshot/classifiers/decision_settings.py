"""How `DualClassifier` decides and optimises itself: its settings, and the only defaults of them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fairshot.classifiers.bounded_calibration import Bounds
from fairshot.classifiers.combination import Rule
from fairshot.classifiers.novel_bias import Bias
from fairshot.settings import Settings, Share


class DecisionSettings(Settings):
    """How g and g~ decide, and how the classifiers optimise themselves."""

    # Separately dual-feature classification (section 3.2)
    decision: Rule = Field(
        "separately", description="How g and g~ decide; the others are of tables 3 and 11."
    )
    # The gate, which the paper has not; `fairshot.studies` chooses it
    gate: Bias = Field("plain", description="Which bias the scores of novel classes by g get.")
    gate_strength: float = Field(0.0, ge=0, description="How strong that bias is.")
    whitening: bool = Field(False, description="Whether g is compared in the space whitened within classes.")
    power: float = Field(0.5, gt=0, description="Power to which g is raised before whitening.")
    shrinkage: float = Field(1.0, gt=0, description="Of the covariance, in units of its mean variance.")
    class_covariance_share: float = Field(
        0.0, ge=0, lt=1, description="Share of each class's own covariance in whitening."
    )
    # Self-optimizing classifiers (section 3.3)
    resistance: bool = Field(
        True, description="Whether base classes of h~ move away from novel ones (eq. 7)."
    )
    threshold: float = Field(0.8, ge=-1, le=1, description="r of eq. 10: cosine from which a sample counts.")
    at_most: int = Field(40, ge=1, description="R of eq. 10: samples per class that count.")
    recognised_by: Literal["similarity", "answers"] = Field(
        "similarity",
        description="How Calibration recognises a sample: by the cosine of g (eq. 10), or by the whole "
        "decision; r is then of the score of g, whitened or not, without the bias of the gate.",
    )

    @model_validator(mode="after")
    def _gate_fits(self) -> Self:
        if self.gate == "left_out" and self.gate_strength > 1:
            raise ValueError(f"gate_strength is a share of the shots with left_out, got {self.gate_strength}")
        if self.gate == "plain" and self.gate_strength:
            raise ValueError(f"gate_strength is of a gate other than plain, got {self.gate_strength}")
        if self.class_covariance_share and not self.whitening:
            raise ValueError("class_covariance_share is a part of whitening, which is off")
        if self.has_gate and self.decision not in ("separately", "transferable_only"):
            raise ValueError(f"a gate needs decision separately or transferable_only, got {self.decision}")
        return self

    @property
    def has_gate(self) -> bool:
        """Whether g decides otherwise than in the paper."""
        return self.gate != "plain" or self.whitening

    @property
    def weighs_images(self) -> bool:
        """Whether classes can be made of weighted images: prototypes can, a gate counts its images."""
        return not self.has_gate


class PrototypeSettings(DecisionSettings):
    """Decide by prototypes."""

    gamma: float = Field(0.2, ge=0, description="Strength of Resistance (eq. 7), of normalised prototypes.")
    alpha_base: Share = Field(0.1, description="Alpha of eq. 9 for base classes: weight of absorbed samples.")
    alpha_novel: Share = Field(0.6, description="Alpha of eq. 9 for novel classes.")
    bounded: bool = Field(False, description="Whether Calibration withstands hostile unlabelled images.")
    drift: float = Field(
        0.2, ge=0, description="Bounded: farthest a class moves, as a share of the way to the nearest other."
    )

    @model_validator(mode="after")
    def _bounded_by_similarity(self) -> Self:
        if self.bounded and self.recognised_by != "similarity":
            raise ValueError(f"bounded recognises by similarity, got recognised_by {self.recognised_by}")
        return self

    @property
    def bounds(self) -> Bounds:
        """How much unlabelled images may do in bounded Calibration."""
        return Bounds(self.threshold, self.at_most, self.drift)


class MixtureSettings(DecisionSettings):
    """Decide by Bayesian Gaussian mixtures (appendix C)."""

    gamma: float = Field(1.0, gt=0, description="gamma' of eq. 22: the smaller, the more a weight decays.")
    components_base: int = Field(3, ge=1, description="M of eq. 19 for base classes.")
    components_novel: int = Field(1, ge=1, description="M of eq. 19 for novel classes.")
    prior_base: float = Field(20.0, gt=0, description="alpha' of eq. 24: samples the prior mean is worth.")
    prior_novel: float = Field(10.0, gt=0, description="alpha' of eq. 24 for novel classes.")
    prior_freedom: float | None = Field(
        None,
        gt=0,
        description="Samples the prior covariance is worth; null: scikit-learn's prior, with which "
        "components of hundreds of features collapse into one unless they lie far apart.",
    )

    @property
    def weighs_images(self) -> bool:
        """Mixtures weigh all images alike."""
        return False
