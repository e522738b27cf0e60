"""The choice of a gate: rules are tried on base classes that play novel ones, then drawn on a run's sessions.

It works on the features of a finished embedder. Every parameter of a rule is chosen on pseudo-novel classes,
never on the test images it is then judged by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairshot.benchmarks.stream import Stream
from fairshot.documents import write_json
from fairshot.errors import FolderOccupied, OtherImages, UserError
from fairshot.evaluation.base_session import check_base, check_images, restore_method
from fairshot.evaluation.experiment import load_pictures, split_of
from fairshot.evaluation.run_folder import PSEUDO_NOVEL, RECIPE, TRIALS, is_finished, recipe_of
from fairshot.methods import method_named
from fairshot.methods.method import Method
from fairshot.methods.prototype_method import PrototypeMethod
from fairshot.methods.sss import SSS, SSSSettings
from fairshot.progress import SILENT, Reporter
from fairshot.recipes import Recipe
from fairshot.studies.cached_stream import CachedStream, cache_stream
from fairshot.studies.execute import StudyOptions, execute
from fairshot.studies.gates import Gate, common_gates, curve, own_gates
from fairshot.studies.plan import PlannedRun, share_trainings
from fairshot.studies.pseudo_novel import (
    describe_split,
    pseudo_sizes,
    pseudo_stream,
    pseudo_streams,
    with_as_many_steps,
)
from fairshot.studies.tradeoff import CurvePoint, RuleCurve, TradeOff
from fairshot.training.hardware import choose_hardware

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class NoGate(UserError):
    """A run whose method decides neither by SSS nor by prototypes of a frozen network."""

    run: Path
    method: str
    message = (
        "{run} is a run of {method}; gates decide on prototypes of SSS, or of a method whose network stays "
        "as the base session left it"
    )


def gate_folders(paths: Sequence[Path], pseudo: Path | None = None) -> dict[Path, Path]:
    """Return the finished runs at paths or directly below them, and where each has its pseudo-novel training.

    That is `pseudo`, or a folder in the run. Of several runs it is a folder per method, which its seeds
    share, in `pseudo` or beside the runs.
    """
    found = [run for path in paths for run in _finished(path)]
    if len(paths) == 1 and found in ([], [paths[0]]):  # none is finished: `choose_gate` says what is missing
        return {paths[0]: pseudo or paths[0] / PSEUDO_NOVEL}
    return {run: (pseudo or run.parent / PSEUDO_NOVEL) / re.sub(r"-seed\d+", "", run.name) for run in found}


def _finished(path: Path) -> list[Path]:
    below = sorted(path.iterdir()) if path.is_dir() else []
    return [path] if is_finished(path) else [run for run in below if is_finished(run)]


def choose_gate(
    run: Path,
    pseudo: Path | None = None,
    novel: int | None = None,
    held_out: int | None = None,
    draws: int = 10,
    splits: int = 1,
    mirror: bool = False,
    options: StudyOptions = StudyOptions(),
) -> TradeOff:
    """Choose the gate of each rule on pseudo-novel classes, and draw the rule's curve on a run's sessions.

    `run` is a finished run of SSS, or of a method whose classes are prototypes of a network that stays as the
    base session left it: the gates then decide on its features, and where it has no SR module g~ is g. With
    `mirror` features are averaged with those of mirror images. The networks for the choice are trained in
    `pseudo`, one per split of the base classes into base and pseudo-novel ones; on each, `draws` draws of
    sessions, shots and test images are tried. A gate is chosen by its mean over the splits. Writes the
    trade-off and its page into the run, and all that was tried into `pseudo`.
    """
    folder, recipe = pseudo or run / PSEUDO_NOVEL, _gated_recipe(run, mirror)
    fabric, reporter = choose_hardware(options.device), options.reporter
    ground = _plan_choice(run, recipe, folder, novel, held_out, splits, options)
    folder.mkdir(parents=True, exist_ok=True)
    reporter.say(options.command)
    _train(ground.splits, options)
    tried = search(_streams_of_choice(ground, mirror, draws, fabric, reporter), reporter)
    write_json(folder / TRIALS, json.dumps({"trials": [point.model_dump() for point in tried]}))
    chosen = choose(tried)
    for point in chosen.values():
        reporter.say(f"chosen: {point}")
    method = restore_method(run, recipe, ground.stream, fabric)
    _set_mirror(method, mirror)
    cached = cache_stream(method, ground.stream, reporter)
    found = _tradeoff(cached, chosen, _gate_of_run(recipe), options)
    found = found.model_copy(update={"method": recipe.method_name, "mirror": method.views.mirror})
    found.write(run)
    return found


def train_on_pseudo_novel(
    folders: Mapping[Path, Path],
    novel: int | None = None,
    held_out: int | None = None,
    splits: int = 1,
    options: StudyOptions = StudyOptions(),
) -> None:
    """Train what `choose_gate` needs for several runs, as many networks at once as the options say.

    `folders` has each run's folder of pseudo-novel trainings, as `gate_folders` returns them. Runs that can
    have no gate are passed over.
    """
    planned: dict[Path, PlannedRun] = {}  # seeds of a method share theirs
    for run, folder in folders.items():
        try:
            recipe = _gated_recipe(run, mirror=False)
        except NoGate:
            continue
        ground = _plan_choice(run, recipe, folder, novel, held_out, splits, options)
        for each in ground.splits:
            planned.setdefault(each.out, each)
    _train(share_trainings(list(planned.values())), options)


@dataclass(frozen=True)
class _Ground:
    """What a choice is made on: the images of a run, and the trainings on splits of its base classes."""

    stream: Stream
    novel: int
    held_out: int
    recipe: Recipe  # of the trainings, and of the decision on what they learnt
    splits: list[PlannedRun]


def _plan_choice(
    run: Path,
    recipe: Recipe,
    folder: Path,
    novel: int | None,
    held_out: int | None,
    splits: int,
    options: StudyOptions,
) -> _Ground:
    own_pictures = split_of(run)
    stream, _ = load_pictures(recipe, options, own_pictures)
    check_images(run, stream)  # before a network is trained that nothing could be done with
    novel, held_out = pseudo_sizes(stream, novel, held_out)
    longer = with_as_many_steps(recipe, stream, novel, held_out)
    planned = _plan_splits(folder, longer, splits, novel, held_out, own_pictures)
    return _Ground(stream, novel, held_out, longer, planned)


def _train(planned: Sequence[PlannedRun], options: StudyOptions) -> None:
    for status in execute(planned, replace(options, fresh=False)):
        status.check()


def _streams_of_choice(
    ground: _Ground, mirror: bool, draws: int, fabric: Fabric, reporter: Reporter
) -> list[list[CachedStream]]:
    """Draw the streams of each split, on the features of the network that was trained on it."""
    stream, novel, held_out, streams = ground.stream, ground.novel, ground.held_out, []
    for each in ground.splits:
        method, seed = _restore_split(each, ground.recipe, stream, fabric), each.recipe.seed
        _set_mirror(method, mirror)
        reporter.say(describe_split(stream, novel, held_out, seed, fabric) + f"; {draws} draws")
        streams.append(pseudo_streams(method, stream, novel, held_out, seed, draws, reporter))
    return streams


def _gated_recipe(run: Path, mirror: bool) -> Recipe:
    """Return the recipe of a run whose features gates can decide on; SSS may be asked for mirror images."""
    recipe = recipe_of(run)
    kind = method_named(recipe.method_name)
    if kind is not SSS and not (issubclass(kind, PrototypeMethod) and kind.frozen):
        raise NoGate(run, recipe.method_name)
    if mirror and isinstance(recipe.method, SSSSettings):
        recipe = replace(recipe, method=recipe.method.model_copy(update={"mirror": True}))
    check_base(run, recipe)
    return recipe


def _set_mirror(method: Method[Any], mirror: bool) -> None:
    """Let a method average features with those of mirror images; one that does so already still does."""
    method.views = replace(method.views, mirror=mirror or method.views.mirror)


def _plan_splits(
    folder: Path, recipe: Recipe, splits: int, novel: int, held_out: int, own_pictures: Path | None
) -> list[PlannedRun]:
    """Plan a training per split; one that is there already keeps its recipe, which must train alike.

    Their seeds follow that of the first one.
    """
    planned: list[PlannedRun] = []
    for number in range(1, splits + 1):
        out = folder / f"split{number}"
        seed = planned[-1].recipe.seed + 1 if planned else recipe.seed
        recorded = recipe_of(out) if (out / RECIPE).is_file() else replace(recipe, seed=seed)
        if replace(recorded, seed=recipe.seed).training_part() != recipe.training_part():
            raise FolderOccupied(
                out, "the training of another recipe; only the seed and the decision may differ"
            )
        prepare = partial(pseudo_stream, novel=novel, held_out=held_out, seed=recorded.seed)
        name = f"{recipe.method_name} pseudo-novel split {number}"
        planned.append(PlannedRun(recorded, out, name, split=own_pictures, prepare=prepare))
    return planned


def _restore_split(planned: PlannedRun, recipe: Recipe, stream: Stream, fabric: Fabric) -> Method[Any]:
    """Return the network of a split, deciding as the run does."""
    assert planned.prepare is not None
    own = replace(recipe, seed=planned.recipe.seed)
    try:
        return restore_method(planned.out, own, planned.prepare(stream), fabric)
    except OtherImages as problem:
        raise FolderOccupied(
            planned.out, f"a training on other pseudo-novel classes or images: {problem.difference}"
        ) from None


def _gate_of_run(recipe: Recipe) -> Gate | None:
    """Return Resistance as the run has it, or None if the run decides by another rule."""
    settings = recipe.method
    if not isinstance(settings, SSSSettings):
        return None
    if settings.has_gate or settings.calibration or settings.decision != "separately":
        return None
    return Gate("plain", 0.0, gamma=settings.gamma if settings.resistance else 0.0)


def _tradeoff(
    stream: CachedStream, chosen: dict[str, CurvePoint], of_run: Gate | None, options: StudyOptions
) -> TradeOff:
    """Go through the run's sessions with the gates of each curve, in the space chosen for its rule."""
    curves = {rule: set(curve(point.gate)) for rule, point in chosen.items()}
    if of_run is not None:
        curves[of_run.family].add(of_run)
    gates = [gate for found in curves.values() for gate in sorted(found, key=lambda gate: gate.position)]
    tuned = {point.gate for point in chosen.values()}
    points = [
        point.model_copy(update={"tuned": point.gate in tuned, "of_run": point.gate == of_run})
        for point in evaluate([stream], gates, options.reporter)
    ]
    rules = [RuleCurve(name=rule, points=[each for each in points if each.rule == rule]) for rule in curves]
    return TradeOff(command=options.command, rules=rules, chosen_on_pseudo_novel=list(chosen.values()))


