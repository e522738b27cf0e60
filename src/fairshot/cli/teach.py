"""Stores at the command line: make one, teach it, ask it, and take back what was taught.

What needs torch is imported where it is used: that takes seconds, and --help needs none of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fairshot.cli.console import CONSOLE, MESSAGES, ConsoleReporter, print_message, this_command
from fairshot.cli.options import given
from fairshot.cli.photos import image_files, print_skipped
from fairshot.cli.presets import list_presets
from fairshot.errors import UserError, first_of
from fairshot.models.presets import DEFAULT_PRESET

if TYPE_CHECKING:
    from fairshot.teaching import Records, Store, StoreSpec
    from fairshot.teaching.mistakes import Mistakes

MOST_NAMED = 10  # classes that a line names

StoreFolder = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of the store.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a class.")]
Photos = Annotated[
    list[Path], typer.Argument(metavar="PHOTOS", help="Image files, or folders of image files.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NewStore = Annotated[Path, typer.Argument(metavar="STORE", help="The folder to make.")]
FromRun = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="A finished run of SSS, or of a method that answers by nearest class means.",
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A preset, or any model of timm; `--backbone list` lists the presets. If neither this nor "
        f"--from is given, {DEFAULT_PRESET}.",
        callback=list_presets,
        is_eager=True,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With --backbone: its weights, a file of safetensors or a .pth of torch."
    ),
]
BasePhotos = Annotated[
    Path | None,
    typer.Option(
        metavar="PHOTOS",
        help="Base classes PHOTOS/<class>/*.jpg. SR is trained on them, and kept if held-out photos say that "
        "it pays.",
    ),
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="With --base: epochs of SR, on cached features; 30 if not given.")
]
MaxMinutes = Annotated[
    float | None, typer.Option(min=0, help="With --base: minutes that training SR may take at most.")
]
RunData = Annotated[
    Path | None,
    typer.Option(
        help="With --from: where the run's benchmark, or its own pictures, lie; if not given, where it "
        "found them."
    ),
]
WithoutImages = Annotated[
    bool,
    typer.Option(
        "--without-images",
        help="With --from: do without the run's images. The store has no examples of its base classes, and "
        "learns what is unknown from the photos it is taught alone.",
    ),
]
Sessions = Annotated[
    bool | None,
    typer.Option(
        "--sessions/--base-only",
        help="With --from: teach it the classes of the run's sessions too, or leave them out. If not given, "
        "they are taught if the run was on own pictures.",
        show_default=False,
    ),
]


def new_command(
    store: NewStore,
    run: FromRun = None,
    backbone: Backbone = None,
    weights: Weights = None,
    base: BasePhotos = None,
    epochs: Epochs = None,
    max_minutes: MaxMinutes = None,
    data: RunData = None,
    without_images: WithoutImages = False,
    sessions: Sessions = None,
) -> None:
    """Make a store, on a trained run or on a backbone.

    Example: fairshot new my-store --from runs/demo/sss-seed0
    """
    if run is not None and backbone is not None:
        raise UserError("give either --from RUN or --backbone NAME")
    if weights is not None and run is None and backbone is None:
        raise UserError("--weights goes with --backbone, which says of which network they are")
    with_run = {"--data": data, "--without-images": without_images, "--sessions": sessions is not None}
    with_backbone = {"--weights": weights, "--base": base}
    wrong = next((option for option, given in (with_backbone if run else with_run).items() if given), None)
    if wrong:
        given_ = "--from was given" if run else "--from was not given"
        raise UserError(f"{wrong} goes with {'--backbone' if run else '--from'}, and {given_}")
    if without_images and (data or sessions):
        raise UserError(f"give either {'--data' if data else '--sessions'} or --without-images")
    from fairshot.teaching import Store, check_free, from_backbone, from_run

    check_free(store)
    reporter = ConsoleReporter("new store")
    if run is not None:
        spec = from_run(run, data, reporter, without_images, sessions)
    else:
        spec = from_backbone(
            backbone or DEFAULT_PRESET,
            weights,
            base,
            reporter=reporter,
            **given(epochs=epochs, max_minutes=max_minutes),
        )
    with Store.create(store, spec, reporter) as made:
        count = len(made.classes())
        _say(f"{store}: a store of {count} classes" if count else f"{store}: a store without classes yet")
        _say_method(spec)
        if spec.remark:
            _say(spec.remark)
        _say_sessions(spec, store, without_images)
        _say(f'confidence and "unknown" are fitted to: {made.snapshot().confidence.source}')
        if not count:
            _say(f"to teach it: fairshot teach {store} PHOTOS, a folder with a sub-folder for each class")


def _say_method(spec: StoreSpec) -> None:
    """Say how a store answers that was made from a run of another method than SSS."""
    from fairshot.recipes import DEFAULT_METHOD

    method = spec.origin.get("method", DEFAULT_METHOD)
    if method != DEFAULT_METHOD:
        _say(f"the run is of {method}: the store answers by nearest class means, not by SSS")


def _say_sessions(spec: StoreSpec, store: Path, without_images: bool) -> None:
    """Say which classes of the run were taught too, or are missing and how to add them."""
    if spec.taught:
        _say(f"taught from the shots of the run's sessions: {first_of(list(spec.taught), MOST_NAMED)}")
    if spec.left_out:
        again = "" if without_images else ", or make the store with --sessions"
        names = first_of(spec.left_out, MOST_NAMED)
        _say(f"left out, because the run learnt them in its sessions: {names}")
        _say(f"to add one: fairshot teach {store} NAME PHOTOS{again}")


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
    command goes on where it was stopped: photos that a class has already are passed over.

    Example: fairshot teach my-store umbrella drawings/teach/umbrella
    """
    if not photos:
        _teach_folder(store, Path(name), dry_run, warn_share)
        return
    with _open(store) as opened:
        report = opened.teach(name, image_files(photos), dry_run, **given(warn_share=warn_share))
    print_skipped(report.skipped)
    _say(("would be taught: " if dry_run else "") + report.sentence())
    for warning in report.warnings:
        MESSAGES.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _teach_folder(store: Path, folder: Path, dry_run: bool, warn_share: float | None) -> None:
    """Teach all sub-folders of a folder."""
    if not folder.is_dir():
        raise UserError(f"give the photos of the class {folder}, or a folder that holds a folder per class")
    from fairshot.teaching import teach_folder
    from fairshot.teaching.errors import ClassesRefused

    with _open(store) as opened:
        done = teach_folder(opened, folder, ConsoleReporter(), dry_run, **given(warn_share=warn_share))
    _say(("would be taught: " if dry_run else "") + done.sentence())
    if done.refused:
        raise ClassesRefused(done.refused)


