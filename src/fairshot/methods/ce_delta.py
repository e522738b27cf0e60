"""CE + delta (eq. 3): the baseline with a positive margin, which hurts new classes."""

from __future__ import annotations

from pydantic import Field

from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import CosineObjective, CosineSettings, PrototypeMethod


class MarginSettings(CosineSettings):
    """The margin beside the settings of the skeleton."""

    margin: float = Field(
        0.2, gt=0, description="Subtracted from the cosine of the true class in training (delta)."
    )


class CEDelta(PrototypeMethod[MarginSettings]):
    """Cosine cross-entropy with a margin on the true class, then nearest class mean.

    Needs to know in advance: nothing. Stores: one mean feature a class. Costs at test time: one pass.
    """

    name = "ce_delta"
    Settings = MarginSettings
    card = MethodCard("the baseline with a margin between base classes (fig. 1)")

    def objective(self) -> CosineObjective:
        """Return the cosine cross-entropy with the margin."""
        chosen = self.settings
        return CosineObjective(
            self.embedder, self.base_classes, chosen.views, chosen.scale, margin=chosen.margin
        )
