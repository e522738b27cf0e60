"""Method: the interface of every compared system: `fit_base`, `learn`, `predict`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.models.embedder import Embedder, Features, ModelSettings
from fairshot.models.flips import FlipViews
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Settings
from fairshot.training.loop import Objective, Trainer

COSINE_SCALE = 16.0  # of cosines in a softmax, where the loss of a method has no scale of its own


class MethodSettings(Settings):
    """The settings of one method: the section `method` of a recipe."""


@dataclass(frozen=True)
class MethodCard:
    """What a reader of a comparison should know about a method."""

    summary: str
    stores: str = "mean feature"  # of each class learnt; a few words, for a column of a table
    knows_future: bool = False  # whether it must be told the number of future classes
    keeps_exemplars: bool = False  # whether it stores pictures of old classes
    baseline: bool = False  # whether it is the common training and nearest class mean, with nothing added
    title: str = ""  # as its authors write its name; the name of the method if not given
    paper: str = ""  # that introduced it: authors, venue
    year: int | None = None  # of that paper
    # what its paper leaves open, or what balances old and new classes: keys of a recipe, and the values tried
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)


SettingsT = TypeVar("SettingsT", bound=MethodSettings)


class Method(ABC, Generic[SettingsT]):
    """Learns base classes once, then new classes from a few pictures each.

    Class ids count in the order in which the classes arrive; the base classes come first.
    """

    name: ClassVar[str]
    card: ClassVar[MethodCard]
    Settings: ClassVar[type[MethodSettings]]
    views: FlipViews = FlipViews()  # of an image, which the classifiers compare
    trained_as: ClassVar[str | None] = None  # methods with the same value can share one trained network
    decision_settings: ClassVar[frozenset[str]] = frozenset()  # settings that do not influence the training
    modules: ClassVar[tuple[str, ...]] = ("embedder",)  # attributes that are saved: torch modules
    buffers: ClassVar[tuple[str, ...]]  # attributes that are saved: tensors
    fixed_buffers: ClassVar[tuple[str, ...]] = ()  # those of `buffers` drawn at random before the training
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
            given = "needs" if total_classes is None else "may not be given"
            raise ValueError(f"{type(self).__name__} {given} the number of classes, according to its card")
        self.settings = settings
        self.base_classes = base_classes
        self.total_classes = total_classes or base_classes
        self.embedder = self.build_embedder(model, channels)

    @classmethod
    def title(cls) -> str:
        """Return the name of the method as its authors write it."""
        return cls.card.title or cls.name

    def build_embedder(self, model: ModelSettings, channels: int) -> Embedder:
        """Build the network; methods with more than a backbone override this."""
        return Embedder(model, channels)

    @abstractmethod
    def objective(self) -> Objective:
        """Return the loss of the base session, with the network and everything else that it trains."""

    @abstractmethod
    def init_classifiers(self, features: Features, labels: Tensor) -> None:
        """Make the classifiers of the base classes from the features of their training pictures."""

    @abstractmethod
    def add_classes(self, features: Features, labels: Tensor) -> None:
        """Add new classes, or further pictures of known ones; after an error nothing has changed."""

    @abstractmethod
    def scores(self, features: Features, novel_only: bool = False) -> Tensor:
        """Return a score for each class seen (N, C); the highest is the prediction.

        With `novel_only` base classes are ruled out: accuracy on novel classes that is still low then comes
        from the features, not from a decision biased towards base classes.
        """

    def precomputed(self, features: Features) -> Features:
        """Return what `scores` and `adapt` may be given beside the features and need in every session.

        It must hold for all sessions. Most methods have nothing that would take long.
        """
        del features
        return {}

    @property
    @abstractmethod
    def seen_classes(self) -> int:
        """How many classes have been learnt."""

    def fit_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Train on the base session, then make its classifiers."""
        self.train_base(base, trainer)
        for name in (*self.modules, *self.fixed_buffers):
            setattr(self, name, getattr(self, name).to(trainer.fabric.device))
        self.init_base_classifiers(base, trainer.reporter)

    def init_base_classifiers(self, base: LabelledPictures, reporter: Reporter = SILENT) -> None:
        """Make the classifiers of the base session with the network as it is trained."""
        self.init_classifiers(self._features(base, reporter), self._labels(base))

    def train_base(self, base: LabelledPictures, trainer: Trainer) -> None:
        """Train the network; methods with several phases override this."""
        trainer.train(self.objective(), base)

    def learn(self, shots: LabelledPictures) -> None:
        """Learn new classes from a few pictures each."""
        self.add_classes(self._features(shots), self._labels(shots))

    def adapt(self, features: Features) -> None:
        """Learn from unlabelled pictures; most methods do not."""

    @property
    def transductive(self) -> bool:
        """Whether `adapt` is given unlabelled test images."""
        return False

    @property
    def classifies_first(self) -> bool:
        """Whether the test images of a session are classified before `adapt` is given them."""
        return False

    def predict(self, features: Features) -> Tensor:
        """Return the predicted class id of each picture (N,)."""
        return self.scores(features).argmax(dim=1)

    def probabilities(self, features: Features) -> Tensor:
        """Return a probability of each class seen (N, C), in float64; the highest is the prediction.

        It is the softmax of the scores, scaled as in the training loss if that has a scale.
        """
        scale = float(getattr(self.settings, "scale", COSINE_SCALE))
        return (scale * self.scores(features).double()).softmax(dim=1)

    @classmethod
    def weighs_images(cls, settings: MethodSettings) -> bool:
        """Return whether labelled images may have weights, in the training and in the classifiers.

        A method for which that is so finds them beside the features, under the name `weights` (N,).
        """
        del settings
        return False

    @classmethod
    def passes(cls, settings: MethodSettings) -> int:
        """Return how many forward passes of the network classify one picture."""
        del settings
        return 1

    @classmethod
    def further_epochs(cls, settings: MethodSettings) -> int:
        """Return the epochs of further training phases, after those of the recipe."""
        del settings
        return 0

    def embed(self, pictures: Pictures, reporter: Reporter = SILENT) -> Features:
        """Return the features that `scores` expects."""
        return self.embedder.embed(pictures, self.views, reporter)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that has been learnt."""
        learnt = {name: getattr(self, name) for name in self.buffers}
        for module in self.modules:
            learnt |= getattr(self, module).state_dict(prefix=f"{module}.")
        return learnt

    @property
    def kept_bytes(self) -> int:
        """Bytes of all that has been learnt of classes, beside the networks."""
        networks = tuple(f"{module}." for module in self.modules)
        learnt = self.tensors().items()
        return sum(tensor.nbytes for name, tensor in learnt if not name.startswith(networks))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        self.restore_modules(tensors)
        for name in self.buffers:
            setattr(self, name, tensors[name].to(self.embedder.device))

    def restore_modules(self, tensors: dict[str, Tensor]) -> None:
        """Load the trained modules; `init_base_classifiers` makes the classifiers."""
        device = self.embedder.device
        for module in self.modules:
            getattr(self, module).to(device).load_state_dict(self._own(f"{module}.", tensors))
        for name in self.fixed_buffers:
            setattr(self, name, tensors[name].to(device))

    def _own(self, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors whose names have this prefix, without it, on the device of the network."""
        own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        return {key: value.to(self.embedder.device) for key, value in own.items()}

    def _features(self, given: LabelledPictures, reporter: Reporter = SILENT) -> Features:
        """Return the features of labelled pictures, and the weights of these if they have any."""
        features = self.embed(given.pictures, reporter)
        if given.weights is None:
            return features
        return features | {"weights": torch.from_numpy(given.weights).to(self.embedder.device)}

    def _labels(self, pictures: LabelledPictures) -> Tensor:
        return torch.from_numpy(pictures.labels).to(self.embedder.device)
