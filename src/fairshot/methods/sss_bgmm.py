"""SSS with BGMM classifiers (appendix C): a mixture for each class and view in place of a prototype."""

from __future__ import annotations

from fairshot.classifiers.decision_settings import MixtureSettings
from fairshot.methods.dual_method import DualMethod, DualMethodSettings
from fairshot.methods.method import MethodCard


class BGMMSettings(DualMethodSettings, MixtureSettings):
    """Stimulation, and a decision by mixtures."""


class SSSBGMM(DualMethod[BGMMSettings]):
    """The paper's method with mixture classifiers.

    Needs to know in advance: nothing. Stores: mixtures of features g and g~ of each class, plain and flipped,
    three components per base class and one per novel class. Costs at test time: two passes, as SSS.
    """

    name = "sss_bgmm"
    Settings = BGMMSettings
    card = MethodCard(
        "SSS whose classes are Bayesian Gaussian mixtures",
        stores="four mixtures",
        title="SSS with mixtures",
        paper="Zhao et al., arXiv",
        year=2024,
        grid={"method.gamma": (0.02, 0.05, 0.2), "method.prior_freedom": (1000, 3000)},
    )
    decision_settings = DualMethod.decision_settings | frozenset(MixtureSettings.model_fields)
