"""`fairshot ablate`: what each part of SSS adds (table 2), and how its features decide (3 and 11)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairshot.cli.console import ConsoleReporter, this_command
from fairshot.cli.options import Base, Device, Fresh, Root, Seed, Set, study_options
from fairshot.cli.run import present
from fairshot.files import write_atomically

if TYPE_CHECKING:
    from fairshot.studies import Ablation
    from fairshot.studies.ablation import Table

app = typer.Typer(help="Switch parts of SSS on one by one, or change how it decides.", no_args_is_help=True)

BENCHMARK = "cifar100"
PAGE = "ablation.md"

RecipeName = Annotated[
    str | None, typer.Argument(metavar="RECIPE", help=f"A recipe of SSS; if not given, that for {BENCHMARK}.")
]


@app.command("components")
def components_command(
    recipe: RecipeName = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    seed: Seed = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/ablation-components"),
    fresh: Fresh = False,
    root: Root = None,
    base: Base = None,
) -> None:
    """Intra, Inter, SR, Resistance and Calibration, added one by one: four trainings, six runs.

    Writes table 2 of the paper with ours beside it, FMO, novel-only accuracy, misroute rate and what base
    classes lost into `ablation.md`. With --base the rows that have SR share that run's training.
    """
    from fairshot.reporting.ablations import components_page  # torch: seconds, and --help needs none

    done = _run_table("components", recipe, set_, seed, device, out, fresh, root, base)
    write_atomically(out / PAGE, components_page(done.runs, this_command()).encode())


@app.command("features")
def features_command(
    recipe: RecipeName = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    seed: Seed = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/ablation-features"),
    fresh: Fresh = False,
    root: Root = None,
    base: Base = None,
) -> None:
    """Both kinds of features, alone and combined, without Resistance: one training, six runs.

    Writes tables 3 and 11 of the paper with ours beside them into `ablation.md`. With --base none is trained.
    """
    from fairshot.reporting.ablations import features_page

    done = _run_table("features", recipe, set_, seed, device, out, fresh, root, base)
    write_atomically(out / PAGE, features_page(done.runs, this_command()).encode())


def _run_table(
    table: Table,
    recipe: str | None,
    overrides: list[str],
    seed: int | None,
    device: str,
    out: Path,
    fresh: bool,
    root: Path | None,
    base: Path | None,
) -> Ablation:
    """Run the rows of a table and show them."""
    from fairshot.recipes import default_recipe
    from fairshot.studies import ablate

    options = study_options(ConsoleReporter(), device, None, root, fresh)
    done = ablate(table, recipe or default_recipe(BENCHMARK), out, overrides, seed, base, options)
    present({done.runs[row]: result for row, result in done.results.items()}, out)
    return done
