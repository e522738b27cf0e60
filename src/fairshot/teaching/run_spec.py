"""A store from a trained run: its embedder and its classes, as the run's own test met them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from fairshot.benchmarks.doodles import SIDE
from fairshot.benchmarks.pictures import Pictures
from fairshot.benchmarks.stream import LabelledPictures, Stream
from fairshot.errors import UserError
from fairshot.evaluation.experiment import (
    OWN_PICTURES,
    find_pictures,
    had_own_pictures,
    own_pictures_side,
    remembered_pictures,
)
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import MODEL, command_on_base, recipe_of
from fairshot.methods import method_named
from fairshot.methods.prototype_method import CosineSettings, PrototypeMethod
from fairshot.methods.sss import SSS, SSSSettings
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe, default_recipe, load_recipe
from fairshot.teaching.calibration import CalibrationSettings
from fairshot.teaching.confidence import Confidence, Trials
from fairshot.teaching.creation import BaseClasses, StoreSpec, create_store
from fairshot.teaching.held_out import trials_of
from fairshot.teaching.network import Network, Photo

SAMPLES = 10  # images a base class that a store keeps
Supported = SSS | PrototypeMethod[CosineSettings]


def from_run(
    run: str | Path,
    data: Path | None = None,
    reporter: Reporter = SILENT,
    without_images: bool = False,
    sessions: bool | None = None,
) -> StoreSpec:
    """Take over the embedder and the base classes of a finished run, and with `sessions` the others too.

    Without a word on `sessions`, those of a run on own pictures are taught, whose owner expects to find all
    classes; a benchmark's are left for trying what a lesson does.

    Some images of each base class are kept too, and confidence is chosen on images the network was not
    trained on. They are looked for where the run found them, or in `data`; `without_images` does without.
    """
    run = Path(run)
    result = Result.read(run)
    recipe = recipe_of(run)
    _refuse_other_rules(run, recipe, data)
    method = _restored(run, recipe, len(result.sessions[0]))
    own = had_own_pictures(run)
    benchmark = OWN_PICTURES if own else recipe.benchmark.name
    origin = {"run": str(run), "method": recipe.method_name, "benchmark": benchmark}
    if without_images:
        return _founding(method, result.class_names, origin)
    stream = _stream(run, recipe, data, reporter)
    return from_method(method, stream, origin, reporter, own if sessions is None else sessions)


def from_method(
    method: Supported,
    stream: Stream,
    origin: dict[str, Any],
    reporter: Reporter = SILENT,
    sessions: bool = False,
) -> StoreSpec:
    """Take over a method that knows the base session of a stream; with `sessions` teach the others too."""
    founding = _founding(method, stream.class_names, origin)
    assert founding.base is not None
    samples = _samples(stream, founding.network, reporter)
    founding = replace(founding, base=replace(founding.base, samples=samples))
    lessons = _lessons(stream, founding.network, reporter)
    founding = replace(founding, confidence=_rehearse(founding, stream, lessons, reporter))
    return replace(founding, lessons=lessons, left_out=()) if sessions else founding


def _founding(method: Supported, names: list[str] | tuple[str, ...], origin: dict[str, Any]) -> StoreSpec:
    settings = method.settings if isinstance(method, SSS) else SSSSettings(resistance=False)
    return StoreSpec(
        network=_network(method, origin.get("benchmark")),
        base=BaseClasses(
            names=names[: method.base_classes],
            g=method.classifier.h.means if isinstance(method, SSS) else method.prototypes,
            g_tilde=method.classifier.h_tilde.means if isinstance(method, SSS) else method.prototypes,
            counts=(method.classifier.counts if isinstance(method, SSS) else method.counts).tolist(),
        ),
        gamma=settings.gamma if settings.resistance else 0.0,
        calibration=CalibrationSettings(
            alpha_base=settings.alpha_base,
            alpha_novel=settings.alpha_novel,
            threshold=settings.threshold,
            at_most=settings.at_most,
            drift=settings.drift,
        ),
        left_out=tuple(names[method.base_classes :]),
        origin=origin,
    )


def _network(method: Supported, benchmark: str | None) -> Network:
    """Return the embedder of a method, and how the pictures it was trained on had been prepared."""
    short_side = own_pictures_side(method.embedder.settings) if benchmark == OWN_PICTURES else 0
    drawing_side = SIDE if benchmark == "doodles" else None
    mirror = isinstance(method, SSS) and method.settings.mirror
    return Network(method.embedder, (False, True)[: method.views.count], drawing_side, short_side, mirror)


def _stream(run: Path, recipe: Recipe, data: Path | None, reporter: Reporter) -> Stream:
    """Load the images of a run: a benchmark, or own pictures in the split that the run drew."""
    try:
        if had_own_pictures(run):
            return find_pictures(recipe, None, data, run, reporter)[0]
        return find_pictures(recipe, data, None, None, reporter)[0]
    except UserError as problem:
        raise UserError(
            f"{problem}\nWith --without-images the store is made without them: it has no examples of its "
            "base classes, and learns what is unknown from the photos it is taught alone"
        ) from None


def _restored(run: Path, recipe: Recipe, base_classes: int) -> Supported:
    """Return the method of a run as the base session left it."""
    path = run / MODEL
    if not path.is_file():
        raise UserError(f"{path} is missing: the run kept no weights; run it again with --fresh")
    tensors = load_file(path)
    model = recipe.model.model_copy(update={"pretrained": False})
    kind = method_named(recipe.method_name)
    method = kind(recipe.method, model, tensors["embedder.mean"].shape[1], base_classes)
    method.restore(tensors)
    assert isinstance(method, SSS | PrototypeMethod)
    return method


def _refuse_other_rules(run: Path, recipe: Recipe, data: Path | None) -> None:
    """Refuse a run that answers otherwise than a store does."""
    kind = method_named(recipe.method_name)
    nearest_mean = (
        issubclass(kind, PrototypeMethod)
        and kind.scores is PrototypeMethod.scores
        and kind.answering_prototypes is PrototypeMethod.answering_prototypes
        and kind.embed is PrototypeMethod.embed
    )
    if kind is not SSS and not nearest_mean:
        raise UserError(
            f"{run} is a run of {recipe.method_name}, and a store answers by SSS or by nearest class means; "
            f"train one with: fairshot run {default_recipe('doodles')}"
        )
    settings = recipe.method
    if isinstance(settings, SSSSettings) and (settings.has_gate or settings.decision != "separately"):
        raise UserError(
            f"{run} decides by method.decision={settings.decision}, gate={settings.gate}, whitening="
            f"{str(settings.whitening).lower()}; a store decides as Algorithm 1 does, with the first look of "
            f"the paper. To make a store of the same training: {_command_for_store(run, recipe, data)}"
        )


def _command_for_store(run: Path, recipe: Recipe, data: Path | None) -> str:
    """Return the command that runs the training of a run as a store decides.

    Where a gate took the place of Resistance, Resistance returns as strong as in the recipe of fairshot:
    else nothing would act against the bias towards base classes.
    """
    settings, usual = recipe.method, load_recipe(default_recipe(recipe.benchmark.name)).method
    assert isinstance(settings, SSSSettings)
    assert isinstance(usual, SSSSettings)
    method: dict[str, Any] = {"decision": "separately"}
    if settings.has_gate:  # no other way has one
        method = {"gate": "plain", "whitening": False}
        if not (settings.resistance and settings.gamma):
            method |= {"resistance": True, "gamma": usual.gamma}
    photos, root = (data or _place_of_pictures(run), None) if had_own_pictures(run) else (None, data)
    return command_on_base(run, method, f"{run}-store", photos, root)


def _place_of_pictures(run: Path) -> Path:
    """Return where the pictures of a run lie, or what stands for it in a command."""
    try:
        return remembered_pictures(run)
    except UserError:
        return Path("PHOTOS")


def _samples(stream: Stream, network: Network, reporter: Reporter) -> dict[int, list[Photo]]:
    """Return the first training images of each base class."""
    samples = {}
    with reporter.track("embedding samples", stream.base_classes) as advance:
        for label in stream.base.classes:
            first = list(_of_class(stream.base.train, label))[:SAMPLES]
            samples[label] = network.embed_photos(network.preparation.pictures(first))
            advance()
    return samples


def _lessons(stream: Stream, network: Network, reporter: Reporter) -> dict[str, list[Photo]]:
    """Return the shots of each class that came after the base session, by its name."""
    lessons = {}
    with reporter.track("embedding shots", len(stream.class_names) - stream.base_classes) as advance:
        for session in stream.sessions[1:]:
            for label in session.classes:
                shots = network.preparation.pictures(list(_of_class(session.train, label)))
                lessons[stream.class_names[label]] = network.embed_photos(shots)
                advance()
    return lessons


def _rehearse(
    founding: StoreSpec, stream: Stream, lessons: dict[str, list[Photo]], reporter: Reporter
) -> Confidence:
    """Choose confidence in a store that is taught the stream's own sessions and then thrown away.

    Held-out images are the first half of each base class's test images, and the shots of the sessions, each
    answered for without itself. They are asked about after each session, so that confidence follows the
    number of classes. Base and taught classes weigh the same.
    """
    held_out = {label: list(_of_class(stream.base.test, label)) for label in stream.base.classes}
    halves = {label: images[: (len(images) + 1) // 2] for label, images in held_out.items()}
    names = [stream.class_names[label] for label, half in halves.items() for _ in half]
    pictures = founding.network.preparation.pictures([image for half in halves.values() for image in half])
    features = founding.network.embed_together(pictures, reporter)
    with (
        tempfile.TemporaryDirectory() as place,
        create_store(Path(place) / "rehearsal", founding) as store,
        reporter.track("rehearsing sessions", len(stream.sessions) - 1) as advance,
    ):
        trials = [trials_of(store.snapshot(), features, names)]
        for session in stream.sessions[1:]:
            for label in session.classes:
                store.teach_embedded(stream.class_names[label], lessons[stream.class_names[label]])
            trials += [trials_of(store.snapshot(), features, names), store.left_out_trials()]
            advance()
    source = f"{len(names)} test images of base classes"
    if len(trials) > 1:
        source += f", and {len(trials[-1].known)} photos of further classes, each answered for without itself"
    return Confidence.fit(Trials.concatenate(trials), source)


def _of_class(images: LabelledPictures, label: int) -> Pictures:
    return images.pictures.take(np.flatnonzero(images.labels == label))
