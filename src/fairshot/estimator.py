"""SSS as an estimator in scikit-learn's conventions: images and labels as they are, no recipe, no stream."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from safetensors.torch import load, save
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from fairshot.benchmarks.cache import Resize
from fairshot.benchmarks.images import as_pictures, channels_of
from fairshot.benchmarks.pictures import Bytes, Pictures
from fairshot.benchmarks.stream import LabelledPictures
from fairshot.classifiers.dual import PrototypeSettings
from fairshot.documents import load_json, write_json
from fairshot.errors import TrainingStopped, UserError
from fairshot.files import remove_partial, write_atomically
from fairshot.labels import as_array, as_labels, distinct, from_json, to_json
from fairshot.methods import sss
from fairshot.models.embedder import ModelSettings
from fairshot.models.presets import PRESETS
from fairshot.progress import SILENT, Reporter
from fairshot.settings import Settings, explain
from fairshot.training.batches import seed_of
from fairshot.training.hardware import choose_hardware
from fairshot.training.loop import Trainer, TrainingSettings
from fairshot.training.views import ViewSettings

FILE_NAME, FORMAT = "estimator.json", 2
LARGEST = 64  # pixels a side of the network's input, unless `size` asks for more
FEWEST_EPOCHS, FEWEST_STEPS = 25, 600  # of a training, unless `epochs` says how many
GREY_VIEWS = {"crop_area": (0.6, 1.4), "rotation": 15, "jitter": 0}  # drawings, as in the recipes of doodles
DEFAULTS = PrototypeSettings()
Options = Mapping[str, Any]
SettingsT = TypeVar("SettingsT", bound=Settings)
Learning = TypeVar("Learning", bound=Callable[..., Any])
# Not an attribute of an estimator: that would neither be copied nor pickled.
_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


def _one_at_a_time(learn: Learning) -> Learning:
    """Let threads that change one estimator wait for each other: each change begins from the last."""

    @functools.wraps(learn)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _LOCKS_LOCK:
            lock = _LOCKS.setdefault(self, threading.RLock())
        with lock:
            return learn(self, *args, **kwargs)

    return waiting  # type: ignore[return-value]


class SSS(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn some classes well, then more of them from a few images each, without bias towards the first.

    `fit` is the base session: it trains the network on classes with many images. `partial_fit` then takes
    labels never seen before, from about five images each, without further training; images of known
    labels refine these. `adapt` uses images without labels, within bounds.

    Images are uint8 arrays (N, H, W) or (N, H, W, C), or sequences of file paths and of arrays of any
    sizes; labels are of any hashable kind. Whatever fails leaves the estimator as it was. Threads may share
    one estimator: changes wait for each other.

    Parameters
    ----------
    backbone: "tiny", "resnet20", "resnet12", or any model of timm, for example "resnet18".
    size: pixels per side of the network's input; None takes the usual short side of the images, at most 64.
    pretrained: start from timm's weights of the backbone instead of random ones.
    weights: start from those of a preset, which brings its backbone and size, or of a file.
    epochs: passes over the images of `fit`; None takes 25, or more if they are few.
    batch, learning_rate: images and step size of stochastic gradient descent.
    intra, inter, sr, resistance: the components of the method, each of which can be switched off.
    gamma: strength of Resistance; more favours labels learnt by `partial_fit`.
    model, views, training, method: further keys of these sections of a recipe, for example
        views={"horizontal_flip": 0} where left and right differ. Unless changed, views are those of the
        recipes of CIFAR-100 for colour images, and of doodles for grey ones.
    seed: of everything random; the same seed and images give the same estimator.
    device: "auto", "cpu" or "cuda".
    reporter: shows how far the training is; None shows nothing.

    Attributes
    ----------
    classes_: the labels, in the order of the columns of `predict_proba`: those of `fit`, then those learnt.
    history_: of the training, a row an epoch.
    method_: the `fairshot.methods.sss.SSS` that has learnt.
    """

    classes_: npt.NDArray[Any]
    history_: list[dict[str, float]]
    method_: sss.SSS

    def __init__(
        self,
        backbone: str = "tiny",
        size: int | None = None,
        pretrained: bool = False,
        weights: str | None = None,
        epochs: int | None = None,
        batch: int = 64,
        learning_rate: float = 0.1,
        intra: bool = True,
        inter: bool = True,
        sr: bool = True,
        resistance: bool = True,
        gamma: float = DEFAULTS.gamma,
        model: Options | None = None,
        views: Options | None = None,
        training: Options | None = None,
        method: Options | None = None,
        seed: int = 0,
        device: str = "auto",
        reporter: Reporter | None = None,
    ) -> None:
        self.backbone = backbone
        self.size = size
        self.pretrained = pretrained
        self.weights = weights
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.intra = intra
        self.inter = inter
        self.sr = sr
        self.resistance = resistance
        self.gamma = gamma
        self.model = model
        self.views = views
        self.training = training
        self.method = method
        self.seed = seed
        self.device = device
        self.reporter = reporter

    @_one_at_a_time
    def fit(self, X: Any, y: Any) -> Self:
        """Train on the base classes; what was learnt before is forgotten."""
        labels = as_labels(y)
        classes = distinct(labels)
        if len(classes) < 2:
            raise UserError(f"fit needs at least 2 classes; y holds {classes}")
        trainer = self._trainer(len(labels), channels_of(X))
        settings = self._method_settings()
        pictures, model = self._base_pictures(X)
        _check_lengths(pictures, labels)
        trainer.size = model.size
        with _own_random_numbers(trainer.fabric.device):
            torch.manual_seed(seed_of(self.seed, 2))
            method = sss.SSS(settings, model, pictures.channels, len(classes))
            try:
                method.fit_base(LabelledPictures(pictures, _ids(labels, classes)), trainer)
            except TrainingStopped:
                raise KeyboardInterrupt from None
        return self._adopt(method_=method, classes_=as_array(classes), history_=trainer.history)

    @_one_at_a_time
    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn labels never seen before from a few images each; images of known labels refine these."""
        check_is_fitted(self, "method_")
        labels, pictures = as_labels(y), self._pictures(X)
        _check_lengths(pictures, labels)
        known = dict.fromkeys(self.classes_.tolist())
        classes = [*known, *distinct(label for label in labels if label not in known)]
        taught = copy.copy(self.method_)
        taught.learn(LabelledPictures(pictures, _ids(labels, classes)))
        return self._adopt(method_=taught, classes_=as_array(classes))

    @_one_at_a_time
    def adapt(self, X: Any) -> Self:
        """Calibrate with unlabelled images: classes move towards those recognised with confidence.

        Images may come in any order and in batches of any size; what they may do is bounded, unless
        method={"bounded": False}. `journal` tells what each call did, `rollback` undoes the last ones.
        """
        check_is_fitted(self, "method_")
        adapted = copy.copy(self.method_)
        adapted.adapt(adapted.embed(self._pictures(X)))
        return self._adopt(method_=adapted)

    @property
    def journal(self) -> list[dict[Any, int]]:
        """For each call of `adapt`: how many of its images each class took in then."""
        check_is_fitted(self, "method_")
        labels = self.classes_.tolist()
        return [dict(Counter(labels[c] for c in entry.added_to.tolist())) for entry in self.method_.journal]

    @_one_at_a_time
    def rollback(self, calls: int = 1) -> Self:
        """Undo the last calls of `adapt`; images that theirs had displaced return."""
        check_is_fitted(self, "method_")
        undone = copy.copy(self.method_)
        undone.rollback(calls)
        return self._adopt(method_=undone)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Answer a label for each image."""
        answers = self._scores(X).argmax(dim=1).cpu().numpy()
        labels: npt.NDArray[Any] = self.classes_[answers]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the softmax of the scaled cosines that decide (N, classes); columns follow `classes_`."""
        scaled = self._scores(X).double() * self.method_.settings.scale
        probabilities: npt.NDArray[np.float64] = scaled.softmax(dim=1).cpu().numpy()
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Sequence[float] | None = None) -> float:
        """Return the share of images whose label is answered."""
        labels, answers = as_labels(y), self.predict(X).tolist()
        _check_lengths(answers, labels)
        right = [answer == label for answer, label in zip(answers, labels, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def save(self, folder: str | Path) -> None:
        """Save what has been learnt: tensors in one file, and beside it a JSON file that names them."""
        check_is_fitted(self, "method_")
        folder, method = Path(folder), self.method_
        content = save({name: value.contiguous().cpu() for name, value in method.tensors().items()})
        digest = hashlib.sha256(content).hexdigest()
        tensors = f"tensors-{digest[:16]}.safetensors"
        parameters = {key: value for key, value in self.get_params(deep=False).items() if key != "reporter"}
        note = {
            "format": FORMAT,
            "parameters": parameters,
            "classes": [to_json(label) for label in self.classes_.tolist()],
            "base_classes": method.base_classes,
            "channels": method.embedder.channels,
            "model": method.embedder.settings.model_dump(mode="json"),
            "method": method.settings.model_dump(mode="json"),
            "history": self.history_,
            "tensors": tensors,
            "sha256": digest,
        }
        text = json.dumps(note, indent=1, default=_plain_number)
        remove_partial(folder)
        write_atomically(folder / tensors, content)
        write_json(folder / FILE_NAME, text)  # with it the new state replaces the old
        for old in folder.glob("tensors-*.safetensors"):
            if old.name != tensors:
                old.unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path, device: str | None = None) -> Self:
        """Load what `save` wrote; `device` replaces the one it was trained on."""
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            raise UserError(f"{folder} holds no {FILE_NAME}: no estimator was saved there")
        try:
            return cls._restored(Path(folder), load_json(path), device)
        except UserError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as problem:
            raise UserError(
                f"{path}: this estimator is damaged and cannot be loaded ({problem}); bring the folder back "
                "from a copy, or save the estimator again"
            ) from problem

    @classmethod
    def _restored(cls, folder: Path, note: dict[str, Any], device: str | None) -> Self:
        if note["format"] != FORMAT:
            raise UserError(
                f"{folder} was saved in format {note['format']}; this version of fairshot reads {FORMAT}"
            )
        content = (folder / note["tensors"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != note["sha256"]:
            raise ValueError(f"{note['tensors']} is not the file that was saved")
        estimator = cls(**note["parameters"])
        estimator.device = device or estimator.device
        hardware = choose_hardware(estimator.device)
        model = ModelSettings(**note["model"]).without_weights()  # they come from the file
        with _own_random_numbers(hardware.device):
            settings = sss.SSSSettings(**note["method"])
            method = sss.SSS(settings, model, note["channels"], note["base_classes"])
        method.embedder.to(hardware.device)
        method.restore(load(content))
        classes = [from_json(label) for label in note["classes"]]
        if len(classes) != method.seen_classes:
            raise ValueError(f"{len(classes)} labels for {method.seen_classes} classes")
        return estimator._adopt(method_=method, classes_=as_array(classes), history_=note["history"])

    def _adopt(self, **learnt: Any) -> Self:
        """Take over what was computed, all of it at once: no interruption leaves a half."""
        self.__dict__.update(learnt)
        return self

    def _scores(self, X: Any) -> torch.Tensor:
        check_is_fitted(self, "method_")
        return self.method_.scores(self.method_.embed(self._pictures(X), self.reporter or SILENT))

    def _pictures(self, X: Any) -> Pictures:
        """Read images the way those of `fit` were read."""
        embedder = self.method_.embedder
        return as_pictures(X, embedder.channels, _shrinker(embedder.settings.size))

    def _base_pictures(self, X: Any) -> tuple[Pictures, ModelSettings]:
        """Read the images of `fit`, and fit the network's input to them where nothing else is asked for."""
        asked = self._model_settings()
        size = asked.size if "size" in asked.model_fields_set else None
        pictures = as_pictures(X, channels_of(X), _shrinker(size or LARGEST))
        if size is None:
            size = _usual_side(pictures)
            pictures = as_pictures(pictures, pictures.channels, _shrinker(size))
        small_stem = size < 128 and "resnet" in asked.backbone and not (asked.pretrained or asked.weights)
        return pictures, self._model_settings(size=size, small_stem=small_stem, **_statistics(pictures))

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
            raise UserError(f"seed: expected a whole number from 0 on, got {self.seed!r}")
        reporter = self.reporter or SILENT
        return Trainer(
            choose_hardware(self.device), settings, views, LARGEST, int(self.seed), reporter=reporter
        )

    def _method_settings(self) -> sss.SSSSettings:
        names = ("intra", "inter", "sr", "resistance", "gamma")
        chosen = {name: getattr(self, name) for name in names}
        return _section(sss.SSSSettings, "method", chosen | {"sr_width": 512, "bounded": True}, self.method)


