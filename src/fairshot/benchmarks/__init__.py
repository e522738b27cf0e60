"""Datasets as streams: a base session, then small sessions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairshot.benchmarks import doodles
from fairshot.benchmarks.stream import Benchmark, Stream, StreamSettings, build_stream
from fairshot.errors import UserError
from fairshot.progress import SILENT, Reporter

_LOADERS: dict[str, Callable[[Path | None, Reporter], Benchmark]] = {
    "doodles": doodles.load,
}


def names() -> tuple[str, ...]:
    """Return the names of the benchmarks."""
    return tuple(_LOADERS)


def load_stream(
    name: str, settings: StreamSettings, root: Path | None = None, reporter: Reporter = SILENT
) -> Stream:
    """Load a benchmark, looking for its data under `root`, and cut it into sessions."""
    if name not in _LOADERS:
        raise UserError(f"benchmark.name: there is no benchmark {name!r}; there are: {', '.join(names())}")
    return build_stream(_LOADERS[name](root, reporter), settings)
