"""A method as an estimator in scikit-learn's conventions: images and labels as they are, no recipe."""

from __future__ import annotations

import copy
import functools
import math
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from fairshot.benchmarks.images import channels_of
from fairshot.benchmarks.pictures import Pictures
from fairshot.errors import BadInput, BadSetting, BadSettings, TrainingStopped, WeightsRefused
from fairshot.estimators.inputs import (
    LARGEST,
    Targets,
    check_lengths,
    read_pictures,
    statistics,
    usual_side,
    without_lists,
)
from fairshot.estimators.saving import load_estimator, save_estimator
from fairshot.labels import as_array, as_labels, distinct
from fairshot.methods.method import Method, MethodSettings
from fairshot.models.embedder import Features, ModelSettings
from fairshot.models.presets import PRESETS
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Settings, explain
from fairshot.training.batches import seed_of
from fairshot.training.hardware import choose_hardware, own_random_numbers
from fairshot.training.loop import Trainer, TrainingSettings
from fairshot.training.views import ViewSettings

FEWEST_EPOCHS, FEWEST_STEPS = 25, 600  # of a training, unless `epochs` says how many
GREY_VIEWS = {"crop_area": (0.6, 1.4), "rotation": 15, "jitter": 0}  # drawings, as in the recipes of doodles
Options = Mapping[str, Any]
SettingsT = TypeVar("SettingsT", bound=Settings)
Learning = TypeVar("Learning", bound=Callable[..., Any])
# Not an attribute of an estimator: that would neither be copied nor pickled.
_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


def one_at_a_time(learn: Learning) -> Learning:
    """Let threads that change one estimator wait for each other: each change begins from the last."""

    @functools.wraps(learn)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _LOCKS_LOCK:
            lock = _LOCKS.setdefault(self, threading.RLock())
        with lock:
            return learn(self, *args, **kwargs)

    return waiting  # type: ignore[return-value]


