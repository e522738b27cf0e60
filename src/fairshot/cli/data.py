"""`fairshot data`: what the benchmarks need, where it is, and how it comes there."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from fairshot import benchmarks
from fairshot.benchmarks.cache import cache_folder
from fairshot.benchmarks.dataset import DATA_VARIABLE, data_folder
from fairshot.benchmarks.stream import StreamSettings, build_stream
from fairshot.cli.advice import how_to_get
from fairshot.cli.console import CONSOLE, ConsoleReporter, print_table, say
from fairshot.cli.options import Root

app = typer.Typer(
    name="data",
    help="Benchmarks: which there are, where their data is, and how to get it.",
    no_args_is_help=True,
)

Name = Annotated[
    str, typer.Argument(metavar="BENCHMARK", help="A benchmark, as `fairshot data list` names it.")
]


@app.command("list")
def list_command(root: Root = None) -> None:
    """Show each benchmark, where its data was found, or how to get it.

    Example: fairshot data list
    """
    folder = data_folder(root)
    table = Table("benchmark", "data")
    table.add_column("where it is, or how to get it", overflow="fold")  # a path that is cut short is none
    say(f"Data is looked for in {folder}")
    say(f"To look in another folder, name it with --root, or set {DATA_VARIABLE} to it")
    for dataset in benchmarks.DATASETS.values():
        found = dataset.find(folder)
        state = ("found", str(found)) if found else ("missing", how_to_get(dataset))
        table.add_row(f"{dataset.name}\n{dataset.title}", *state, end_section=True)
    CONSOLE.print(table, markup=False)
    say(f"Decoded pictures are kept in {cache_folder()}")


@app.command("get")
def get_command(name: Name, root: Root = None) -> None:
    """Download a benchmark where it has a public source, going on where an earlier download stopped.

    Example: fairshot data get cub200
    """
    dataset, folder = benchmarks.dataset_named(name), data_folder(root)
    if dataset.find(folder) is None:
        dataset.get(folder, ConsoleReporter())
    check_command(name, root)


@app.command("check")
def check_command(name: Name, root: Root = None) -> None:
    """Read a benchmark as a run would: each image is decoded once, each count compared with the protocol.

    Example: fairshot data check doodles
    """
    dataset, folder = benchmarks.dataset_named(name), data_folder(root)
    stream = build_stream(dataset.load(folder, ConsoleReporter()), StreamSettings())
    rows, seen = [], 0
    for number, session in enumerate(stream.sessions):
        each = np.bincount(session.train.labels)[list(session.classes)]
        shots = " to ".join(map(str, sorted({each.min(), each.max()})))
        seen += len(session.test)
        counts = (str(len(session.classes)), str(len(session.train)), shots, str(seen))
        rows.append((str(number or "base"), *counts))
    titles = ("session", "classes", "training images", "per class", "test images so far")
    print_table(dataset.title, titles, rows)
    say(f"{name}: complete, in {dataset.find(folder)}")
