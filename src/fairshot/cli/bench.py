"""`fairshot bench`: speed, measured here and now, beside plain code in the same run."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairshot.cli.console import ConsoleReporter, print_table
from fairshot.cli.options import Device, Root, Set, Trust
from fairshot.cli.trust import load_trusted
from fairshot.errors import UserError

if TYPE_CHECKING:
    from fairshot.benchmarks.stream import LabelledPictures
    from fairshot.recipes import Recipe
    from fairshot.speed.photo_stores import AccuracyRow, UnknownRow

app = typer.Typer(
    name="bench",
    help="Measure speed, and how good stores of photos are, beside plain code that does the same.",
    no_args_is_help=True,
)


RecipeName = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE", help="The recipe whose base session is timed; if not given, SSS on CIFAR-100."
    ),
]
BenchmarkName = Annotated[
    str | None,
    typer.Option("--benchmark", help="Train on the pictures of this benchmark, read from its cache, by SSS."),
]
Classes = Annotated[int, typer.Option(min=2, help="Base classes of random pictures.")]
Images = Annotated[int, typer.Option(min=8, help="Random pictures, if no benchmark is named.")]


@app.command("train")
def train_command(
    recipe: RecipeName = None,
    benchmark: BenchmarkName = None,
    device: Device = "auto",
    classes: Classes = 60,
    images: Images = 30_000,
    set_: Set = [],
    trust: Trust = False,
    root: Root = None,
) -> None:
    """Images per second of base training, and its share of what the hardware's matrix products reach.

    Pictures are timed on the device and streamed to it: if both are as fast, reading limits nothing. A whole
    epoch is timed, at whose beginning the workers of plain training have prepared nothing.

    Example: fairshot bench train doodles/sss --device cpu --images 600
    """
    from fairshot.speed.train import measure_training
    from fairshot.training.hardware import choose_hardware, describe_device

    name, chosen, data = _training(recipe, benchmark, classes, images, set_, trust, root)
    fabric = choose_hardware(device)
    rows = measure_training(chosen, fabric, data, ConsoleReporter("bench"))
    plain = next(row.images_per_second for row in rows if row.plain)
    cells = (
        (
            row.name,
            f"{row.images_per_second:,.0f}",
            f"{row.matrix_share:.1%}",
            f"{row.seconds_per_epoch:.2f}",
            _known(row.compile_seconds, ".0f"),
            _known(row.warm_seconds, ".0f"),
            _known(row.peak_gigabytes, ".1f"),
            f"{row.images_per_second / plain:.1f}",
        )
        for row in rows
    )
    times = ("s per\nepoch", "cold\nstart s", "warm\nstart s")
    titles = ("", "images/s", "of matrix\nrate", *times, "peak\nGB", "times\nplain")
    print_table(f"base training of {name} on {describe_device(fabric)}", titles, cells)


def _known(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


@app.command("profile")
def profile_command(
    recipe: RecipeName = None,
    benchmark: BenchmarkName = None,
    device: Device = "auto",
    classes: Classes = 60,
    images: Images = 2_560,
    set_: Set = [],
    trust: Trust = False,
    root: Root = None,
) -> None:
    """Where the time of a training step goes: convolutions, batch norms, loss, views, optimiser.

    On a GPU it is the time of its kernels, on a CPU that of operations.

    Example: fairshot bench profile doodles/sss --device cpu --images 600
    """
    from fairshot.speed.profile import measure_parts
    from fairshot.training.hardware import choose_hardware, describe_device

    name, chosen, data = _training(recipe, benchmark, classes, images, set_, trust, root)
    fabric = choose_hardware(device)
    parts = measure_parts(chosen, fabric, data, ConsoleReporter("bench"))
    cells = [(row.part, f"{row.milliseconds:.2f}", f"{row.share:.1%}") for row in parts]
    cells.append(("all", f"{sum(row.milliseconds for row in parts):.2f}", ""))
    title = f"a training step of {name} on {describe_device(fabric)}"
    print_table(title, ("", "ms per step", "share"), cells)


def _training(
    recipe: str | None,
    benchmark: str | None,
    classes: int,
    images: int,
    set_: list[str],
    trust: bool,
    root: Path | None,
) -> tuple[str, Recipe, LabelledPictures]:
    """Return the name of a recipe, the recipe, and the pictures it is trained on: random ones, or its own."""
    from fairshot.evaluation.experiment import CommonOptions, load_pictures
    from fairshot.recipes import default_recipe
    from fairshot.speed.train import random_pictures

    name = recipe or default_recipe(benchmark or "cifar100")
    chosen = load_trusted(name, set_, None, trust)
    if benchmark is None:
        return name, chosen, random_pictures(chosen, classes, images)
    if benchmark != chosen.benchmark.name:
        raise UserError(f"--benchmark {benchmark}: {name} is a recipe of {chosen.benchmark.name}")
    stream, _ = load_pictures(chosen, CommonOptions(root=root, reporter=ConsoleReporter("bench")))
    return name, chosen, stream.base.train


@app.command("data")
def data_command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER", help="A folder of pictures; if not given, photographs are generated."
        ),
    ] = None,
    size: Annotated[int, typer.Option(min=8, help="Pixels of the short side in the cache.")] = 256,
    count: Annotated[int, typer.Option(min=8, help="Photographs to generate.")] = 600,
) -> None:
    """Pictures per second: building the cache, reading it, and decoding with PIL in a DataLoader.

    Example: fairshot bench data photos
    """
    from fairshot.benchmarks.cache import Resize
    from fairshot.benchmarks.images import image_files
    from fairshot.speed.data import generated_photographs, measure_data

    with tempfile.TemporaryDirectory(prefix="fairshot-") as made:
        files = list(image_files(folder)) if folder else generated_photographs(Path(made), count)
        speed = measure_data(files, Resize(size), ConsoleReporter("bench"))
    rows = {
        "build the cache": speed.build_cache,
        "open and verify the cache": speed.open_cache,
        "read from the cache": speed.read_cache,
        "PIL DataLoader": speed.plain,
    }
    cells = [(name, f"{each:,.0f}", f"{each / speed.plain:.1f}") for name, each in rows.items()]
    titles = ("", "pictures/s", "times plain")
    print_table(f"{len(files):,} pictures, short side {size}", titles, cells)


@app.command("teach")
def teach_command(
    backbone: Annotated[str, typer.Option(help="A backbone, at 224 pixels.")] = "resnet18",
    many: Annotated[int, typer.Option(min=1000, help="Classes of the largest store.")] = 100_000,
) -> None:
    """Time to open a store, to teach it a class from five photos, and to ask it.

    Example: fairshot bench teach --backbone resnet18
    """
    import torch

    from fairshot.speed.teach import measure_store

    cells = []
    for row in measure_store(backbone, many_classes=many, reporter=ConsoleReporter("bench")):
        times = [f"{1000 * value:,.0f}" for value in (row.seconds, row.worst, row.limit)]
        cells.append((row.what, *times, "" if row.seconds <= row.limit else "missed"))
    titles = ("", "median ms", "worst ms", "limit ms", "")
    print_table(f"a store on {backbone}, {torch.get_num_threads()} threads", titles, cells)


@app.command("bgmm")
def bgmm_command(
    repeats: Annotated[int, typer.Option(min=1, help="Times each is run; the best counts.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Seconds to fit the mixtures of CIFAR-100: all at once, and scikit-learn's class by class.

    Example: fairshot bench bgmm
    """
    import torch

    from fairshot.speed.mixtures import measure_mixtures

    cells = (
        (
            row.name,
            str(row.mixtures),
            f"{row.seconds:.2f}",
            f"{row.sklearn_seconds:.2f}",
            f"{row.times:.1f}",
            f"{row.same_start_seconds:.2f}",
            f"{row.sklearn_same_start_seconds:.2f}",
            f"{row.difference:.0e}",
        )
        for row in measure_mixtures(repeats=repeats, device=device, reporter=ConsoleReporter("bench"))
    )
    ours = ("\nfairshot\ns", "\nscikit-\nlearn s", "\ntimes\n")
    same = ("from the\nsame\nstart: s", "\nscikit-\nlearn s", "\ndiffer-\nence")
    titles = ("", "\nmixtures\n", *ours, *same)
    print_table(f"Bayesian Gaussian mixtures, {torch.get_num_threads()} threads", titles, cells)