if TYPE_CHECKING:

    class ScikitLearnClassifier:
        """What estimators inherit from scikit-learn, which has no types."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def __sklearn_tags__(self) -> Any: ...

else:

    class ScikitLearnClassifier(ClassifierMixin, BaseEstimator):
        """What estimators inherit from scikit-learn."""


@dataclass(eq=False, repr=False)
class MethodEstimator(ScikitLearnClassifier):
    """Learns some classes well, then more of them from a few images each.

    `fit` is the base session: it trains the network on classes with many images. `partial_fit` then takes
    labels never seen before, from about five images each; images of known labels refine these.

    Images are uint8 arrays (N, H, W) or (N, H, W, C), or sequences of file paths, PIL images and arrays of
    any sizes; labels are of any hashable kind. Whatever fails leaves the estimator as it was. Threads may
    share one estimator: changes wait for each other.

    A subclass says by `kind` which method it is, and may have parameters of its own.

    Parameters
    ----------
    backbone
        "tiny", "resnet20", "resnet12", or any model of timm, for example "resnet18".
    size
        pixels per side of the network's input; None takes the usual short side of the images, at most 64.
    pretrained
        start from timm's weights of the backbone instead of random ones.
    weights
        start from those of a preset, which brings its backbone and size, or of a file.
    epochs
        passes over the images of `fit`; None takes 25, or more if they are few; 0 trains nothing.
    batch, learning_rate
        images and step size of stochastic gradient descent.
    model, views, training, method
        further keys of these sections of a recipe, for example
        views={"horizontal_flip": 0} where left and right differ. Unless changed, views are those of the
        recipes of CIFAR-100 for colour images, and of doodles for grey ones.
    seed
        of everything random; the same seed and images give the same estimator.
    device
        "auto", "cpu" or "cuda".
    reporter
        shows how far the training is; None shows nothing.

    Attributes
    ----------
    classes_
        the labels, in the order of the columns of `predict_proba`: those of `fit`, then those learnt.
    history_
        of the training, a row an epoch.
    method_
        the method of `fairshot.methods` that has learnt; `method_.embedder` is its network.
    """

    kind: ClassVar[type[Method[Any]]]
    own_settings: ClassVar[tuple[str, ...]] = ()  # parameters that are settings of the method
    method_defaults: ClassVar[Options] = {}  # settings of the method that differ from its own defaults

    backbone: str = "tiny"
    size: int | None = None
    pretrained: bool = False
    weights: str | None = None
    epochs: int | None = None
    batch: int = 64
    learning_rate: float = 0.1
    model: Options | None = None
    views: Options | None = None
    training: Options | None = None
    method: Options | None = None
    seed: int = 0
    device: str = "auto"
    reporter: Reporter | None = None

    classes_: npt.NDArray[Any] = field(init=False)
    history_: list[dict[str, float]] = field(init=False)
    method_: Method[Any] = field(init=False)

    @one_at_a_time
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the base classes; what was learnt before is forgotten.

        `sample_weight` (N,) says how much each image counts: in the training by how often it is drawn, and
        in the mean feature of its class. An image of weight 0 is left out. Methods that learn from images in
        a way that cannot be weighted refuse weights.
        """
        return self._fit(X, y, sample_weight, None)

    @one_at_a_time
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn labels never seen before from a few images each; images of known labels refine these.

        `classes` are all labels that may come; one of `y` that is not among them is refused. Without them
        any label is learnt. The first call of an estimator that was not fitted needs them, as in
        scikit-learn, and is its base session. `sample_weight` is that of `fit`: a known class weighs as much
        as all its images so far.
        """
        if not hasattr(self, "method_"):
            if classes is None:
                raise NotFittedError(
                    f"this {type(self).__name__} has no base classes yet: call fit first, or name all "
                    "classes in the first call: partial_fit(X, y, classes=...)"
                )
            return self._fit(X, y, sample_weight, distinct(as_labels(classes)))
        targets = Targets.of(y, sample_weight, classes)
        self._check_weights(self.method_.settings, targets)
        pictures = targets.pictures(without_lists(X), *self._input)
        known = dict.fromkeys(self.classes_.tolist())
        learnt = [*known, *distinct(label for label in targets.labels if label not in known)]
        taught = copy.copy(self.method_)
        with own_random_numbers(taught.embedder.device):
            taught.learn(targets.labelled(pictures, learnt))
        return self.adopt(method_=taught, classes_=as_array(learnt))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Answer a label for each image."""
        answers = self._fitted.predict(self._features(X)).cpu().numpy()
        labels: npt.NDArray[Any] = self.classes_[answers]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return probabilities (N, classes), whose columns follow `classes_`; they are not calibrated.

        They are the softmax of the scores that decide, scaled as in the training loss.
        """
        probabilities: npt.NDArray[np.float64]
        probabilities = self._fitted.probabilities(self._features(X)).cpu().numpy()
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of images whose label is answered, weighted if weights are given."""
        labels, answers = as_labels(y), self.predict(X).tolist()
        check_lengths(len(answers), len(labels))
        right = [answer == label for answer, label in zip(answers, labels, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def save(self, folder: str | Path) -> None:
        """Save what has been learnt: tensors in one file, and beside it a JSON file that names them."""
        check_is_fitted(self, "method_")
        save_estimator(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, device: str | None = None) -> Self:
        """Load what `save` wrote; `device` replaces the one it was trained on."""
        return load_estimator(cls, Path(folder), device)

    def adopt(self, **learnt: Any) -> Self:
        """Take over what was computed, all of it at once: no interruption leaves a half."""
        self.__dict__.update(learnt)
        return self

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that images are given, as arrays of more than two dimensions or as file names."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = True  # file names
        return tags

    def _fit(self, X: Any, y: Any, sample_weight: Any, declared: Sequence[Hashable] | None) -> Self:
        """Learn the base session; `declared` are all labels that may come, if that is known."""
        targets, X = Targets.of(y, sample_weight, declared), without_lists(X)
        classes = distinct(targets.labels)
        if len(classes) < 2:
            found = f"1 class: {classes[0]!r}" if classes else "none"
            raise BadInput("y", f"fit needs at least 2 classes; it holds {found}")
        trainer = self._trainer(len(targets.labels), channels_of(X))
        settings = self._method_settings()
        self._check_weights(settings, targets)
        pictures, model = self._base_pictures(X, targets)
        trainer.size = model.size
        total = self._total_classes(len(classes), declared)
        with own_random_numbers(trainer.fabric.device):
            torch.manual_seed(seed_of(self.seed, 2))
            method = self.kind(settings, model, pictures.channels, len(classes), total)
            try:
                method.fit_base(targets.labelled(pictures, classes), trainer)
            except TrainingStopped:
                raise KeyboardInterrupt from None
        return self.adopt(method_=method, classes_=as_array(classes), history_=trainer.history)

    def _total_classes(self, base: int, declared: Sequence[Hashable] | None) -> int | None:
        """Return how many classes there will be, for a method that must know it; None for all others."""
        del base, declared
        return None

    def _check_weights(self, settings: MethodSettings, targets: Targets) -> None:
        if targets.weights is not None and not self.kind.weighs_images(settings):
            raise WeightsRefused(type(self).__name__)

    @property
    def _fitted(self) -> Method[Any]:
        check_is_fitted(self, "method_")
        return self.method_

    @property
    def _input(self) -> tuple[int, int]:
        """Channels and side of the network's input."""
        embedder = self._fitted.embedder
        return embedder.channels, embedder.settings.size

    def _features(self, X: Any) -> Features:
        pictures = read_pictures(without_lists(X), *self._input)
        return self.method_.embed(pictures, self.reporter or SILENT)

    def _base_pictures(self, X: Any, targets: Targets) -> tuple[Pictures, ModelSettings]:
        """Read the images of `fit`, and fit the network's input to them where nothing else is asked for."""
        asked = self._model_settings()
        size = asked.size if "size" in asked.model_fields_set else None
        pictures = targets.pictures(X, channels_of(X), size or LARGEST)
        if size is None:
            size = usual_side(pictures)
            pictures = read_pictures(pictures, pictures.channels, size)
        small_stem = size < 128 and "resnet" in asked.backbone and not (asked.pretrained or asked.weights)
        return pictures, self._model_settings(size=size, small_stem=small_stem, **statistics(pictures))

    def _model_settings(self, **found: Any) -> ModelSettings:
        chosen = {"backbone": self.backbone, "pretrained": self.pretrained, "weights": self.weights}
        preset = PRESETS[self.weights].section() if self.weights in PRESETS else {}
        asked = {} if self.size is None else {"size": self.size, "resize": None}
        settings = {"small_stem": False, **found, **chosen, **preset, **asked}
        return _section(ModelSettings, "model", settings, self.model).pinned()

    def _trainer(self, images: int, channels: int) -> Trainer:
        chosen = {"batch": self.batch, "learning_rate": self.learning_rate}
        asked = {} if self.epochs is None else {"epochs": self.epochs}
        settings = _section(TrainingSettings, "training", chosen | asked, self.training)
        if "epochs" not in settings.model_fields_set:
            steps = images // min(settings.batch, images)
            settings = settings.model_copy(
                update={"epochs": max(FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / steps))}
            )
        if "warmup_epochs" not in settings.model_fields_set:
            settings = settings.model_copy(update={"warmup_epochs": settings.epochs / 5})
        views = _section(ViewSettings, "views", {} if channels == 3 else GREY_VIEWS, self.views)
        if not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise BadSetting("seed", self.seed, "expected a whole number from 0 on")
        reporter = self.reporter or SILENT
        return Trainer(
            choose_hardware(self.device), settings, views, LARGEST, int(self.seed), reporter=reporter
        )

    def _method_settings(self) -> MethodSettings:
        chosen = {name: getattr(self, name) for name in self.own_settings}
        return _section(self.kind.Settings, "method", {**self.method_defaults, **chosen}, self.method)


def _section(settings: type[SettingsT], name: str, chosen: Options, further: Options | None) -> SettingsT:
    """Check the settings of one section, as a recipe would be checked."""
    try:
        return settings.model_validate({**chosen, **(further or {})})
    except ValidationError as problem:
        raise BadSettings(explain(problem, settings, f"{name}.")) from None
