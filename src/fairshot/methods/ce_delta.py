"""CE + delta (eq. 3): the baseline with a margin between base classes, which hurts new classes."""

from __future__ import annotations

from pydantic import Field

from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import CosineMethod, CosineObjective, CosineSettings


class MarginSettings(CosineSettings):
    """The margin of the cosine cross-entropy."""

    margin: float = Field(
        0.2, gt=0, description="Subtracted from the cosine of the true class in training (delta)."
    )


class CEDelta(CosineMethod[MarginSettings]):
    """Cosine cross-entropy with a margin on the true class, then nearest class mean."""

    name = "ce_delta"
    Settings = MarginSettings
    card = MethodCard(
        "the baseline with a margin between base classes (fig. 1)",
        title="CE + delta",
        paper="Zhao et al., arXiv",
        year=2024,
        grid={"method.margin": (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)},
    )

    def objective(self) -> CosineObjective:
        return CosineObjective(self.embedder, self.base_classes, self.settings, self.settings.margin)
