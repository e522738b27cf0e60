"""How good a store on frozen features is, beside what one would write with scikit-learn instead.

The same draws of classes and photos for all: five photos per class are taught, others of the same classes are
asked, and photos of classes that are not taught are to be found unknown. Nothing was chosen on the classes
that are drawn here: species 101 to 200 of CUB-200-2011, and the 40 classes of the sessions of miniImageNet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairshot import benchmarks
from fairshot.benchmarks.dataset import MissingData, data_folder
from fairshot.benchmarks.images import image_files
from fairshot.classifiers.dual import DualClassifier
from fairshot.classifiers.prototypes import prototypes
from fairshot.errors import UserError
from fairshot.models.backbones import model_settings
from fairshot.models.embedder import Embedder, Features
from fairshot.models.presets import DEFAULT_PRESET
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.background import Background, background_of
from fairshot.teaching.base_classifier import SHOT_COVARIANCE, PhotoSpace, photo_classifier
from fairshot.teaching.confidence import Confidence
from fairshot.teaching.evaluating import calibration_error
from fairshot.teaching.held_out import leave_one_out
from fairshot.teaching.network import Network
from fairshot.tensor_files import read_tensors, write_tensors

Ints = npt.NDArray[np.int64]
BIRDS, EVERYDAY, MORE_BIRDS = "cub200", "mini_imagenet", "cub200, species 1-100"
ANY_BIRDS = "cub200, all species"
CHOOSING = {BIRDS: range(100), EVERYDAY: range(60)}  # classes on which settings may be chosen
REPORTED = {BIRDS: range(100, 200), EVERYDAY: range(60, 100)}
SHOTS = 5
EACH = 20  # photos per class
ASKED = 300  # photos per draw whose answers are judged as known, and as unknown
LOGISTIC_C, LDA_SHRINKAGE = 10.0, 0.7  # the best of each on classes that are not reported
SIZES = (1, 2, 3, 5, 12, 100)  # classes of the stores that are to find photos unknown
KINDS = (
    (BIRDS, BIRDS),
    (BIRDS, MORE_BIRDS),
    (BIRDS, ANY_BIRDS),
    (BIRDS, EVERYDAY),
    (EVERYDAY, EVERYDAY),
)
REFUSED = 0.1  # share of own photos
AT_ONCE = 16  # photos that are read and embedded together


@dataclass(frozen=True)
class PhotoFeatures:
    """Features of photos of some classes."""

    g: Tensor  # (N, d)
    labels: Ints

    def draw(self, classes: Sequence[int], rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return rows of shots and of further photos of classes, each in the order of the classes."""
        shots, others = [], []
        for label in classes:
            rows = rng.permutation(np.flatnonzero(self.labels == label))
            shots.append(rows[:SHOTS])
            others.append(rows[SHOTS:])
        return np.concatenate(shots), np.concatenate(others)


@dataclass(frozen=True)
class Task:
    """Classes to be told apart."""

    title: str
    dataset: str
    classes: int


TASKS = (
    Task("20 bird species", BIRDS, 20),
    Task("100 bird species", BIRDS, 100),
    Task("20 everyday things", EVERYDAY, 20),
)


@dataclass(frozen=True)
class AccuracyRow:
    """Accuracy of each classifier over draws of one task."""

    task: str
    draws: int
    mean: dict[str, float]
    deviation: dict[str, float]
    store_at_least: dict[str, int]  # draws in which the store was at least as good


@dataclass(frozen=True)
class UnknownRow:
    """How well stores of so many classes find photos of other classes unknown, over draws."""

    taught: str
    foreign: str
    classes: int
    draws: int
    auroc: float
    foreign_refused: float  # where the threshold refuses a tenth of the own photos
    calibration_error: float
    own_answered_unknown: float  # by the store's own threshold
    foreign_answered_unknown: float


