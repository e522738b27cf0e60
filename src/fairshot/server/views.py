"""What the page shows, as HTML. Every name is text that somebody typed, and is escaped."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape

from fairshot.teaching.balance import Balance
from fairshot.teaching.event_log import Event
from fairshot.teaching.names import UNKNOWN
from fairshot.teaching.queries import ClassInfo
from fairshot.teaching.store import Prediction
from fairshot.teaching.teach_report import TeachReport

Thumbnails = Callable[[str, int], list[bytes]]  # of a class, at most so many
SHOWN_BARS = 5
SHOWN_TAKEN = 8
SHOWN_CLASSES = 200


def answer_view(prediction: Prediction, thumbnails: Thumbnails) -> str:
    """Show an answer with bars: full is the most similar class, empty the least similar one."""
    kind = "fs-verdict fs-unknown" if prediction.answer is None else "fs-verdict"
    verdict = _block(kind, prediction.answer or UNKNOWN) + _block("fs-sure", prediction.remark())
    full, empty = prediction.top[0].similarity, prediction.top[-1].similarity
    bars = []
    for place, candidate in enumerate(prediction.top[:SHOWN_BARS]):
        length = (candidate.similarity - empty) / (full - empty) if full > empty else 1.0
        first = place == 0 and prediction.answer is not None
        bars.append(
            _row(
                _pictures(thumbnails(candidate.name, 1)),
                _span("fs-name", candidate.name),
                _bar(length, first),
                _span("fs-number", f"{candidate.similarity:.3f}"),
            )
        )
    note = _block("fs-note", "Similarity: bars run from the least similar class, empty, to the most similar.")
    return f'<div class="fs-card fs-answer">{verdict}{"".join(bars)}{note}</div>'


def lesson_view(
    lesson: TeachReport, thumbnails: Thumbnails, taken: Callable[[Sequence[int]], list[bytes]]
) -> str:
    """Show what a lesson did."""
    title = "What it would do" if lesson.dry_run else "Taught" if lesson.photos else "Nothing new"
    parts = [f'<div class="fs-title">{title}</div><div>{escape(lesson.sentence())}</div>']
    if lesson.closest:
        parts.append('<div class="fs-sub">Closest classes</div>')
        parts += [
            _row(
                _span("fs-name", name),
                _pictures(thumbnails(name, 3)),
                _span("fs-number", f"{similarity:.3f}"),
            )
            for name, similarity in lesson.closest
        ]
    if lesson.taken:
        parts.append('<div class="fs-sub">Stored images it takes, of those answered so before</div>')
        parts += [
            _row(
                _span("fs-name", f"{each.count} of {each.of} {each.name}"),
                _pictures(taken(each.images[:SHOWN_TAKEN])),
            )
            for each in lesson.taken
        ]
    parts += [f'<div class="fs-warning">{escape(warning)}</div>' for warning in lesson.warnings]
    return f'<div class="fs-card fs-lesson">{"".join(parts)}</div>'


def classes_view(infos: Sequence[ClassInfo], thumbnails: Thumbnails, wanted: str = "") -> str:
    """Show the classes whose names contain some text, taught ones first."""
    found = [info for info in infos if wanted.strip().casefold() in info.name.casefold()]
    found.sort(key=lambda info: info.base)
    cards = [
        f'<div class="fs-class"><div class="fs-name">{escape(info.name)}</div>'
        f'<div class="fs-note">{_kind(info)}</div>{_pictures(thumbnails(info.name, 5))}</div>'
        for info in found[:SHOWN_CLASSES]
    ]
    note = "" if found else "No such class." if infos else "No class yet."
    if len(found) > SHOWN_CLASSES:
        note = f"and {len(found) - SHOWN_CLASSES:,} more: search for them"
    return f'<div class="fs-classes">{"".join(cards)}</div><div class="fs-note">{note}</div>'


def balance_view(balance: Balance) -> str:
    """Show base against taught classes."""
    rows = [
        _row(
            _span("fs-name", name),
            _bar(share, True),
            _span("fs-number", f"{share:.0%}"),
            _span("fs-count", counts),
        )
        for name, share, counts in (
            ("base classes", balance.base_share, f"{balance.base_right} of {balance.base_images}"),
            ("taught classes", balance.taught_share, f"{balance.taught_right} of {balance.taught_images}"),
        )
        if share is not None
    ]
    note = (
        "Stored images answered right: samples of the training images, and taught photos, each left out once."
    )
    body = (
        f'{"".join(rows)}<div class="fs-note">{note}</div>'
        if rows
        else '<div class="fs-note">Nothing stored yet.</div>'
    )
    return f'<div class="fs-card"><div class="fs-title">Balance</div>{body}</div>'


def history_view(events: Sequence[Event]) -> str:
    """Show what was done, the latest first."""
    rows = [
        f'<tr class="{"fs-undone" if event.undone else ""}"><td>{event.id}</td>'
        f"<td>{escape(event.at[:19].replace('T', ' '))}</td><td>{escape(event.sentence())}</td></tr>"
        for event in events
    ]
    return f'<table class="fs-history">{"".join(rows)}</table>'


def notice_view(text: str, problem: bool = False) -> str:
    """Show one sentence."""
    return f'<div class="{"fs-warning" if problem else "fs-card"}">{escape(text)}</div>'


def _kind(info: ClassInfo) -> str:
    photos = f"{info.photos} {'photo' if info.photos == 1 else 'photos'}"
    if not info.base:
        return f"taught, {photos}"
    return f"base, trained on {info.trained_on:,} images" + (f", {photos} taught" if info.photos else "")


def _row(*cells: str) -> str:
    return f'<div class="fs-row">{"".join(cells)}</div>'


def _block(kind: str, text: str) -> str:
    return f'<div class="{kind}">{escape(text)}</div>'


def _span(kind: str, text: str) -> str:
    return f'<span class="{kind}" title="{escape(text)}">{escape(text)}</span>'


def _bar(length: float, best: bool) -> str:
    kind = "fs-bar fs-best" if best else "fs-bar"
    return f'<span class="fs-track"><span class="{kind}" style="width:{length:.1%}"></span></span>'


def _pictures(images: Sequence[bytes]) -> str:
    """Return small images as part of the page itself."""
    tags = []
    for image in images:
        kind = "png" if image.startswith(b"\x89PNG") else "jpeg"
        tags.append(f'<img alt="" src="data:image/{kind};base64,{base64.b64encode(image).decode()}">')
    return f'<span class="fs-pictures">{"".join(tags)}</span>'
