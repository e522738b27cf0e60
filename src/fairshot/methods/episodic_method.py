"""Base class for methods that train on episodes: small tasks like those of the later sessions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar, cast

import numpy as np
from pydantic import Field
from torch import Tensor

from fairshot.benchmarks.pictures import Floats, Ints
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.methods.method import MethodSettings
from fairshot.methods.prototype_method import CosineMethod, CosineSettings
from fairshot.models.embedder import Embedder
from fairshot.training.episodes import Episode
from fairshot.training.hardware import gather_with_grad
from fairshot.training.loop import Objective, Trainer


class EpisodicSettings(CosineSettings):
    """The episodes after the base training."""

    way: int = Field(15, ge=2, description="Classes per episode.")
    shots: int = Field(5, ge=1, description="Support images per class of an episode.")
    queries: int = Field(15, ge=1, description="Query images per class of an episode.")
    episode_epochs: int = Field(20, ge=1, description="Epochs of episodes after the base training.")
    episode_learning_rate: float = Field(0.01, gt=0, description="Learning rate of the episodes.")


class EpisodicObjective(Objective):
    """A loss over episodes: each step is one episode, whose images the processes share."""

    def __init__(self, embedder: Embedder, episode: Episode, settings: EpisodicSettings) -> None:
        super().__init__()
        self.embedder, self.episode, self.settings = embedder, episode, settings

    def order(self, labels: Ints, rng: np.random.Generator, weights: Floats | None) -> Ints:
        """Visit the images episode by episode."""
        return self.episode.order(labels, rng, weights)

    def split(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Split the features of all processes into support and queries of the episodes."""
        return self.episode.split(gather_with_grad(features))


EpisodicT = TypeVar("EpisodicT", bound=EpisodicSettings)


class EpisodicMethod(CosineMethod[EpisodicT], Generic[EpisodicT]):
    """Trains by cosine cross-entropy, then on episodes."""

    @abstractmethod
    def episode_objective(self, episode: Episode) -> EpisodicObjective:
        """Return the loss over episodes."""

    @classmethod
    def further_epochs(cls, settings: MethodSettings) -> int:
        """Return the epochs of the episodes."""
        return cast(EpisodicSettings, settings).episode_epochs

    def train_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Train on all base classes at once, then on episodes."""
        chosen = self.settings
        episode = Episode(min(chosen.way, self.base_classes), chosen.shots, chosen.queries)
        episode.check(len(base), trainer.fabric.world_size)  # before the first phase is trained in vain
        phase = trainer.settings.model_copy(
            update={
                "epochs": chosen.episode_epochs,
                "learning_rate": chosen.episode_learning_rate,
                "batch": episode.images,
                "low_resolution": None,
            }
        )
        trainer.reserve(self.episode_objective(episode), base, phase)
        super().train_base(base, trainer)
        trainer.train(self.episode_objective(episode), base, "episodes", phase)
