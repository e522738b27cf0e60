"""Datasets as streams: a base session, then small sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairshot.benchmarks import cifar100, cub200, doodles, mini_imagenet
from fairshot.benchmarks.dataset import Dataset, data_folder
from fairshot.benchmarks.stream import Stream, StreamSettings, build_stream
from fairshot.errors import UserError, did_you_mean
from fairshot.progress import SILENT, Reporter

DATASETS: dict[str, Dataset] = {
    module.DATASET.name: module.DATASET for module in (doodles, cifar100, mini_imagenet, cub200)
}


class UnknownBenchmark(UserError):
    """There is no benchmark of this name."""

    name: str
    key: str  # of a recipe that gave it, if one did
    names: Sequence[str]  # of those that there are

    def __str__(self) -> str:
        message = f"there is no benchmark {self.name!r}; there are: {', '.join(self.names)}"
        return f"{self.key}: " * bool(self.key) + message + did_you_mean(self.name, self.names)


def names() -> tuple[str, ...]:
    """Return the names of the benchmarks."""
    return tuple(DATASETS)


def dataset_named(name: str, key: str = "") -> Dataset:
    """Return the dataset of a benchmark, whose name was given by this key of a recipe, if by one."""
    if name not in DATASETS:
        raise UnknownBenchmark(name, key, names())
    return DATASETS[name]


def load_stream(
    name: str, settings: StreamSettings, root: Path | None = None, reporter: Reporter = SILENT
) -> Stream:
    """Load a benchmark from a data folder and divide it into sessions."""
    return build_stream(dataset_named(name, "benchmark.name").load(data_folder(root), reporter), settings)