@dataclass(frozen=True)
class Taught:
    """What a store answers by that was taught these shots: its classifier and its confidence."""

    classifier: DualClassifier
    confidence: Confidence

    @classmethod
    def by(cls, background: Background, g: Tensor, labels: Tensor) -> Taught:
        """Teach shots (N, d), as a store without base classes is taught: at least two per class."""
        classifier = taught_classifier(background.space(), g, labels)
        trials = leave_one_out(classifier, as_features(g), labels)
        return cls(classifier, background.settings.prior.confidence(trials, classifier.classes))

    def judge(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the answers, confidence and p_known of photos (N,)."""
        scores, sure, p_known = self.confidence.judge(self.classifier, as_features(g))
        return scores.argmax(1), sure, p_known


def taught_classifier(space: PhotoSpace, g: Tensor, labels: Tensor) -> DualClassifier:
    """Return the classifier of a store without base classes that was taught shots (N, d)."""
    shots = as_features(g)
    classifier = photo_classifier(space, as_features(g[:0]), labels[:0], 0).extend(shots, labels)
    return classifier.with_shot_covariance(shots, labels, SHOT_COVARIANCE)


def as_features(g: Tensor) -> Features:
    """Return features (N, d) of the one view of photos, g~ being g."""
    return {"g": g[:, None], "g_tilde": g[:, None]}


def photo_features(
    dataset: str,
    classes: Sequence[int],
    each: int = EACH,
    root: Path | None = None,
    reporter: Reporter = SILENT,
) -> PhotoFeatures:
    """Embed so many photos of each class, or read their features from the cache of an earlier run."""
    files, labels = _chosen_files(dataset, classes, each, data_folder(root))
    settings = model_settings(DEFAULT_PRESET).pinned()
    names = "\n".join(f"{file.parent.name}/{file.name}" for file in files)
    key = hashlib.sha256(f"{settings.model_dump_json()}\n{names}".encode()).hexdigest()[:32]
    name = f"{DEFAULT_PRESET}-{dataset}-{key}.safetensors"
    cached = platformdirs.user_cache_path("fairshot") / "features" / name
    if cached.is_file():
        with suppress(UserError):  # it is damaged
            return PhotoFeatures(read_tensors(cached)["g"], labels)
    network = Network(Embedder(settings, 3))
    parts = []
    with reporter.track(f"embedding photos of {dataset}", len(files)) as advance:
        for start in range(0, len(files), AT_ONCE):
            some = files[start : start + AT_ONCE]
            parts.append(network.embed(network.preparation.read(some).pictures)["g"][:, 0])
            advance(len(some))
    g = torch.cat(parts)
    write_tensors(cached, {"g": g}, {"dataset": dataset})
    return PhotoFeatures(g, labels)


def reported_photos(root: Path | None = None, reporter: Reporter = SILENT) -> dict[str, PhotoFeatures]:
    """Return the photos that are drawn from, and bird species that are only ever foreign."""
    photos = {
        name: photo_features(name, classes, root=root, reporter=reporter)
        for name, classes in REPORTED.items()
    }
    return photos | {MORE_BIRDS: photo_features(BIRDS, CHOOSING[BIRDS], root=root, reporter=reporter)}


def _chosen_files(dataset: str, classes: Sequence[int], each: int, root: Path) -> tuple[list[Path], Ints]:
    """Return random photos of each class, always the same ones, and their classes."""
    known = benchmarks.dataset_named(dataset)
    folder = known.find(root)
    if folder is None or not folder.is_dir():
        raise MissingData(known, root)
    by_class: dict[str, list[Path]] = {}
    for file in sorted(image_files(folder)):
        by_class.setdefault(file.parent.name, []).append(file)
    rng = np.random.default_rng(0)
    ordered = [by_class[name] for name in sorted(by_class)]
    shuffled = [[found[row] for row in rng.permutation(len(found))] for found in ordered]
    files = [file for label in classes for file in shuffled[label][:each]]
    labels = np.array([label for label in classes for _ in shuffled[label][:each]])
    return files, labels


def nearest_mean(shots: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """Answer with the class whose mean has the highest cosine."""
    means = prototypes(shots[:, None], labels, range(int(labels.max()) + 1))[:, 0]
    return (normalize(asked, dim=1) @ normalize(means, dim=1).T).argmax(1)


def logistic_regression(shots: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """Answer by logistic regression on features of unit length."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=LOGISTIC_C, max_iter=200)
    model.fit(normalize(shots, dim=1).numpy(), labels.numpy())
    return torch.from_numpy(model.predict(normalize(asked, dim=1).numpy()))


def shrinkage_lda(shots: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """Answer by linear discriminant analysis with a shrunk covariance."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=LDA_SHRINKAGE)
    return torch.from_numpy(model.fit(shots.numpy(), labels.numpy()).predict(asked.numpy()))


OTHERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "nearest mean": nearest_mean,
    "logistic regression": logistic_regression,
    "shrinkage LDA": shrinkage_lda,
}
STORE = "store"


def measure_accuracy(
    sets: dict[str, PhotoFeatures], draws: int, reporter: Reporter = SILENT
) -> list[AccuracyRow]:
    """Measure all classifiers on the same draws."""
    background = _background()
    rows = []
    for task in TASKS:
        found: dict[str, list[float]] = {name: [] for name in (*OTHERS, STORE)}
        photos, pool = sets[task.dataset], REPORTED[task.dataset]
        with reporter.track(task.title, draws) as advance:
            for seed in range(draws):
                rng = np.random.default_rng(seed)
                chosen = rng.permutation(pool)[: task.classes].tolist()
                shots, asked = photos.draw(chosen, rng)
                labels, truth = (positions_of(photos.labels[each], chosen) for each in (shots, asked))
                for name, classify in OTHERS.items():
                    answers = classify(photos.g[shots], labels, photos.g[asked])
                    found[name].append(float((answers == truth).double().mean()))
                answers, _, _ = Taught.by(background, photos.g[shots], labels).judge(photos.g[asked])
                found[STORE].append(float((answers == truth).double().mean()))
                advance()
        rows.append(_accuracy_row(task.title, draws, found))
    return rows


def _accuracy_row(title: str, draws: int, found: dict[str, list[float]]) -> AccuracyRow:
    store = np.array(found[STORE])
    return AccuracyRow(
        title,
        draws,
        {name: float(np.mean(values)) for name, values in found.items()},
        {name: float(np.std(values, ddof=min(draws - 1, 1))) for name, values in found.items()},
        {name: int((store >= np.array(found[name])).sum()) for name in OTHERS},
    )


def measure_unknown(
    sets: dict[str, PhotoFeatures], draws: int, reporter: Reporter = SILENT
) -> list[UnknownRow]:
    """Measure how foreign photos are told from own ones.

    Of birds: the other species among 101 to 200, which are near relatives (sparrows, warblers); those from 1
    to 100, on which confidence was chosen; all that are not taught; and everyday things.
    """
    background = _background()
    parts = (sets[BIRDS], sets[MORE_BIRDS])
    every = PhotoFeatures(
        torch.cat([part.g for part in parts]), np.concatenate([part.labels for part in parts])
    )
    sets = sets | {ANY_BIRDS: every}
    rows = []
    for taught, foreign in KINDS:
        for size in SIZES:
            pool, photos, others = REPORTED[taught], sets[taught], sets[foreign]
            related = foreign in (taught, ANY_BIRDS)  # classes taught are among those of the foreign photos
            if related and size >= len(pool):  # none is left of those like them
                continue
            judged = []
            with reporter.track(f"{size} classes of {taught}, foreign {foreign}", draws) as advance:
                for seed in range(draws):
                    judged.append(_judged(photos, pool, others, related, size, seed, background))
                    advance()
            rows.append(_unknown_row(taught, foreign, size, judged))
    return rows


Judged = dict[str, Any]


def _judged(
    photos: PhotoFeatures,
    pool: Sequence[int],
    others: PhotoFeatures,
    related: bool,
    size: int,
    seed: int,
    background: Background,
) -> Judged:
    """Teach one draw of classes, and judge own and foreign photos."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(pool)[:size].tolist()
    shots, asked = photos.draw(chosen, rng)
    asked = rng.permutation(asked)[:ASKED]
    taught = chosen if related else []
    strange = rng.permutation(np.flatnonzero(~np.isin(others.labels, taught)))[:ASKED]
    store = Taught.by(background, photos.g[shots], positions_of(photos.labels[shots], chosen))
    answers, sure, p_known = store.judge(torch.cat([photos.g[asked], others.g[strange]]))
    known = np.arange(len(answers)) < len(asked)
    truth = torch.cat([positions_of(photos.labels[asked], chosen), torch.full((len(strange),), -1)])
    return {
        "known": known,
        "right": (answers == truth).numpy(),
        "sure": sure.double().numpy(),
        "p_known": p_known.double().numpy(),
        "refused": (p_known < store.confidence.threshold).numpy(),
    }


def _unknown_row(taught: str, foreign: str, size: int, judged: Sequence[Judged]) -> UnknownRow:
    """Average over draws; the calibration error is that of all of them together."""
    from sklearn.metrics import roc_auc_score

    def mean(measure: Callable[[Judged], float]) -> float:
        return float(np.mean([measure(each) for each in judged]))

    def refused(each: Judged) -> float:
        least = np.quantile(each["p_known"][each["known"]], REFUSED)
        return float((each["p_known"][~each["known"]] < least).mean())

    together = {key: np.concatenate([each[key] for each in judged]) for key in ("sure", "right", "known")}
    return UnknownRow(
        taught,
        foreign,
        size,
        len(judged),
        mean(lambda each: roc_auc_score(each["known"], each["p_known"])),
        mean(refused),
        calibration_error(together["sure"], together["right"], together["known"]),
        mean(lambda each: each["refused"][each["known"]].mean()),
        mean(lambda each: each["refused"][~each["known"]].mean()),
    )


def _background() -> Background:
    background = background_of(DEFAULT_PRESET)
    assert background is not None  # it comes with fairshot
    return background


def positions_of(labels: Ints, classes: Sequence[int]) -> Tensor:
    """Return the positions of labels among the classes of a draw."""
    position = {int(label): index for index, label in enumerate(classes)}
    return torch.tensor([position[int(label)] for label in labels])
