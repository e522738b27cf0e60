"""`fairshot poison`: what hostile unlabelled images do to Calibration."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairshot.cli.console import CONSOLE, ConsoleReporter, this_command
from fairshot.cli.options import Data, Device, Root
from fairshot.cli.tables import print_table
from fairshot.errors import UserError
from fairshot.files import write_atomically

if TYPE_CHECKING:
    from fairshot.studies.poisoning import Poisoning

TITLES = ["attack", "images", "bounded", "as in eq. 9"]
LOST = (
    "Points lost to an attack, at worst over its target and over whether it comes before the natural stream, "
    "after it, or alone"
)


def poison_command(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a finished run of SSS whose network is used."),
    ],
    device: Device = "auto",
    data: Data = None,
    root: Root = None,
) -> None:
    """Attack Calibration with images of wrong classes, noise and copies; tell what they cost at worst.

    Writes `poisoning.json` and `poisoning.md` into the run.
    """
    # All this takes seconds to import, and --help needs none.
    from fairshot.evaluation.base_session import restore_method
    from fairshot.evaluation.experiment import RunOptions, load_pictures
    from fairshot.evaluation.run_folder import LOG, POISONING, POISONING_PAGE, recipe_of
    from fairshot.methods.sss import SSS
    from fairshot.studies.poisoning import measure_poisoning
    from fairshot.training.hardware import choose_hardware

    recipe = recipe_of(run)
    reporter = ConsoleReporter("poison", run / LOG)
    fabric = choose_hardware(device)
    stream, _ = load_pictures(recipe, RunOptions(run, fabric, root=root, photos=data, reporter=reporter))
    method = restore_method(run, recipe, stream, fabric)
    if not isinstance(method, SSS) or method.classifier.gate is not None:
        raise UserError(
            f"{run} is no run of SSS with the paper's first look, which is what Calibration moves"
        )
    found = measure_poisoning(method, stream, seed=recipe.seed, reporter=reporter)
    content = {"command": this_command(), "benchmark": stream.benchmark, **asdict(found)}
    write_atomically(run / POISONING, (json.dumps(content, indent=1) + "\n").encode())
    write_atomically(run / POISONING_PAGE, _markdown(found).encode())
    CONSOLE.print(_accuracies(found), highlight=False)
    print_table(f"{LOST}:", TITLES, _rows(found))


def _markdown(found: Poisoning) -> str:
    lines = [f"`{this_command()}`", "", f"{_accuracies(found)} {LOST}:", ""]
    table = [TITLES, ["---"] * len(TITLES), *_rows(found)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table)]) + "\n"


def _accuracies(found: Poisoning) -> str:
    natural = ", ".join(f"{value:.2f} {name}" for name, value in found.natural.items())
    return (
        "Overall accuracy after the last session, on the second half of the test images of each class (the "
        f"first half is the natural stream of unlabelled images): {found.labelled:.2f} with labelled images "
        f"alone; with the natural stream {natural}."
    )


def _rows(found: Poisoning) -> list[list[str]]:
    costs = {(one.kind, one.images, one.bounded): one.cost for one in found.damages}
    return [
        [kind, str(images), *(f"{costs[kind, images, bounded]:.2f}" for bounded in (True, False))]
        for kind, images in dict.fromkeys((one.kind, one.images) for one in found.damages)
    ]
