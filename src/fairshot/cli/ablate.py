"""`fairshot ablate`: what each part of SSS adds (table 2), and ways to use its features (3 and 11)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from fairshot.cli.console import this_command
from fairshot.cli.options import Base, Device, Fresh, Root, Seed, Set
from fairshot.cli.run import present, run_with_bars
from fairshot.files import write_atomically

app = typer.Typer(help="Switch parts of SSS on one by one, or change how it decides.", no_args_is_help=True)

BENCHMARK = "cifar100"
PAGE = "ablation.md"
PARTS = ("intra", "inter", "sr", "resistance", "calibration")
COMPONENTS = {
    "baseline": (),
    "intra": PARTS[:1],
    "inter": PARTS[:2],
    "sr": PARTS[:3],
    "resistance": PARTS[:4],
    "calibration": PARTS[:5],
}
FEATURES = ("separately", "transferable_only", "specific_only", "pre", "post", "anomaly_detection")

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

    rows: dict[str, dict[str, Any]] = {
        name: {part: part in switched_on for part in PARTS} for name, switched_on in COMPONENTS.items()
    }
    sharing = ("sr", "resistance", "calibration")
    runs = _run_rows(recipe, rows, sharing, set_, seed, device, out, fresh, root, base)
    write_atomically(out / PAGE, components_page(runs, this_command()).encode())


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

    rows: dict[str, dict[str, Any]] = {
        decision: {"decision": decision, "resistance": False, "calibration": False} for decision in FEATURES
    }
    runs = _run_rows(recipe, rows, FEATURES, set_, seed, device, out, fresh, root, base)
    write_atomically(out / PAGE, features_page(runs, this_command()).encode())


def _run_rows(
    recipe: str | None,
    rows: dict[str, dict[str, Any]],
    sharing: tuple[str, ...],  # rows of one base session: the first one's, if none is given
    overrides: list[str],
    seed: int | None,
    device: str,
    out: Path,
    fresh: bool,
    root: Path | None,
    base: Path | None,
) -> dict[str, Path]:
    """Run the rows of a table, each a run of its own; a base session that does not fit is refused first."""
    from fairshot.evaluation.experiment import RunOptions, check_taken_over
    from fairshot.recipes import default_recipe, load_recipe
    from fairshot.training.hardware import choose_hardware

    recipe = recipe or default_recipe(BENCHMARK)
    fabric = choose_hardware(device)
    planned, results = [], []
    for name, changes in rows.items():
        settings = [f"method.{key}={yaml.safe_dump(value).split()[0]}" for key, value in changes.items()]
        chosen = load_recipe(recipe, [*overrides, *settings], seed)
        first = None if name == sharing[0] else out / sharing[0]
        taken = (base or first) if name in sharing else None
        place = RunOptions(out / name, fabric, this_command(), root, base=taken, fresh=fresh)
        if base is not None:
            check_taken_over(chosen, place)
        planned.append((chosen, place))
    for chosen, place in planned:
        result = run_with_bars(chosen, place)
        assert result is not None  # there is one process
        results.append(result)
    present(results, out)
    return {name: out / name for name in rows}
