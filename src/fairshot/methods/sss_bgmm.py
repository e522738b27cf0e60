"""SSS with BGMM classifiers (appendix C): a mixture for each class and view in place of a prototype."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fairshot.classifiers.bgmm import BGMM
from fairshot.classifiers.calibration import degrees, recognise
from fairshot.classifiers.mixtures import fit_mixtures
from fairshot.classifiers.similarity import similarity
from fairshot.methods.dual import Dual, DualSettings
from fairshot.methods.method import MethodCard, split_known
from fairshot.models.embedder import Features

KINDS = ("g", "g_tilde")


class BGMMSettings(DualSettings):
    """The mixtures, and the strengths with which they optimize themselves."""

    components_base: int = Field(3, ge=1, description="Components of a base class's mixture (M of eq. 19).")
    components_novel: int = Field(1, ge=1, description="Components of a novel class's mixture.")
    gamma: float = Field(
        1.0, gt=0, description="Gamma' of eq. 22: the smaller, the more the weights of base classes decay."
    )
    prior_base: float = Field(
        20.0, gt=0, description="Samples that the prior mean of a base class is worth (alpha' of eq. 24)."
    )
    prior_novel: float = Field(10.0, gt=0, description="The same for novel classes.")
    # Samples that the prior covariance is worth; None: the prior of scikit-learn, with which components of
    # hundreds of features collapse into one unless they lie far apart.
    prior_freedom: float | None = Field(
        None, gt=0, description="Samples that the prior covariance is worth; null: scikit-learn's prior."
    )


class SSSBGMM(Dual[BGMMSettings]):
    """The paper's method with mixture classifiers.

    Needs to know in advance: nothing. Stores: mixtures of features g and g~ of each class, plain and flipped,
    three components a base class and one a novel class. Costs at test time: two passes, as SSS.
    """

    name = "sss_bgmm"
    Settings = BGMMSettings
    card = MethodCard(
        "SSS whose classes are Bayesian Gaussian mixtures",
        stores="four mixtures a class, of three components (base) or one (novel)",
    )
    decision_settings = Dual.decision_settings | {
        *("components_base", "components_novel", "gamma", "prior_base", "prior_novel", "prior_freedom")
    }
    buffers = ("prototypes", "counts")
    counts: Tensor  # (C,) labelled pictures behind each class
    mixtures: dict[str, BGMM]  # h_b of g, and h~_b of g~

    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Fit the mixtures of the base classes (eq. 19)."""
        base, chosen = range(self.base_classes), self.settings
        self.counts = labels.bincount(minlength=self.base_classes)
        found = {}
        for kind in KINDS:
            components, freedom = chosen.components_base, chosen.prior_freedom
            found[kind] = BGMM(fit_mixtures(features[kind], labels, base, components, freedom=freedom))
        self._take(found)

    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Fit new classes, and no other; labelled pictures of known classes move them."""
        known, fresh = split_known(labels, self.seen_classes)
        found, counts = {}, self.counts + labels[known].bincount(minlength=self.seen_classes)
        for kind, mixtures in self.mixtures.items():
            found[kind] = mixtures.refined(self.counts, features[kind][known], labels[known])
            if fresh:
                components = self.settings.components_novel
                found[kind] = found[kind].extended(features[kind], labels, fresh, components)
        # Assigned together and last: whatever fails above, nothing is learnt by half.
        self.counts = torch.cat([counts, labels.bincount()[fresh.start :]]) if fresh else counts
        self._take(found)

    def adapt(self, features: Features) -> None:
        """Calibrate h_b with unlabelled pictures (eq. 10 and 24)."""
        chosen, g = self.settings, features["g"]
        absorbed_by = recognise(similarity(g, self.prototypes), chosen.threshold, chosen.at_most)
        strength = degrees(self.seen_classes, self.base_classes, chosen.prior_base, chosen.prior_novel)
        self._take(self.mixtures | {"g": self.mixtures["g"].calibrated(g, absorbed_by, strength)})

    def resisting_prototypes(self) -> Tensor:
        """Return the overall means of h~_b once the weights of base classes have decayed (eq. 22 and 23)."""
        mixtures, chosen = self.mixtures["g_tilde"], self.settings
        means = mixtures.resisting(chosen.gamma) if chosen.resistance else mixtures.means
        return means.to(self.prototypes)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt, the mixtures too."""
        learnt = super().tensors()
        for kind, mixtures in self.mixtures.items():
            learnt |= {f"mixtures.{kind}.{name}": value for name, value in mixtures.tensors().items()}
        return learnt

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned earlier."""
        super().restore(tensors)
        views, freedom = len(self.flips), self.settings.prior_freedom
        self.mixtures = {
            kind: BGMM.from_tensors(self._own(f"mixtures.{kind}.", tensors), views, freedom) for kind in KINDS
        }

    def _take(self, mixtures: dict[str, BGMM]) -> None:
        """Answer by these mixtures from now on."""
        self.mixtures = mixtures
        self.prototypes = mixtures["g"].means.float()
