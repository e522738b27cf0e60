"""`fairshot ablate`: what each part of SSS adds (table 2), and how its features decide (3 and 11)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fairshot.cli.console import ConsoleReporter, this_command
from fairshot.cli.options import Base, Device, Fresh, Root, Seed, Set, Trust, common
from fairshot.cli.run import present
from fairshot.cli.trust import load_trusted

BENCHMARK = "cifar100"

TableName = Annotated[
    Literal["components", "features"],
    typer.Argument(
        metavar="TABLE",
        help="components: Intra, Inter, SR, Resistance and Calibration, added one by one (table 2): four "
        "trainings, six runs. features: both kinds of features, alone and combined, without Resistance "
        "(tables 3 and 11): one training, six runs.",
    ),
]
RecipeName = Annotated[
    str | None, typer.Argument(metavar="RECIPE", help=f"A recipe of SSS; if not given, that for {BENCHMARK}.")
]
Out = Annotated[Path | None, typer.Option(help="Folder of the runs; runs/ablation-TABLE if not given.")]


def ablate_command(
    table: TableName,
    recipe: RecipeName = None,
    set_: Set = [],
    trust: Trust = False,
    seed: Seed = None,
    device: Device = "auto",
    out: Out = None,
    fresh: Fresh = False,
    root: Root = None,
    base: Base = None,
) -> None:
    """Switch parts of SSS on one by one, or change how it decides.

    Writes the table of the paper with ours beside it into `ablation.md`; for the components FMO, novel-only
    accuracy, misroute rate and what base classes lost besides. With --base the rows that have SR share that
    run's training.

    Example: fairshot ablate components doodles/sss
    """
    from fairshot.recipes import default_recipe
    from fairshot.reporting import write_ablation
    from fairshot.studies import StudyOptions, ablate

    recipe, out = recipe or default_recipe(BENCHMARK), out or Path("runs") / f"ablation-{table}"
    load_trusted(recipe, set_, seed, trust)
    options = StudyOptions(device, fresh=fresh, **common(ConsoleReporter(), None, root))
    done = ablate(table, recipe, out, set_, seed, base, options)
    present({done.runs[row]: result for row, result in done.results.items()}, out)
    write_ablation(table, list(done.runs.values()), out, this_command())
