"""A skeleton whose backbone is frozen after the base session while a readout behind it goes on learning."""

from __future__ import annotations

from typing import Generic

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fairshot.benchmarks.pictures import Pictures
from fairshot.methods.method import SettingsT
from fairshot.methods.prototype_method import PrototypeMethod
from fairshot.models.embedder import Features
from fairshot.progress import SILENT, Reporter


class ProjectorMethod(PrototypeMethod[SettingsT], Generic[SettingsT]):
    """Keeps mean features g of the classes; what answers lies behind the readout, g~ = readout(g)."""

    @property
    def readout(self) -> nn.Module:
        """What stands behind the backbone."""
        assert self.embedder.sr is not None
        return self.embedder.sr

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return g alone: the readout changes, so that it is applied when an answer is asked for."""
        return {"g": super().embed(pictures, reporter)["g"]}

    @torch.no_grad()
    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return the cosine of what the readout makes of g with the target of each class seen."""
        outputs = normalize(self.readout(features["g"][:, 0]), dim=1)
        cosines = outputs @ normalize(self.targets(), dim=1).T
        if novel_only:
            cosines[:, : self.base_classes] = -torch.inf
        return cosines

    def targets(self) -> Tensor:
        """Return what stands for each class seen behind the readout (C, d~): its mean feature, read out."""
        means: Tensor = self.readout(self.prototypes[:, 0])
        return means
