"""A store from a trained run: its embedder and its classifier of the base session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairshot.benchmarks.doodles import SIDE
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures, Stream
from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.classifiers.dual import DualClassifier
from fairshot.errors import UserError
from fairshot.evaluation.base_session import trained_method
from fairshot.evaluation.experiment import (
    OWN_PICTURES,
    CommonOptions,
    load_pictures,
    own_pictures_side,
    split_of,
)
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import MODEL, recipe_of
from fairshot.methods import method_named
from fairshot.methods.dual_method import DualMethod
from fairshot.methods.method import Method
from fairshot.methods.prototype_method import PrototypeMethod
from fairshot.models.embedder import Features
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.teaching.base_classifier import MOST_WHITENING, nearest_means, whitened_by_photos
from fairshot.teaching.confidence import Confidence, Trials
from fairshot.teaching.creation import StoreSpec
from fairshot.teaching.errors import RunImagesMissing, RunWithoutWeights, UnsupportedRun
from fairshot.teaching.held_out import leave_one_out, trials_of
from fairshot.teaching.network import Network, Photo, as_photos, stacked

SAMPLES = 10  # training images per base class that a store keeps


def from_run(
    run: str | Path,
    data: Path | None = None,
    reporter: Reporter = SILENT,
    without_images: bool = False,
    sessions: bool | None = None,
) -> StoreSpec:
    """Return the embedder and the base classes of a finished run, and with `sessions` its other classes too.

    By default the sessions of a run on own pictures are taught, because one expects all one's classes in the
    store; those of a benchmark are left out, so that there is something to teach.

    Some images of each base class are kept, and confidence is fitted to images the network was not trained
    on. They are looked for where the run found them, or in `data`; `without_images` does without.
    """
    run = Path(run)
    result, recipe = Result.read(run), recipe_of(run)
    check_method(run, recipe)
    if not (run / MODEL).is_file():
        raise RunWithoutWeights(run / MODEL)
    method = trained_method(run, recipe, len(result.sessions[0]), len(result.class_names))
    own = split_of(run)
    benchmark = OWN_PICTURES if own else recipe.benchmark.name
    origin = {"run": str(run), "method": recipe.method_name, "benchmark": benchmark}
    if without_images:
        return _base_spec(method, result.class_names, origin)
    try:
        root, photos = (None, data) if own else (data, None)
        options = CommonOptions(root=root, photos=photos, reporter=reporter)
        stream, _ = load_pictures(recipe, options, own)
    except UserError as problem:
        raise RunImagesMissing(problem) from problem
    spec = _base_spec(method, stream.class_names, origin)
    return with_images(spec, stream, reporter, own is not None if sessions is None else sessions)


def with_images(
    spec: StoreSpec, stream: Stream, reporter: Reporter = SILENT, sessions: bool = False
) -> StoreSpec:
    """Add samples of the base classes, and confidence; with `sessions` the other classes too."""
    spec = replace(spec, samples=_samples(stream, spec.network, reporter))
    shots = _shots(stream, spec.network, reporter)
    spec = replace(spec, confidence=_fit_confidence(spec, stream, shots, reporter))
    return replace(spec, taught=_taught(stream, shots), left_out=()) if sessions else spec


def _base_spec(method: Method[Any], names: Sequence[str], origin: dict[str, Any]) -> StoreSpec:
    """Return the spec of a store that knows the base classes, without any image."""
    base_classes, benchmark = method.base_classes, origin.get("benchmark")
    short_side = own_pictures_side(method.embedder.settings) if benchmark == OWN_PICTURES else 0
    drawing_side = SIDE if benchmark == "doodles" else None
    network = Network(method.embedder, method.views, drawing_side, short_side)
    left_out = names[base_classes:]
    return StoreSpec(network, _classifier(method), names[:base_classes], left_out=left_out, origin=origin)


def _classifier(method: Method[Any]) -> DualClassifier:
    """Return the classifier of a method; in a store Calibration is always bounded."""
    if isinstance(method, PrototypeMethod):
        return nearest_means(method.prototypes, method.counts)
    assert isinstance(method, DualMethod)
    chosen = method.settings.model_dump(include=set(PrototypeSettings.model_fields))
    if chosen.pop("recognised_by") == "answers":
        del chosen["threshold"]  # of another score than the one that bounded Calibration recognises by
    return replace(method.classifier, settings=PrototypeSettings(**chosen | {"bounded": True}))


def check_method(run: Path, recipe: Recipe) -> None:
    """Refuse a run that answers otherwise than a store can."""
    kind, name = method_named(recipe.method_name), recipe.method_name
    settings: object = recipe.method
    if issubclass(kind, DualMethod):
        if not isinstance(settings, PrototypeSettings):
            raise UnsupportedRun(run, name, "a store keeps prototypes of its classes, not mixtures")
        return
    nearest_mean = (
        issubclass(kind, PrototypeMethod)
        and kind.scores is PrototypeMethod.scores
        and kind.similarities is PrototypeMethod.similarities
        and kind.embed is PrototypeMethod.embed
    )
    if not nearest_mean:
        raise UnsupportedRun(run, name, "a store answers by SSS or by nearest class means")


def _samples(stream: Stream, network: Network, reporter: Reporter) -> dict[int, list[Photo]]:
    """Return the first training images of each base class."""
    samples = {}
    with reporter.track("embedding samples", stream.base_classes) as advance:
        for label in stream.base.classes:
            samples[label] = network.photos(_of_class(stream.base.train, label, SAMPLES))
            advance()
    return samples


def _shots(stream: Stream, network: Network, reporter: Reporter) -> list[Features]:
    """Embed the shots of each session after the base session as its run did, to the bit."""
    shots = []
    with reporter.track("embedding shots", len(stream.sessions) - 1) as advance:
        for session in stream.sessions[1:]:
            shots.append(network.embed(session.train.pictures))
            advance()
    return shots


def _taught(stream: Stream, shots: Sequence[Features]) -> dict[str, list[Photo]]:
    """Return the shots of each class that came after the base session, by its name."""
    taught = {}
    for session, features in zip(stream.sessions[1:], shots, strict=True):
        photos = as_photos(session.train.pictures, features)
        for label in session.classes:
            rows = np.flatnonzero(session.train.labels == label)
            taught[stream.class_names[label]] = [photos[row] for row in rows]
    return taught


def _fit_confidence(
    spec: StoreSpec, stream: Stream, shots: Sequence[Features], reporter: Reporter
) -> Confidence:
    """Fit confidence to the answers of a classifier that learns the sessions of the stream.

    Held-out images are the first half of each base class's test images, and the shots of the sessions, each
    answered for without itself. They are asked about after each session, so that confidence follows the
    number of classes. Base and taught classes weigh the same.
    """
    base, counts = stream.base.test, np.bincount(stream.base.test.labels, minlength=stream.base_classes)
    halves = [_of_class(base, label, (counts[label] + 1) // 2) for label in stream.base.classes]
    labels = torch.tensor([label for label, half in enumerate(halves) for _ in half])
    features = spec.network.embed(Pictures.concatenate(halves), reporter)
    classifier = _whitened_by_samples(spec)
    trials = [trials_of(classifier, features, labels)]
    met: list[Features] = []
    met_labels: list[Tensor] = []
    with reporter.track("fitting confidence", len(shots)) as advance:
        for session, new in zip(stream.sessions[1:], shots, strict=True):
            met, met_labels = [*met, new], [*met_labels, torch.from_numpy(session.train.labels)]
            classifier = classifier.extend(new, met_labels[-1])
            trials.append(trials_of(classifier, features, labels))
            trials.append(_left_out(classifier, met, torch.cat(met_labels)))
            advance()
    source = f"{len(labels)} test images of base classes"
    if shots:
        source += f", and {len(trials[-1].known)} photos of further classes, each answered for without itself"
    return Confidence.fit(Trials.concatenate(trials), source)


def _whitened_by_samples(spec: StoreSpec) -> DualClassifier:
    """Return the classifier that a store with these samples answers by before it is taught anything."""
    kept = sorted(
        ((label, photo) for label, photos in spec.samples.items() for photo in photos),
        key=lambda each: each[1].sha256,
    )[:MOST_WHITENING]
    if not kept:
        return spec.classifier
    labels = torch.tensor([label for label, _ in kept])
    return whitened_by_photos(spec.classifier, stacked([photo for _, photo in kept]), labels)


def _left_out(classifier: DualClassifier, shots: Sequence[Features], labels: Tensor) -> Trials:
    """Answer for the shots of classes that have at least two, each without itself."""
    chosen = classifier.counts[labels] > 1
    photos = {name: torch.cat([each[name] for each in shots])[chosen] for name in ("g", "g_tilde")}
    return leave_one_out(classifier, photos, labels[chosen])


def _of_class(images: LabelledPictures, label: int, at_most: int) -> Pictures:
    return images.pictures.take(np.flatnonzero(images.labels == label)[:at_most])
