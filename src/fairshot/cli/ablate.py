"""`fairshot ablate`: what each part of SSS adds (table 2), and ways to use its features (3 and 11)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from fairshot.cli.console import this_command
from fairshot.cli.run import present, run_with_bars
from fairshot.evaluation.experiment import Place
from fairshot.recipes import default_recipe, load_recipe
from fairshot.training.hardware import choose_hardware

app = typer.Typer(help="Switch parts of SSS on one by one, or change how it decides.", no_args_is_help=True)

RECIPE = default_recipe("cifar100")
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

RecipeName = Annotated[str, typer.Argument(help="A recipe of SSS.")]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Root = Annotated[Path | None, typer.Option(help="Folder in which benchmarks are looked for.")]


@app.command("components")
def components_command(
    recipe: RecipeName = RECIPE,
    set_: Set = [],  # noqa: B006 - typer copies it
    seed: Seed = 0,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/ablation-components"),
    root: Root = None,
) -> None:
    """Intra, Inter, SR, Resistance and Calibration, added one by one: four trainings, six runs."""
    rows: dict[str, dict[str, Any]] = {
        name: {part: part in switched_on for part in PARTS} for name, switched_on in COMPONENTS.items()
    }
    _run_rows(recipe, rows, {"resistance": "sr", "calibration": "sr"}, set_, seed, device, out, root)


@app.command("features")
def features_command(
    recipe: RecipeName = RECIPE,
    set_: Set = [],  # noqa: B006 - typer copies it
    seed: Seed = 0,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/ablation-features"),
    root: Root = None,
) -> None:
    """Both kinds of features, alone and combined, without Resistance: one training, six runs."""
    rows: dict[str, dict[str, Any]] = {
        way: {"way": way, "resistance": False, "calibration": False} for way in FEATURES
    }
    taken = dict.fromkeys(FEATURES[1:], FEATURES[0])
    _run_rows(recipe, rows, taken, set_, seed, device, out, root)


def _run_rows(
    recipe: str,
    rows: dict[str, dict[str, Any]],
    taken: dict[str, str],  # rows that take the base session of another row
    overrides: list[str],
    seed: int,
    device: str,
    out: Path,
    root: Path | None,
) -> None:
    """Run the rows of a table, each a run of its own that is not repeated when finished."""
    fabric = choose_hardware(device)
    results = []
    for name, changes in rows.items():
        settings = [f"method.{key}={yaml.safe_dump(value).split()[0]}" for key, value in changes.items()]
        chosen = load_recipe(recipe, [*overrides, *settings], seed)
        base = out / taken[name] if name in taken else None
        result = run_with_bars(chosen, Place(out / name, fabric, this_command(), root, base=base))
        assert result is not None  # there is one process
        results.append(result)
    present(results, out)
