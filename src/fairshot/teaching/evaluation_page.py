"""The evaluation of a store as one HTML file, with the wrong photos in it; it opens without a network."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path

from fairshot.files import write_atomically
from fairshot.reporting.report_page import page_environment, style_sheet
from fairshot.teaching.errors import UnreadablePhotos
from fairshot.teaching.evaluating import Evaluation
from fairshot.teaching.mistakes import Confusion, Mistake, Mistakes
from fairshot.teaching.photos import data_url, thumbnail
from fairshot.teaching.store import Store

MOST_PHOTOS = 240  # wrong photos on the page; a small version of each has at most some thousand bytes
MOST_PER_CONFUSION = 12
MOST_CONFUSIONS = 60


@dataclass(frozen=True)
class ShownConfusion:
    """A confusion on the page, with some of its photos."""

    confusion: Confusion
    examples: list[str]  # of the class that was answered, as URLs
    photos: list[tuple[str, Mistake]]  # small versions as URLs, empty if the file is gone

    @property
    def left_out(self) -> int:
        """How many of its photos are not shown."""
        return self.confusion.count - len(self.photos)


def write_evaluation_page(
    path: Path, store: Store, evaluation: Evaluation, mistakes: Mistakes, title: str, command: str = ""
) -> None:
    """Write the page; of very many wrong photos it shows some of each confusion, and says so."""
    environment = page_environment("fairshot.teaching")
    shown = _shown(store, mistakes)
    page = environment.get_template("evaluation.html.j2").render(
        title=title,
        rows=evaluation.rows(),
        by_class=sorted(evaluation.by_class.items(), key=lambda each: (each[1][1] / each[1][0], each[0])),
        mistakes=mistakes,
        shown=shown,
        hidden=len(mistakes.wrong) - sum(len(each.photos) for each in shown),
        style=style_sheet(),
        command=command,
        version=metadata.version("fairshot"),
    )
    write_atomically(path, page.encode())


def _shown(store: Store, mistakes: Mistakes) -> list[ShownConfusion]:
    """Choose the confusions and the photos of each that the page has room for."""
    groups = groupby(mistakes.wrong, key=lambda each: (each.shown, each.answered))
    room = MOST_PHOTOS
    shown = []
    for confusion, (_, wrong) in zip(mistakes.confusions[:MOST_CONFUSIONS], groups, strict=False):
        chosen = list(wrong)[: min(MOST_PER_CONFUSION, room)]
        room -= len(chosen)
        examples = [] if confusion.answered is None else store.thumbnails(confusion.answered, 2)
        photos = [(_small(store, mistake), mistake) for mistake in chosen]
        shown.append(ShownConfusion(confusion, list(map(data_url, examples)), photos))
    return shown


def _small(store: Store, mistake: Mistake) -> str:
    """Return a small version of a photo as a URL."""
    try:
        return data_url(thumbnail(store.read([mistake.file]).pictures[0]))
    except UnreadablePhotos:  # it was there a moment ago
        return ""
