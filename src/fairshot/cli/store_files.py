"""Commands that write a store to a file or read one, and photos to teach it with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairshot import teaching
from fairshot.cli.console import ConsoleReporter, print_message, say
from fairshot.cli.options import given
from fairshot.cli.photo_files import print_skipped
from fairshot.cli.stores import StoreFolder
from fairshot.errors import UserError


def export_command(
    store: StoreFolder,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="model.onnx, or store.zip for the whole store.")
    ],
) -> None:
    """Write the store as an ONNX model, checked against torch, or as one archive.

    Example: fairshot export my-store model.onnx
    """
    if target.suffix == ".onnx":
        with teaching.Store(store) as opened:
            checked = teaching.export_onnx(opened, target)
        say(
            f"{target}: {checked.classes} classes; on {checked.images} images onnxruntime and torch "
            f"differ by at most {checked.difference:.1e}"
        )
    elif target.suffix == ".zip":
        teaching.export_archive(store, target)
        say(f"{target}: the whole store; to open it elsewhere: fairshot import {target.name} STORE")
    else:
        raise UserError(f"{target}: give a name that ends in .onnx (a model) or .zip (the whole store)")


def import_command(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="What fairshot export wrote.")],
    store: StoreFolder,
) -> None:
    """Unpack a store from its archive.

    Example: fairshot import my-store.zip another-store
    """
    teaching.import_archive(archive, store)
    say(f"{store}: ready")


def import_photos_command(
    export: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="JSON of Label Studio, or annotations in COCO's format.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write to: OUT/<class>/*.")],
    images: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the images are; the folder of EXPORT if not given."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(min=0, max=2, help="Added around a box, as a share of its sides; a tenth if not given."),
    ] = None,
) -> None:
    """Turn labelled images into a folder per class: whole images as they are, boxes cut out with a margin.

    Example: fairshot import-photos result.json photos
    """
    report = teaching.import_photos(export, out, images, reporter=ConsoleReporter(), **given(margin=margin))
    print_skipped(report.skipped)
    for name, folder in report.renamed.items():
        print_message(f"the folder of {name} is called {folder}")
    there = sum(report.photos.values()) - report.written
    say(
        f"{report.written:,} photos of {len(report.photos)} classes in {out}"
        + (f"; {there:,} were there already" if there else "")
    )
    say(f"to teach them: fairshot teach STORE {out}")


def doodles_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write to.")],
    photos: Annotated[int, typer.Option(help="Drawings per class to teach with.", min=1, max=75)] = 5,
) -> None:
    """Write drawings of the embedded benchmark as image files, to try a store with.

    FOLDER/teach holds classes that doodle runs are not trained on, FOLDER/test other drawings of all classes.

    Example: fairshot doodles drawings
    """
    from fairshot.teaching.doodle_files import write_doodles

    count = write_doodles(folder, photos)
    say(f"{count} drawings in {folder}/teach and {folder}/test")
