"""The command that measures a store on a folder of images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairshot import teaching
from fairshot.cli.console import ConsoleReporter, print_message, say, this_command
from fairshot.cli.options import given
from fairshot.cli.stores import MOST_NAMED, AsJson, StoreFolder, print_json

if TYPE_CHECKING:
    from fairshot.teaching.mistakes import Mistakes


Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="One sub-folder per class; what lies in those of other names is unknown."
    ),
]
Reject = Annotated[
    float | None,
    typer.Option(
        help="Share of the images to leave out, those it is least sure of; a tenth if not given.",
        min=0,
        max=0.99,
    ),
]
ChooseThreshold = Annotated[
    bool,
    typer.Option(
        "--choose-threshold",
        help="Choose confidence and threshold on every second image, and measure on the others.",
    ),
]
Keep = Annotated[
    float | None,
    typer.Option(
        help="With --choose-threshold: share of known images to answer; nine tenths if not given.",
        min=0.01,
        max=1,
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a page of all figures with the wrong photos, page.html."),
]


def evaluate_command(
    store: StoreFolder,
    folder: Folder,
    reject: Reject = None,
    choose_threshold: ChooseThreshold = False,
    keep: Keep = None,
    page: Page = None,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy, balance, confidence and the finding of unknown things on a folder of images.

    Tells which classes are confused, and which photos are answered wrongly.

    Example: fairshot evaluate my-store drawings/test
    """
    with teaching.Store(store) as opened:
        labelled = teaching.read_folder(opened, folder, ConsoleReporter("evaluate"))
        if choose_threshold:
            labelled = teaching.choose_confidence(opened, labelled, str(folder), **given(keep=keep))
            print_message(
                "confidence and threshold are chosen on every second image; the figures are of the others"
            )
        measured = teaching.evaluate(opened, labelled, **given(rejection_rate=reject))
        mistakes = teaching.find_mistakes(opened, labelled)
        if page is not None:
            title = f"{store.resolve().name} on {folder.resolve().name}"
            teaching.write_evaluation_page(page, opened, measured, mistakes, title, this_command())
    if as_json:
        print_json({**asdict(measured), "balance": measured.balance, **asdict(mistakes)})
        return
    for label, value in measured.rows():
        say(f"{label:45} {value}")
    _say_mistakes(mistakes)
    if page is not None:
        say(f"\n{page}: all of this with the wrong photos")


def _say_mistakes(mistakes: Mistakes) -> None:
    """Name the most frequent confusions and some of the wrong photos."""
    if not mistakes.wrong:
        say("\nno image is answered wrongly")
        return
    surest_first = sorted(mistakes.wrong, key=lambda each: (each.answered is None, -each.confidence))
    for title, lines in (
        ("confusions, the most frequent first", [each.sentence() for each in mistakes.confusions]),
        ("wrong photos, the surest first", [f"{each.file}  {each.sentence}" for each in surest_first]),
    ):
        say(f"\n{title}")
        for line in lines[:MOST_NAMED]:
            say(f"  {line}")
        if len(lines) > MOST_NAMED:
            say(f"  and {len(lines) - MOST_NAMED:,} more; --page FILE shows them, --json lists them")
