"""NCM, the strong baseline: train on the base classes, then classify by the nearest class mean (eq. 2)."""

from __future__ import annotations

from fairshot.methods.method import MethodCard
from fairshot.methods.prototype_method import COSINE, CosineMethod, CosineSettings


class NCM(CosineMethod[CosineSettings]):
    """Cosine cross-entropy, then nearest class mean."""

    name = "ncm"
    trained_as = COSINE
    Settings = CosineSettings
    card = MethodCard(
        "nearest class mean on features of a cosine cross-entropy; the strong baseline",
        baseline=True,
        title="NCM",
        paper="Mensink et al., TPAMI",
        year=2013,
        grid={"method.scale": (8.0, 12.0, 16.0, 20.0, 24.0, 32.0)},
    )
