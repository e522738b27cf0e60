"""How well a store does on a folder of images: one sub-folder per class, named like the class.

Images in sub-folders whose names the store does not know should be answered "unknown".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import torch

from fairshot.models.embedder import Features
from fairshot.progress import SILENT, Reporter
from fairshot.teaching.class_folders import class_folders
from fairshot.teaching.confidence import ENOUGH, KEEP, Confidence
from fairshot.teaching.errors import TooFewHeldOut, UnreadablePhotos
from fairshot.teaching.held_out import trials_of
from fairshot.teaching.store import Store

BINS = 10  # of confidence, for the calibration error
NOTHING = "-"
AT_ONCE = 64  # images that are read and embedded together
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Shares are 0 .. 1; None where there is nothing to take a share of."""

    images: int
    unknown_images: int  # of classes the store does not know
    accuracy: float | None  # of known classes, when an answer is asked for each image
    base_accuracy: float | None
    taught_accuracy: float | None
    calibration_error: float  # mean distance of confidence from the share of right answers, over bins
    auroc: float | None  # of known against unknown images, by p_known
    unknown_found: float | None  # unknown images answered "unknown"
    known_refused: float | None  # images of known classes answered "unknown"
    rejection_rate: float
    accuracy_after_rejection: float | None  # of known classes, without the share least sure of
    by_class: dict[str, tuple[int, int]]  # known classes: images, and those answered right

    def rows(self) -> list[tuple[str, str]]:
        """Tell it in lines: what, and how much; what there is nothing to tell about is left out."""
        rejecting = f"accuracy without the {self.rejection_rate:.0%} it is least sure of"
        rows = [
            ("images (of classes it does not know)", f"{self.images:,} ({self.unknown_images:,})"),
            ("accuracy on known classes, if it must answer", _percent(self.accuracy)),
            ("  base classes", _percent(self.base_accuracy)),
            ("  taught classes", _percent(self.taught_accuracy)),
            (rejecting, _percent(self.accuracy_after_rejection)),
            ("balance, base over taught (1 is even)", _number(self.balance)),
            ("confidence is off by (calibration error)", _percent(self.calibration_error)),
            ("known against unknown, AUROC", _number(self.auroc)),
            ("  unknown images answered unknown", _percent(self.unknown_found)),
            ("  known images answered unknown", _percent(self.known_refused)),
        ]
        return [(label, value) for label, value in rows if value != NOTHING]

    @property
    def balance(self) -> float | None:
        """Base accuracy over taught accuracy: 1 is balance, above it the store favours base classes."""
        if self.base_accuracy is None or not self.taught_accuracy:
            return None
        return self.base_accuracy / self.taught_accuracy


@dataclass(frozen=True)
class LabelledFeatures:
    """Features of the images of a folder, and the class each shows."""

    names: list[str]
    features: Features
    files: list[Path] = field(default_factory=list)

    def halves(self) -> tuple[LabelledFeatures, LabelledFeatures]:
        """Halve the images, which come class by class: one half to choose something on, one to measure it."""
        return self.take(slice(None, None, 2)), self.take(slice(1, None, 2))

    def take(self, chosen: slice) -> LabelledFeatures:
        """Return some of the images."""
        features = {key: value[chosen] for key, value in self.features.items()}
        return LabelledFeatures(self.names[chosen], features, self.files[chosen])


def read_folder(store: Store, folder: str | Path, reporter: Reporter = SILENT) -> LabelledFeatures:
    """Embed all images of a folder of classes."""
    by_class = class_folders(Path(folder))
    class_of = {path: normalize("NFC", name) for name, paths in by_class.items() for path in paths}
    paths = list(class_of)
    names: list[str] = []
    files: list[Path] = []
    parts: list[Features] = []
    unreadable: dict[str, str] = {}
    with reporter.track("reading", len(paths)) as advance:
        for start in range(0, len(paths), AT_ONCE):
            some = paths[start : start + AT_ONCE]
            try:
                read = store.read(some)
            except UnreadablePhotos as problem:
                unreadable |= problem.reasons
            else:
                unreadable |= read.unreadable
                parts.append(store.network.embed(read.pictures))
                names += [class_of[path] for path in read.photos]
                files += read.photos
            advance(len(some))
    if not names:
        raise UnreadablePhotos(unreadable)
    for path, reason in unreadable.items():
        reporter.say(f"skipped {path}: {reason}")
    features = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    return LabelledFeatures(names, features, files)


def choose_confidence(
    store: Store, held_out: LabelledFeatures, source: str, keep: float = KEEP
) -> LabelledFeatures:
    """Choose confidence and threshold on one half of the images, and return the other to measure them on."""
    choosing, measuring = held_out.halves()
    snapshot = store.snapshot()
    labels = {name: label for label, name in enumerate(snapshot.names)}
    known = torch.tensor([labels.get(name, -1) for name in choosing.names])
    trials = trials_of(snapshot.classifier, choosing.features, known)
    if len(trials.known) < ENOUGH:
        raise TooFewHeldOut(len(trials.known), ENOUGH)
    store.set_confidence(Confidence.fit(trials, f"{len(trials.known)} images of {source}", keep=keep))
    return measuring


def evaluate(store: Store, labelled: LabelledFeatures, rejection_rate: float = 0.1) -> Evaluation:
    """Compare the answers of a store with the classes the images show."""
    from sklearn.metrics import roc_auc_score  # a second to import, and no other command of a store needs it

    answers = store.predict(labelled.features, top=1)
    base = {info.name: info.base for info in store.classes()}
    known = np.array([name in base for name in labelled.names])
    trained = np.array([base.get(name, False) for name in labelled.names])
    right = np.array(
        [answer.top[0].name == name for answer, name in zip(answers, labelled.names, strict=True)]
    )
    sure, p_known = (
        np.array([getattr(answer, kind) for answer in answers]) for kind in ("confidence", "p_known")
    )
    refused = np.array([answer.answer is None for answer in answers])
    by_confidence = np.argsort(-np.where(known, sure, -1), kind="stable")
    surest = by_confidence[: known.sum() - int(rejection_rate * known.sum())]
    return Evaluation(
        images=len(known),
        unknown_images=int((~known).sum()),
        accuracy=_share(right, known),
        base_accuracy=_share(right, known & trained),
        taught_accuracy=_share(right, known & ~trained),
        calibration_error=calibration_error(sure, right, known),
        auroc=float(roc_auc_score(known, p_known)) if known.any() and not known.all() else None,
        unknown_found=_share(refused, ~known),
        known_refused=_share(refused, known),
        rejection_rate=rejection_rate,
        accuracy_after_rejection=float(right[surest].mean()) if len(surest) else None,
        by_class=_by_class(labelled.names, known, right),
    )


def _share(flags: Flags, among: Flags) -> float | None:
    return float(flags[among].mean()) if among.any() else None


def calibration_error(sure: Floats, right: Flags, known: Flags) -> float:
    """Return the expected calibration error; known and unknown images weigh the same together."""
    weights = np.where(known, 1 / max(known.sum(), 1), 1 / max((~known).sum(), 1))
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights * (sure - right), BINS)
    return float(np.abs(gaps).sum() / weights.sum())


def _by_class(names: Sequence[str], known: Flags, right: Flags) -> dict[str, tuple[int, int]]:
    labels = np.array(names)
    return {
        str(name): (int((labels == name).sum()), int(right[labels == name].sum()))
        for name in np.unique(labels[known])
    }


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"
