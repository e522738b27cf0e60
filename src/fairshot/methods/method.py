"""Method: what every system of this field does, in three verbs: `fit_base`, `learn`, `predict`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.flips import FlipViews
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Settings
from fairshot.training.loop import Objective, Trainer


class MethodSettings(Settings):
    """What only this method needs to be told."""


@dataclass(frozen=True)
class MethodCard:
    """What a reader of a comparison should know about a method."""

    summary: str
    stores: str = "one mean feature a class"  # of the classes learnt
    knows_future: bool = False  # whether it must be told the number of classes to come
    keeps_exemplars: bool = False  # whether it stores pictures of old classes
    baseline: bool = False  # whether it is the common training and rule, with nothing added


SettingsT = TypeVar("SettingsT", bound=MethodSettings)


class Method(ABC, Generic[SettingsT]):
    """A system that learns base classes once, then new classes from a few pictures each.

    Class ids count in the order in which the classes arrive; the base classes come first.
    """

    name: ClassVar[str]
    card: ClassVar[MethodCard]
    Settings: ClassVar[type[MethodSettings]]
    views: FlipViews = FlipViews()  # of an image, which the classifiers compare
    trained_as: ClassVar[str | None] = None  # the name under which its training is known, if not its own
    decision_settings: ClassVar[frozenset[str]] = frozenset()  # settings that leave the training as it is
    modules: ClassVar[tuple[str, ...]] = ("embedder",)  # with `buffers`, all it has learnt
    buffers: ClassVar[tuple[str, ...]]  # the tensors
    fixed_buffers: ClassVar[tuple[str, ...]] = ()  # those drawn at random and fixed before training
    frozen: ClassVar[bool] = True  # whether the network stays as the base session left it

    def __init__(
        self,
        settings: SettingsT,
        model: ModelSettings,
        channels: int,
        base_classes: int,
        total_classes: int | None = None,
    ) -> None:
        if (total_classes is not None) != self.card.knows_future:
            told = "is not told" if total_classes is None else "may not be told"
            raise ValueError(f"{type(self).__name__} {told} the number of classes; its card says otherwise")
        self.settings = settings
        self.base_classes = base_classes
        self.total_classes = total_classes or base_classes  # more only if the card says so
        self.embedder = self.build_embedder(model, channels)

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Build the network; methods with more than a backbone override this."""
        return Embedder(model, channels)

    @abstractmethod
    def objective(self) -> Objective:
        """Return what the base session trains."""

    @abstractmethod
    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Make the classifiers of the base classes from the features of their training pictures."""

    @abstractmethod
    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Take new classes, or further pictures of known ones, into the classifiers: all or nothing."""

    @abstractmethod
    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return a score for each class seen (N, C); the highest is the answer.

        With `novel_only` base classes may not be answered: a diagnosis, which tells bad features from a
        biased decision.
        """

    @property
    @abstractmethod
    def seen_classes(self) -> int:
        """How many classes have been learnt."""

    def fit_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Train on the base session, then make its classifiers."""
        self.train_base(base, trainer)
        self.embedder.to(trainer.fabric.device)
        self.init_base_classifiers(base, trainer.reporter)

    def init_base_classifiers(self, base: LabelledPictures, reporter: Reporter = SILENT) -> None:
        """Make the classifiers of the base session with the network as it is trained."""
        self.init_classifiers(self.embed(base.pictures, reporter), self._labels(base))

    def train_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Train the network; methods with several phases override this."""
        trainer.train(self.objective(), base)

    def learn(self, shots: LabelledPictures) -> None:
        """Learn new classes from a few pictures each."""
        self.add_classes(self.embed(shots.pictures), self._labels(shots))

    def adapt(self, features: Features) -> None:
        """Use unlabelled pictures; most methods do not."""

    @property
    def transductive(self) -> bool:
        """Whether unlabelled test images are shown to `adapt` before they are answered."""
        return False

    def predict(self, features: Features) -> Tensor:
        """Answer a class id for each picture (N,)."""
        return self.scores(features).argmax(dim=1)

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        """Forward passes of the network to classify one picture, under these settings."""
        del settings
        return 1

    @classmethod
    def further_epochs(cls, settings: MethodSettings) -> int:
        """Epochs that phases after the first train for, beyond those of the recipe."""
        del settings
        return 0

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return the features this method classifies by."""
        return self.embedder.embed(pictures, self.views, reporter)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt."""
        learnt = {name: getattr(self, name) for name in self.buffers}
        for part in self.modules:
            learnt |= {f"{part}.{name}": value for name, value in getattr(self, part).state_dict().items()}
        return learnt

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` returned earlier."""
        self.restore_modules(tensors)
        for name in self.buffers:
            setattr(self, name, tensors[name].to(self.embedder.device))

    def restore_modules(self, tensors: dict[str, Tensor]) -> None:
        """Load the trained modules; `init_base_classifiers` makes the classifiers."""
        device = self.embedder.device
        for part in self.modules:
            getattr(self, part).to(device).load_state_dict(self._own(f"{part}.", tensors))
        for name in self.fixed_buffers:
            setattr(self, name, tensors[name].to(device))

    def _own(self, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors whose names begin so, without that beginning, where the network is."""
        own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        return {key: value.to(self.embedder.device) for key, value in own.items()}

    def _labels(self, pictures: LabelledPictures) -> Tensor:
        return torch.from_numpy(pictures.labels).to(self.embedder.device)