@app.command("photos")
def photos_command(
    draws: Annotated[int, typer.Option(min=2, help="Random draws of classes and photos.")] = 20,
    root: Root = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON too.")] = None,
) -> None:
    """Accuracy of a store from five photos per class, and what it finds unknown, on photos of two benchmarks.

    Beside it, on the same features and draws: nearest means, logistic regression, shrinkage LDA.

    Example: fairshot bench photos --draws 5
    """
    from fairshot.files import write_atomically
    from fairshot.models.presets import DEFAULT_PRESET
    from fairshot.speed.photo_stores import measure_accuracy, measure_unknown, reported_photos

    reporter = ConsoleReporter("bench")
    photos = reported_photos(root, reporter)
    accuracies = measure_accuracy(photos, draws, reporter=reporter)
    unknown = measure_unknown(photos, draws, reporter=reporter)
    _print_accuracies(accuracies, draws)
    _print_unknown(unknown)
    if out is not None:
        figures = {
            "preset": DEFAULT_PRESET,
            "accuracy": [asdict(row) for row in accuracies],
            "unknown": [asdict(row) for row in unknown],
        }
        write_atomically(out, (json.dumps(figures, indent=1) + "\n").encode())


def _print_accuracies(accuracies: Sequence[AccuracyRow], draws: int) -> None:
    from fairshot.models.presets import DEFAULT_PRESET

    names = [name.replace(" ", "\n") for name in accuracies[0].mean]
    cells = []
    for row in accuracies:
        spreads = zip(row.mean.values(), row.deviation.values(), strict=True)
        shown = [f"{100 * mean:.1f} ± {100 * deviation:.1f}" for mean, deviation in spreads]
        cells.append((row.task, *shown, " / ".join(map(str, row.store_at_least.values()))))
    title = f"accuracy in % and its deviation over {draws} draws, {DEFAULT_PRESET}"
    print_table(title, ("five photos each", *names, "store at least\nas good, draws"), cells)


def _print_unknown(unknown: Sequence[UnknownRow]) -> None:
    percent = {
        "foreign_refused": "refused",
        "calibration_error": "calibration\nerror",
        "own_answered_unknown": "unknown:\nown",
        "foreign_answered_unknown": "foreign",
    }
    cells = []
    for row in unknown:
        shares = [f"{100 * getattr(row, name):.0f}" for name in percent]
        cells.append((row.taught, row.foreign, str(row.classes), f"{row.auroc:.3f}", *shares))
    title = "photos of classes that were not taught, in %: refused if 10 % of own ones are; answered unknown"
    print_table(title, ("taught", "foreign", "classes", "AUROC", *percent.values()), cells)
