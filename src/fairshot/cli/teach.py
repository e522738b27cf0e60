"""Stores at the command line: teach one, ask it, change its classes, and take changes back."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairshot import teaching
from fairshot.cli.console import CONSOLE, ConsoleReporter, print_message, say
from fairshot.cli.options import given
from fairshot.cli.photo_files import photo_files, print_skipped
from fairshot.cli.stores import AsJson, StoreFolder, print_json
from fairshot.errors import UserError
from fairshot.teaching.errors import ClassesRefused

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a class.")]
Photos = Annotated[
    list[Path], typer.Argument(metavar="PHOTOS", help="Image files, or folders of image files.")
]


def teach_command(
    store: StoreFolder,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of a class, or a folder of sub-folders to teach.")
    ],
    photos: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PHOTOS", help="Image files, or folders of image files.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do.")] = False,
    warn_share: Annotated[
        float | None,
        typer.Option(
            help="Warn when it takes more than this share of another class's images; a fifth if not given.",
            min=0,
        ),
    ] = None,
) -> None:
    """Teach a class from a few photos, or more photos of a class it knows; tell what that did.

    With a folder alone, `fairshot teach STORE photos/`, each sub-folder is a class of its name. The same
    command goes on where it was stopped: photos that a class has already are passed over. Each class is a
    change of its own to `fairshot undo`.

    Example: fairshot teach my-store umbrella drawings/teach/umbrella
    """
    if not photos:
        _teach_folder(store, Path(name), dry_run, warn_share)
        return
    with teaching.Store(store) as opened:
        report = opened.teach(name, photo_files(photos), dry_run, **given(warn_share=warn_share))
    print_skipped(report.skipped)
    say(("would be taught: " if dry_run else "") + report.sentence())
    for warning in report.warnings:
        print_message(f"warning: {warning}", "yellow")


def _teach_folder(store: Path, folder: Path, dry_run: bool, warn_share: float | None) -> None:
    """Teach all sub-folders of a folder."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder; give one that holds a folder of photos per class, or the name of a "
            "class and its photos"
        )
    with teaching.Store(store) as opened:
        done = teaching.teach_folder(
            opened, folder, ConsoleReporter(), dry_run, **given(warn_share=warn_share)
        )
    say(("would be taught: " if dry_run else "") + done.sentence())
    named, taught = shlex.quote(str(store)), [report.name for report in done.reports if report.photos]
    if len(taught) > 1 and not dry_run:
        undo = f"fairshot undo {named} takes back the last, {taught[-1]}"
        say(f"each class is a change of its own: {undo}; again, the one before")
    if done.refused:
        raise ClassesRefused(done.refused)
    if not dry_run:
        say(f"to ask it: fairshot predict {named} PHOTO, or fairshot serve {named} for a page in the browser")


def predict_command(
    store: StoreFolder,
    images: Photos,
    top: Annotated[int, typer.Option(help="How many classes to show.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """Say what images show.

    Example: fairshot predict my-store drawings/test/umbrella --top 3
    """
    with teaching.Store(store) as opened:
        read = opened.read(photo_files(images))
        predictions = opened.predict(read.pictures, top)
    print_skipped(read.unreadable)
    answers = list(zip(map(str, read.photos), predictions, strict=True))
    if as_json:
        print_json([{"image": file, **asdict(each), "sentence": each.sentence()} for file, each in answers])
        return
    longest, widest = max(len(file) for file, _ in answers), max(len(each.sentence()) for _, each in answers)
    for file, each in answers:
        similar = "  ".join(f"{candidate.name} {candidate.similarity:.3f}" for candidate in each.top)
        say(f"{file:{longest}}  {each.sentence():{widest}}  similar: {similar}")


def forget_command(store: StoreFolder, name: Name) -> None:
    """Take a class out; undo brings it back.

    Example: fairshot forget my-store umbrella
    """
    with teaching.Records(store) as opened:
        opened.forget(name)
    say(f"{name} is forgotten; to bring it back: fairshot undo {store}")


def rename_command(
    store: StoreFolder,
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="Its new name.")],
) -> None:
    """Give a class another name.

    Example: fairshot rename my-store umbrella parasol
    """
    with teaching.Records(store) as opened:
        opened.rename(name, new_name)
    say(f"{name} is called {new_name} now")


def merge_command(
    store: StoreFolder,
    name: Name,
    into: Annotated[str, typer.Argument(metavar="INTO", help="Another class.")],
) -> None:
    """Put all that is known of one class into another.

    Example: fairshot merge my-store parasol umbrella
    """
    with teaching.Records(store) as opened:
        opened.merge(name, into)
    say(f"{name} is part of {into} now")


def undo_command(store: StoreFolder) -> None:
    """Take back the last change that still stands; again for the one before.

    Example: fairshot undo my-store
    """
    with teaching.Records(store) as opened:
        undone = opened.undo()
    say(f"undone: {undone.sentence()}")


def history_command(store: StoreFolder, as_json: AsJson = False) -> None:
    """List what was done, the latest first.

    Example: fairshot history my-store
    """
    with teaching.Records(store) as opened:
        events = opened.history()
    if as_json:
        print_json([asdict(event) for event in events])
        return
    for event in events:
        undone = "  (undone)" if event.undone else ""
        say(f"{event.id:4}  {event.at[:19].replace('T', ' ')}  {event.sentence()}{undone}")


def classes_command(store: StoreFolder, as_json: AsJson = False) -> None:
    """List the classes: base ones in the order of training, then taught ones by name.

    Example: fairshot classes my-store
    """
    with teaching.Records(store) as opened:
        infos = opened.classes()
    if as_json:
        print_json([asdict(info) for info in infos])
        return
    table = Table("class", "kind", "images", box=None, pad_edge=False)
    for info in infos:
        images = info.photos + info.trained_on
        table.add_row(info.name, "base" if info.base else "taught", f"{images:,}")
    CONSOLE.print(table, highlight=False)


def adapt_command(store: StoreFolder, images: Photos) -> None:
    """Move classes a little towards unlabelled images that surely show them (Calibration).

    Example: fairshot adapt my-store photos
    """
    with teaching.Store(store) as opened:
        adaptation = opened.adapt(photo_files(images))
    print_skipped(adaptation.skipped)
    say(adaptation.sentence())
