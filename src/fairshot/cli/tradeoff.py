"""`fairshot tradeoff`: overall against novel accuracy for each rule between the two kinds of features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairshot.cli.options import Data, Device, HeldOut, Novel, Root


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
    draws: Annotated[int, typer.Option(min=1, help="Draws of sessions, shots and test images.")] = 10,
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
    """
    # All this takes seconds to import, and --help needs none.
    from fairshot.cli.curves import draw_curves
    from fairshot.evaluation.run_folder import PSEUDO_NOVEL

    draw_curves(run, pseudo or run / PSEUDO_NOVEL, (novel, held_out, draws), device, data, root)