def predict_command(
    store: StoreFolder,
    images: Photos,
    top: Annotated[int, typer.Option(help="How many classes to show.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """Say what images show.

    Example: fairshot predict my-store drawings/test/umbrella --top 3
    """
    with _open(store) as opened:
        read = opened.read(image_files(images))
        predictions = opened.predict(read.pictures, top)
    print_skipped(read.unreadable)
    answers = list(zip(map(str, read.photos), predictions, strict=True))
    if as_json:
        _print_json([{"image": file, **asdict(each), "sentence": each.sentence()} for file, each in answers])
        return
    longest, widest = max(len(file) for file, _ in answers), max(len(each.sentence()) for _, each in answers)
    for file, each in answers:
        similar = "  ".join(f"{candidate.name} {candidate.similarity:.3f}" for candidate in each.top)
        _say(f"{file:{longest}}  {each.sentence():{widest}}  similar: {similar}")


def forget_command(store: StoreFolder, name: Name) -> None:
    """Take a class out; undo brings it back.

    Example: fairshot forget my-store umbrella
    """
    with _records(store) as opened:
        opened.forget(name)
    _say(f"{name} is forgotten; to bring it back: fairshot undo {store}")


def rename_command(
    store: StoreFolder,
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="Its new name.")],
) -> None:
    """Give a class another name.

    Example: fairshot rename my-store umbrella parasol
    """
    with _records(store) as opened:
        opened.rename(name, new_name)
    _say(f"{name} is called {new_name} now")


def merge_command(
    store: StoreFolder,
    name: Name,
    into: Annotated[str, typer.Argument(metavar="INTO", help="Another class.")],
) -> None:
    """Put all that is known of one class into another.

    Example: fairshot merge my-store parasol umbrella
    """
    with _records(store) as opened:
        opened.merge(name, into)
    _say(f"{name} is part of {into} now")


def undo_command(store: StoreFolder) -> None:
    """Take back the last change that still stands; again for the one before.

    Example: fairshot undo my-store
    """
    with _records(store) as opened:
        undone = opened.undo()
    _say(f"undone: {undone.sentence()}")


def history_command(store: StoreFolder, as_json: AsJson = False) -> None:
    """List what was done, the latest first.

    Example: fairshot history my-store
    """
    with _records(store) as opened:
        events = opened.history()
    if as_json:
        _print_json([asdict(event) for event in events])
        return
    for event in events:
        undone = "  (undone)" if event.undone else ""
        _say(f"{event.id:4}  {event.at[:19].replace('T', ' ')}  {event.sentence()}{undone}")


def classes_command(store: StoreFolder, as_json: AsJson = False) -> None:
    """List the classes: base ones in the order of training, then taught ones by name.

    Example: fairshot classes my-store
    """
    with _records(store) as opened:
        infos = opened.classes()
    if as_json:
        _print_json([asdict(info) for info in infos])
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
    with _open(store) as opened:
        adaptation = opened.adapt(image_files(images))
    print_skipped(adaptation.skipped)
    _say(adaptation.sentence())


def evaluate_command(
    store: StoreFolder,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="One sub-folder per class; what lies in those of other names is unknown."
        ),
    ],
    reject: Annotated[
        float | None,
        typer.Option(
            help="Share of the images to leave out, those it is least sure of; a tenth if not given.",
            min=0,
            max=0.99,
        ),
    ] = None,
    choose_threshold: Annotated[
        bool,
        typer.Option(
            "--choose-threshold",
            help="Choose confidence and threshold on every second image, and measure on the others.",
        ),
    ] = False,
    keep: Annotated[
        float | None,
        typer.Option(
            help="With --choose-threshold: share of known images to answer; nine tenths if not given.",
            min=0.01,
            max=1,
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page of all figures with the wrong photos, page.html."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy, balance, confidence and the finding of unknown things on a folder of images.

    Tells which classes are confused, and which photos are answered wrongly.

    Example: fairshot evaluate my-store drawings/test
    """
    from fairshot.teaching import choose_confidence, evaluate, find_mistakes, read_folder

    with _open(store) as opened:
        labelled = read_folder(opened, folder, ConsoleReporter("evaluate"))
        if choose_threshold:
            labelled = choose_confidence(opened, labelled, str(folder), **given(keep=keep))
            print_message(
                "confidence and threshold are chosen on every second image; the figures are of the others"
            )
        measured = evaluate(opened, labelled, **given(rejection_rate=reject))
        mistakes = find_mistakes(opened, labelled)
        if page is not None:
            from fairshot.teaching import write_evaluation_page  # draws: seconds to import

            title = f"{store.resolve().name} on {folder.resolve().name}"
            write_evaluation_page(page, opened, measured, mistakes, title, this_command())
    if as_json:
        _print_json({**asdict(measured), "balance": measured.balance, **asdict(mistakes)})
        return
    for label, value in measured.rows():
        _say(f"{label:45} {value}")
    _say_mistakes(mistakes)
    if page is not None:
        _say(f"\n{page}: all of this with the wrong photos")


def _say_mistakes(mistakes: Mistakes) -> None:
    """Name the most frequent confusions and some of the wrong photos."""
    if not mistakes.wrong:
        _say("\nno image is answered wrongly")
        return
    surest_first = sorted(mistakes.wrong, key=lambda each: (each.answered is None, -each.confidence))
    for title, lines in (
        ("confusions, the most frequent first", [each.sentence() for each in mistakes.confusions]),
        ("wrong photos, the surest first", [f"{each.file}  {each.sentence}" for each in surest_first]),
    ):
        _say(f"\n{title}")
        for line in lines[:MOST_NAMED]:
            _say(f"  {line}")
        if len(lines) > MOST_NAMED:
            _say(f"  and {len(lines) - MOST_NAMED:,} more; --page FILE shows them, --json lists them")


def export_command(
    store: StoreFolder,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="model.onnx, or store.zip for the whole store.")
    ],
) -> None:
    """Write the store as an ONNX model, checked against torch, or as one archive.

    Example: fairshot export my-store model.onnx
    """
    from fairshot.teaching import export_archive, export_onnx

    if target.suffix == ".onnx":
        with _open(store) as opened:
            checked = export_onnx(opened, target)
        _say(
            f"{target}: {checked.classes} classes; on {checked.images} images onnxruntime and torch "
            f"differ by at most {checked.difference:.1e}"
        )
    elif target.suffix == ".zip":
        export_archive(store, target)
        _say(f"{target}: the whole store; to open it elsewhere: fairshot import {target.name} STORE")
    else:
        raise UserError(f"{target}: give a name that ends in .onnx (a model) or .zip (the whole store)")


def import_command(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="What fairshot export wrote.")],
    store: StoreFolder,
) -> None:
    """Unpack a store from its archive.

    Example: fairshot import my-store.zip another-store
    """
    from fairshot.teaching import import_archive

    import_archive(archive, store)
    _say(f"{store}: ready")


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
    from fairshot.teaching.photo_import import import_photos

    report = import_photos(export, out, images, reporter=ConsoleReporter(), **given(margin=margin))
    print_skipped(report.skipped)
    for name, folder in report.renamed.items():
        print_message(f"the folder of {name} is called {folder}")
    there = sum(report.photos.values()) - report.written
    _say(
        f"{report.written:,} photos of {len(report.photos)} classes in {out}"
        + (f"; {there:,} were there already" if there else "")
    )
    _say(f"to teach them: fairshot teach STORE {out}")


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
    _say(f"{count} drawings in {folder}/teach and {folder}/test")


def _open(folder: Path) -> Store:
    from fairshot.teaching import Store

    return Store(folder)


def _records(folder: Path) -> Records:
    """Open what is recorded in a store, which needs no network and no torch."""
    from fairshot.teaching import Records

    return Records(folder)


def _say(text: str) -> None:
    CONSOLE.print(text, highlight=False, markup=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))
