"""The classifiers of the base session as one file, which no teaching changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor

from fairshot.classifiers.decision_settings import PrototypeSettings
from fairshot.classifiers.dual import DualClassifier
from fairshot.classifiers.prototype_classifier import Prototypes, ResistingPrototypes
from fairshot.classifiers.resistance import no_delta
from fairshot.classifiers.whitening import Whitening
from fairshot.errors import PathUnusable
from fairshot.models.embedder import Features
from fairshot.teaching.network import Network, read_tensors, write_tensors

WHAT = "the classifier of a store"
SHOT_COVARIANCE = 0.1  # chosen on species 1 to 100 of CUB-200-2011 and the base classes of miniImageNet
MOST_WHITENING = 500  # photos of a store that whiten: a teaching must not take longer in a larger store
MEANS = ("h.means", "h_tilde.means", "h_tilde.trained", "gate.prototypes", "gate.metric_shares")


def nearest_means(prototypes: Tensor, counts: Tensor) -> DualClassifier:
    """Return the classifier that answers with the nearest of prototypes (B, V, d), by g alone."""
    settings = PrototypeSettings(decision="transferable_only", resistance=False, bounded=True)
    h_tilde = ResistingPrototypes(prototypes, prototypes, no_delta(prototypes))
    return DualClassifier(settings, len(counts), counts, Prototypes(prototypes), h_tilde)


class StoreSettings(PrototypeSettings):
    """How the classes of a store are compared: as in a run, or whitened by its photos too."""

    shot_covariance: float = Field(
        0.0, ge=0, description="Weight of the covariance within taught classes in whitening."
    )
    within_variance: float = Field(
        0.0, ge=0, description="Variance within a class that is expected in the whitened space; 0: unknown."
    )


@dataclass(frozen=True)
class PhotoSpace:
    """The space in which photos are compared, and the variance within a class there, 0 if unknown."""

    whitening: Whitening
    within_variance: float = 0.0


def photo_classifier(space: PhotoSpace, features: Features, labels: Tensor, classes: int) -> DualClassifier:
    """Return the classifier of photos by g alone, in a whitened space, with base classes or with none."""
    settings = StoreSettings(
        decision="transferable_only",
        resistance=False,
        bounded=True,
        whitening=True,
        power=space.whitening.power,
        shot_covariance=SHOT_COVARIANCE,
        within_variance=space.within_variance,
    )
    return DualClassifier.fit(settings, features, labels, classes, space.whitening)


def shot_covariance(classifier: DualClassifier) -> float:
    """Return the weight of the covariance within taught classes in whitening."""
    return classifier.settings.shot_covariance if isinstance(classifier.settings, StoreSettings) else 0.0


def whitened_by_photos(classifier: DualClassifier, photos: Features, labels: Tensor) -> DualClassifier:
    """Whiten by photos of the store too, if its settings say so; a single photo of a class tells nothing."""
    weight, repeated = shot_covariance(classifier), labels.bincount()[labels] > 1
    if not weight or not bool(repeated.any()):
        return classifier
    some = {name: values[repeated] for name, values in photos.items()}
    return classifier.with_shot_covariance(some, labels[repeated], weight)


def write_classifier(path: Path, classifier: DualClassifier) -> None:
    """Write the tensors, and the settings in the header."""
    write_tensors(path, classifier.tensors(), classifier.settings)


def read_classifier(path: Path, network: Network) -> DualClassifier:
    """Read what `write_classifier` wrote, and refuse what does not fit the embedder."""
    tensors, settings = read_tensors(path, StoreSettings, WHAT)
    base_classes = len(tensors.get("counts", ()))
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    expected = _shapes(settings, network, base_classes, found)
    for name, value in tensors.items():
        whole = name in ("counts", "gate.counts", "h_tilde.delta")
        if value.dtype != (torch.int64 if whole else torch.float32):
            raise PathUnusable(path, f"is not {WHAT} ({name} is of {value.dtype})")
    if found != expected:
        differing = sorted(name for name, _ in found.items() ^ expected.items())
        raise PathUnusable(path, f"is not {WHAT}, or of another embedder ({', '.join(differing)})")
    return DualClassifier.from_tensors(settings, base_classes, tensors, network.views.count)


def _shapes(
    settings: PrototypeSettings, network: Network, base: int, found: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that a classifier of base classes has; ranks are as they are found."""
    views, width = network.shape
    g, g_tilde = (base, views, width), (base, *(network.shape_tilde or network.shape))
    shapes: dict[str, tuple[int, ...]] = {"counts": (base,), "h.means": g}
    shapes |= {f"h_tilde.{name}": g_tilde for name in ("means", "trained", "delta")}
    if settings.has_gate:
        shapes |= {"gate.prototypes": g, "gate.counts": (base,), "gate.noise": (0, 2), "gate.margins": (0,)}
    if settings.whitening:
        shapes |= {"gate.centre": (views, width), "gate.matrix": (views, width, width)}
        if settings.class_covariance_share:
            shapes["gate.metric_shares"] = (base, base)
            if "gate.metrics" in found:  # as in files of version 0.2
                shapes["gate.metrics"] = (base, views, width, width)
            else:
                rank = min([width, *found.get("gate.metric_roots", ())[2:3]])
                shapes["gate.metric_common"] = (views, width, width)
                shapes["gate.metric_roots"] = (base, views, rank, width)
    return shapes


def regrouped(base: DualClassifier, groups: Sequence[Sequence[int]]) -> DualClassifier:
    """Return the classifier whose base classes are groups of the present ones, by their positions.

    The prototype of a group is the mean of its images; a class in no group is left out.
    """
    if [list(group) for group in groups] == [[position] for position in range(base.classes)]:
        return base
    member = torch.zeros(len(groups), base.classes, dtype=torch.float64)
    for row, group in enumerate(groups):
        member[row, list(group)] = 1
    counts = member @ base.counts.double()
    weights = member * base.counts / counts[:, None]
    tensors = base.tensors()
    for name in MEANS:
        if name in tensors:
            rows = tensors[name]
            mean = (weights @ rows.flatten(1).double()).reshape(len(groups), *rows.shape[1:])
            tensors[name] = mean.to(rows.dtype)
    for name in ("counts", "gate.counts"):
        if name in tensors:
            tensors[name] = counts.long()
    tensors["h_tilde.delta"] = group_sums(tensors["h_tilde.delta"], groups)
    return DualClassifier.from_tensors(base.settings, len(groups), tensors, base.h.means.shape[1])


def group_sums(delta: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """Sum the Delta of the base classes of each group: a merged class resists for all of them."""
    sums = [delta[list(group)].sum(0) for group in groups]
    return torch.stack(sums) if sums else delta[:0]