def _section(settings: type[SettingsT], name: str, chosen: Options, further: Options | None) -> SettingsT:
    """Check the settings of one section, as a recipe would be checked."""
    try:
        return settings.model_validate({**chosen, **(further or {})})
    except ValidationError as problem:
        raise UserError(explain(problem, settings, f"{name}.")) from None


@contextmanager
def _own_random_numbers(device: torch.device) -> Iterator[None]:
    """Leave the caller's random numbers as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def _ids(labels: Sequence[Any], classes: Sequence[Any]) -> npt.NDArray[np.int64]:
    ids = {label: index for index, label in enumerate(classes)}
    return np.array([ids[label] for label in labels], dtype=np.int64)


def _check_lengths(images: Pictures | list[Any], labels: Sequence[Any]) -> None:
    if len(images) != len(labels):
        raise UserError(f"X holds {len(images)} images, but y holds {len(labels)} labels; give one per image")


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise UserError(f"the parameter {value!r} of type {type(value).__name__} cannot be saved")


def _shrinker(size: int) -> Callable[[Bytes], Bytes]:
    """Return what shrinks large images, averaging, to twice the network's input: enough for close views."""
    return Resize(2 * size, enlarge=False).apply


def _usual_side(pictures: Pictures) -> int:
    """Return the median short side, within what a small network can use."""
    return int(np.clip(np.median(pictures.sizes.min(axis=1)), 16, LARGEST))


def _statistics(pictures: Pictures) -> dict[str, list[float]]:
    """Return mean and standard deviation of each channel, as the network's input is normalised."""
    levels = np.arange(256) / 255
    pixels = pictures.compact().buffer.reshape(-1, pictures.channels)
    shares = [np.bincount(channel, minlength=256) / len(pixels) for channel in pixels.T]
    mean = [float(share @ levels) for share in shares]
    variance = [float(share @ (levels - m) ** 2) for share, m in zip(shares, mean, strict=True)]
    return {"mean": mean, "std": [max(v**0.5, 0.05) for v in variance]}
