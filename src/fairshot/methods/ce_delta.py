"""CE + delta (eq. 3): the baseline with a positive margin, which hurts new classes."""

from __future__ import annotations

from pydantic import Field

from fairshot.methods.method import Facts
from fairshot.methods.skeleton import CosineObjective, Skeleton, SkeletonSettings


class MarginSettings(SkeletonSettings):
    """The margin beside the settings of the skeleton."""

    margin: float = Field(0.2, gt=0)  # delta, in units of the cosine


class CEDelta(Skeleton[MarginSettings]):
    """Cosine cross-entropy with a margin on the true class, then nearest class mean.

    Needs to know in advance: nothing. Stores: one mean feature a class. Costs at test time: one pass.
    """

    name = "ce_delta"
    Settings = MarginSettings
    facts = Facts("the baseline with a margin between base classes (fig. 1)")

    def objective(self) -> CosineObjective:
        """Return the cosine cross-entropy with the margin."""
        chosen = self.settings
        return CosineObjective(
            self.embedder, self.base_classes, chosen.views, chosen.scale, margin=chosen.margin
        )
