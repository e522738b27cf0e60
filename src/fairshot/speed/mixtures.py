"""Speed of fitting all mixture classifiers at once, beside a loop of scikit-learn over the classes."""

from __future__ import annotations

import timeit
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture
from torch import Tensor

from fairshot.classifiers.mixtures import Mixtures, fit_mixtures
from fairshot.progress import SILENT, Reporter

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class MixtureCase:
    """Features to which mixtures are fitted."""

    name: str
    classes: int
    images: int  # per class
    dimensions: int
    components: int


# CIFAR-100: base and novel classes, transferable and class-specific features; two views of each image.
CIFAR = (
    MixtureCase("base classes, g", 60, 500, 512, 3),
    MixtureCase("base classes, g~", 60, 500, 2048, 3),
    MixtureCase("novel classes, g", 40, 5, 512, 1),
    MixtureCase("novel classes, g~", 40, 5, 2048, 1),
)
VIEWS = 2


@dataclass(frozen=True)
class MixtureSpeed:
    """Seconds for one case, from the features alone and from the same initial responsibilities."""

    name: str
    mixtures: int
    seconds: float
    sklearn_seconds: float  # with its own k-means
    same_start_seconds: float
    sklearn_same_start_seconds: float
    difference: float  # largest, of means, weights and covariances, from the same start

    @property
    def times(self) -> float:
        """How many times faster than scikit-learn."""
        return self.sklearn_seconds / self.seconds


def measure_mixtures(
    cases: Sequence[MixtureCase] = CIFAR, repeats: int = 3, device: str = "cpu", reporter: Reporter = SILENT
) -> list[MixtureSpeed]:
    """Time each case on random features, the best of some repeats; the last row is their sum."""
    rows = []
    with reporter.track("mixtures", len(cases)) as advance:
        for case in cases:
            rows.append(_measure(case, repeats, device))
            advance()
    return [*rows, _total(rows)]


def _measure(case: MixtureCase, repeats: int, device: str) -> MixtureSpeed:
    features, labels = random_features(case)
    start = kmeans_start(features, labels, case.components)
    groups = [
        (features[labels == c, view].numpy(), start[labels == c, view].numpy())
        for c in range(case.classes)
        for view in range(VIEWS)
    ]
    ours = fit_mixtures(features, labels, range(case.classes), case.components, start)
    theirs = [fit_alone(values, case.components, begin) for values, begin in groups]
    x, y, begin = features.to(device), labels.to(device), start.to(device)

    def at_once(given: Tensor | None = None) -> None:
        fit_mixtures(x, y, range(case.classes), case.components, given).lower_bound.sum().item()

    def loop(same_start: bool) -> None:
        for values, initial in groups:
            fit_alone(values, case.components, initial if same_start else None)

    return MixtureSpeed(
        name=case.name,
        mixtures=len(groups),
        seconds=_best(at_once, repeats),
        sklearn_seconds=_best(lambda: loop(same_start=False), 1),
        same_start_seconds=_best(lambda: at_once(begin), repeats),
        sklearn_same_start_seconds=_best(lambda: loop(same_start=True), 1),
        difference=_difference(ours, theirs),
    )


def random_features(case: MixtureCase) -> tuple[Tensor, Tensor]:
    """Draw features like those of a network: not negative, three clusters per class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(case.classes).repeat(case.images)
    which = torch.randint(0, 3, (len(labels),), generator=generator)
    centres = 0.5 * torch.randn(case.classes, 1, VIEWS, case.dimensions, generator=generator)
    centres = centres + 0.3 * torch.randn(case.classes, 3, VIEWS, case.dimensions, generator=generator)
    noise = torch.randn(len(labels), VIEWS, case.dimensions, generator=generator)
    return noise.add_(centres[labels, which]).relu_(), labels


def kmeans_start(features: Tensor, labels: Tensor, components: int) -> Tensor:
    """Return the responsibilities (N, V, M) from which scikit-learn would start."""
    start = torch.zeros(*features.shape[:2], components, dtype=torch.float64)
    for c in range(int(labels.max()) + 1):
        mine = (labels == c).nonzero()[:, 0]
        for view in range(features.shape[1]):
            means = KMeans(components, n_init=1, random_state=0).fit(features[mine, view].numpy())
            start[mine, view, torch.from_numpy(means.labels_).long()] = 1
    return start


class _Given(BayesianGaussianMixture):  # type: ignore[misc]
    """scikit-learn's mixture, started from given responsibilities."""

    given: Floats

    def _initialize_parameters(self, X: Floats, random_state: Any, xp: Any = None) -> None:
        del random_state, xp
        self._initialize(X, self.given)


def fit_alone(values: Floats, components: int, start: Floats | None = None) -> BayesianGaussianMixture:
    """Fit one mixture with scikit-learn, from given responsibilities if any."""
    kind = BayesianGaussianMixture if start is None else _Given
    model = kind(n_components=components, covariance_type="diag", random_state=0)
    model.given = start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(values)


def _best(work: Callable[[], None], repeats: int) -> float:
    return min(timeit.repeat(work, number=1, repeat=repeats))


def _difference(ours: Mixtures, theirs: Sequence[BayesianGaussianMixture]) -> float:
    pairs = (
        (ours.means.flatten(0, 1), [one.means_ for one in theirs]),
        (ours.weights.flatten(0, 1), [one.weights_ for one in theirs]),
        (ours.covariances.flatten(0, 1), [one.covariances_ for one in theirs]),
    )
    return max(float(np.abs(mine.numpy() - np.array(other)).max()) for mine, other in pairs)


def _total(rows: Sequence[MixtureSpeed]) -> MixtureSpeed:
    """Add up counts and seconds, and take the largest difference."""
    columns = {key: [asdict(row)[key] for row in rows] for key in asdict(rows[0]) if key != "name"}
    total = {key: max(column) if key == "difference" else sum(column) for key, column in columns.items()}
    return MixtureSpeed(name="all of them", **total)