def evaluate(
    streams: Sequence[CachedStream], gates: Sequence[Gate], reporter: Reporter = SILENT, what: str = "gates"
) -> list[CurvePoint]:
    """Go through every stream with every gate; the streams are over one feature bank."""
    points: dict[Gate, CurvePoint] = {}
    with reporter.track(what, len(gates)) as advance:
        for projection in streams[0].bank.projections(gate.space for gate in gates):
            mine = [gate for gate in gates if gate.space == projection.space]
            found = zip(*(stream.through(projection, mine) for stream in streams), strict=True)
            points |= {gate: CurvePoint.average(gate, each) for gate, each in zip(mine, found, strict=True)}
            advance(len(mine))
    return [points[gate] for gate in gates]


def search(splits: Sequence[Sequence[CachedStream]], reporter: Reporter = SILENT) -> list[CurvePoint]:
    """Try the gates: first those common to all classes, then class covariances near the best whitening.

    The streams of a split are over one feature bank; a point is the mean over the splits.
    """

    def over_splits(gates: Sequence[Gate], what: str) -> list[CurvePoint]:
        found = zip(*(evaluate(streams, gates, reporter, what) for streams in splits), strict=True)
        return [CurvePoint.average(gate, each) for gate, each in zip(gates, found, strict=True)]

    points = over_splits(common_gates(), "gates")
    best = max((point for point in points if point.method["whitening"]), key=lambda point: point.both)
    assert best.gate.space is not None
    return points + over_splits(own_gates(best.gate.space), "gates, class covariances")


def choose(points: Iterable[CurvePoint]) -> dict[str, CurvePoint]:
    """Choose the best point of each rule by the mean of overall accuracy and harmonic mean."""
    best: dict[str, CurvePoint] = {}
    for point in points:
        if point.rule not in best or point.both > best[point.rule].both:
            best[point.rule] = point
    return best
