"""Datasets as streams: a base session, then small sessions."""

from __future__ import annotations

from pathlib import Path

from fairshot.benchmarks import cifar100, cub200, doodles, mini_imagenet
from fairshot.benchmarks.dataset import Dataset, data_folder
from fairshot.benchmarks.stream import Stream, StreamSettings, build_stream
from fairshot.errors import UserError, did_you_mean
from fairshot.progress import SILENT, Reporter

DATASETS: dict[str, Dataset] = {
    module.DATASET.name: module.DATASET for module in (doodles, cifar100, mini_imagenet, cub200)
}


def names() -> tuple[str, ...]:
    """Return the names of the benchmarks."""
    return tuple(DATASETS)


def dataset(name: str, given_as: str = "benchmark.name") -> Dataset:
    """Return a benchmark by its name, which was given by this key of a recipe, or by this argument."""
    if name not in DATASETS:
        raise UserError(
            f"{given_as}: there is no benchmark {name!r}; there are: {', '.join(names())}"
            f"{did_you_mean(name, names())}"
        )
    return DATASETS[name]


def load_stream(
    name: str, settings: StreamSettings, root: Path | None = None, reporter: Reporter = SILENT
) -> Stream:
    """Load a benchmark, looking for its data under `root`, and cut it into sessions."""
    return build_stream(dataset(name).load(data_folder(root), reporter), settings)
