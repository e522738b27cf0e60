"""`fairshot tradeoff`: overall against novel accuracy for each rule between the two kinds of features."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fairshot.cli.console import CONSOLE, ConsoleReporter, print_message, say
from fairshot.cli.options import Data, Device, HeldOut, Novel, Parallel, Root, common, given
from fairshot.cli.suggestions import command_on_base

if TYPE_CHECKING:
    from fairshot.studies import TradeOff


Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="A finished run of SSS, or of another method whose classes are prototypes: its features are "
        "used. Several runs, or folders of runs, one after the other.",
    ),
]
Pseudo = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the training on pseudo-novel classes; runs of several seeds may share one. "
        "RUN/pseudo-novel if not given. With several runs it holds a folder per method, which its seeds "
        "share; pseudo-novel beside the runs if not given."
    ),
]
Draws = Annotated[
    int | None, typer.Option(min=1, help="Draws of sessions, shots and test images; ten if not given.")
]
Splits = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Splits into base and pseudo-novel classes, one training each; their mean decides. One if not "
        "given.",
    ),
]
Mirror = Annotated[bool, typer.Option("--mirror", help="Average features with those of mirror images.")]


def tradeoff_command(
    runs: Runs,
    pseudo: Pseudo = None,
    novel: Novel = None,
    held_out: HeldOut = None,
    draws: Draws = None,
    splits: Splits = None,
    mirror: Mirror = False,
    device: Device = "auto",
    parallel: Parallel = 1,
    data: Data = None,
    root: Root = None,
) -> None:
    """Draw the curve of every rule on the run's sessions, and the point chosen without looking at them.

    All parameters of a rule are chosen on base classes that play novel ones, by the mean of average overall
    accuracy and average harmonic mean. Writes `tradeoff.json` and `tradeoff.md` into the run, and the choice
    with its log into the folder of the pseudo-novel training.

    The settings of the decision are what it tries, so there is no --set; all others are the run's. With
    --mirror features are averaged with those of mirror images, and `tradeoff-mirror.json` and
    `tradeoff-mirror.md` are written: the same trainings serve both.

    With several runs, all methods of a comparison get the gate that SSS has, each chosen on its own
    pseudo-novel classes: `fairshot report` shows what each then reaches beside its own decision. Methods
    that cannot have it, because their networks change or their classes are no prototypes, are named.

    Example: fairshot tradeoff runs/demo/sss-seed0
    """
    from fairshot.evaluation.run_folder import LOG
    from fairshot.studies import StudyOptions
    from fairshot.studies.gate_search import NoGate, choose_gate, gate_folders, train_on_pseudo_novel

    grounds = given(novel=novel, held_out=held_out, splits=splits)
    asked = grounds | given(draws=draws) | {"mirror": mirror}
    folders = gate_folders(runs, pseudo)
    one = list(folders) == runs[:1]
    if not one:
        together = StudyOptions(device, parallel=parallel, **common(ConsoleReporter("tradeoff"), data, root))
        train_on_pseudo_novel(folders, options=together, **grounds)
    for run, folder in folders.items():
        reporter = ConsoleReporter(f"tradeoff {run.name}", folder / LOG)
        options = StudyOptions(device, parallel=parallel, **common(reporter, data, root))
        try:
            found = choose_gate(run, folder, options=options, **asked)
        except NoGate as refused:
            if one:
                raise
            print_message(f"left out: {refused}")
            continue
        CONSOLE.print(_table(found))
        say(f"all {len(found.points)} points: {run / found.page_name}")
        _suggest(found, run, data, root)
    if not one:
        report = shlex.join(["fairshot", "report", *map(str, runs)])
        say(f"beside the methods' own decisions: {report}")


def _suggest(found: TradeOff, run: Path, data: Path | None, root: Path | None) -> None:
    """Name the best gate, and for SSS, whose setting it is, the command that runs it."""
    from fairshot.recipes import DEFAULT_METHOD

    best = f"best on pseudo-novel classes: {found.best.rule} {found.best.setting:g}"
    if found.method != DEFAULT_METHOD:
        say(f"{best}, on the features of {found.method}")
        return
    settings = found.best.method | ({"mirror": True} if found.mirror else {})
    say(f"{best}; to run it:\n  {command_on_base(run, settings, f'{run}-gate', data, root)}")


def _table(found: TradeOff) -> Table:
    """Show each rule as chosen, and Resistance as the run has it.

    Their order is that of pseudo-novel classes: one by test images would invite a choice on them.
    """
    table = Table(  # 80 columns hold it
        title="each rule on test images: averages over sessions, in %",
        caption="> chosen on pseudo-novel classes, the best there first; Both: mean of Overall and Harmonic",
        padding=(0, 0, 0, 1),
    )
    for title in ("", "strength", "Overall", "Base", "Inc", "Harmonic", "Both"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    shown = [point for point in found.points if point.tuned or point.of_run]
    for point in sorted(shown, key=lambda point: found.chosen[point.rule].both, reverse=True):
        name = ("> " if point.tuned else "  ") + point.rule + " of the run" * point.of_run
        table.add_row(name, f"{point.setting:g}", *point.values)
    return table
