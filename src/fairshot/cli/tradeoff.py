"""`fairshot tradeoff`: overall against novel accuracy for each rule between the two kinds of features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fairshot.cli.console import CONSOLE, ConsoleReporter
from fairshot.cli.options import Data, Device, HeldOut, Novel, Root, given, study_options
from fairshot.cli.suggestions import command_on_base

if TYPE_CHECKING:
    from fairshot.studies import TradeOff


def tradeoff_command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A finished run of SSS, whose features are used.")
    ],
    pseudo: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the training on pseudo-novel classes; runs of several seeds may share one. "
            "RUN/pseudo-novel if not given."
        ),
    ] = None,
    novel: Novel = None,
    held_out: HeldOut = None,
    draws: Annotated[
        int | None,
        typer.Option(min=1, help="Draws of sessions, shots and test images; ten if not given."),
    ] = None,
    splits: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Splits into base and pseudo-novel classes, one training each; their mean decides. One if "
            "not given.",
        ),
    ] = None,
    device: Device = "auto",
    data: Data = None,
    root: Root = None,
) -> None:
    """Draw the curve of every rule on the run's sessions, and the point chosen without looking at them.

    All parameters of a rule are chosen on base classes that play novel ones, by the mean of average overall
    accuracy and average harmonic mean. Writes `tradeoff.json` and `tradeoff.md` into the run, and the choice
    with its log into the folder of the pseudo-novel training.

    The settings of the decision are what it tries, so there is no --set; all others are the run's. To try
    the rules beside another one, such as method.mirror, make that run first, which needs no training:
    fairshot run RUN/recipe.yaml --base RUN --set method.mirror=true --out RUN2

    Example: fairshot tradeoff runs/demo/sss-seed0
    """
    # All this takes seconds to import, and --help needs none.
    from fairshot.evaluation.run_folder import LOG, PSEUDO_NOVEL, TRADEOFF_PAGE
    from fairshot.studies import choose_gate

    folder = pseudo or run / PSEUDO_NOVEL
    options = study_options(ConsoleReporter("tradeoff", folder / LOG), device, data, root)
    asked = given(draws=draws, splits=splits)
    found = choose_gate(run, folder, novel, held_out, options=options, **asked)
    CONSOLE.print(_table(found))
    page = f"all {len(found.points)} points: {run / TRADEOFF_PAGE}"
    CONSOLE.print(page, highlight=False, soft_wrap=True)
    CONSOLE.print(f"best on pseudo-novel classes: {found.best.rule}; to run it:", highlight=False)
    command = command_on_base(run, found.best.method, f"{run}-gate", data, root)
    CONSOLE.print(f"  {command}", highlight=False, soft_wrap=True)


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
