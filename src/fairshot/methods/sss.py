"""SSS: Stimulation, Separately dual-feature classification, Self-optimizing classifiers."""

from __future__ import annotations

from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.methods.dual_method import DualMethod, DualMethodSettings
from fairshot.methods.method import MethodCard


class SSSSettings(DualMethodSettings, PrototypeSettings):
    """Stimulation, and a decision by prototypes."""


class SSS(DualMethod[SSSSettings]):
    """The paper's method with prototype classifiers.

    Needs to know in advance: nothing. Stores: mean features g and g~ of each class, plain and flipped.
    Costs at test time: two passes, of the image as it is and flipped; twice that with mirror images.
    """

    name = "sss"
    Settings = SSSSettings
    card = MethodCard(
        "surplus classes, two kinds of features decided separately, self-optimizing classifiers",
        stores="four mean features",
        title="SSS",
        paper="Zhao et al., arXiv",
        year=2024,
        grid={"method.gamma": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)},
    )
    decision_settings = DualMethod.decision_settings | frozenset(PrototypeSettings.model_fields)
