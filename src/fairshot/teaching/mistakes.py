"""Which classes a store confuses on a folder of images, and which images it answers wrongly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fairshot.teaching.evaluating import LabelledFeatures
from fairshot.teaching.names import UNKNOWN
from fairshot.teaching.store import Store


@dataclass(frozen=True)
class Confusion:
    """Images of one class that were answered with another, or with "unknown"."""

    shown: str  # the name of the sub-folder
    known: bool  # whether the store knows that class
    answered: str | None  # None: unknown
    count: int
    of: int  # images of the class shown

    def sentence(self) -> str:
        """Tell it in a few words."""
        shown = self.shown if self.known else f"{self.shown} (not known)"
        return f"{shown} answered {self.answered or UNKNOWN}: {self.count} of {self.of}"


@dataclass(frozen=True)
class Mistake:
    """An image that was answered wrongly."""

    file: str
    shown: str
    answered: str | None  # None: unknown
    confidence: float
    sentence: str


@dataclass(frozen=True)
class Mistakes:
    """All wrong answers; an answer for an image of no known class is right if it is "unknown"."""

    images: int
    confusions: tuple[Confusion, ...]  # the most frequent first
    wrong: tuple[Mistake, ...]  # by confusion, and in each the surest first


def find_mistakes(store: Store, labelled: LabelledFeatures) -> Mistakes:
    """Compare the answers that people see, "unknown" among them, with the classes the images show."""
    answers = store.predict(labelled.features, top=1)
    known = set(store.snapshot().names)
    images = Counter(labelled.names)
    wrong = [
        Mistake(str(file), name, answer.answer, answer.confidence, answer.sentence())
        for file, name, answer in zip(labelled.files, labelled.names, answers, strict=True)
        if answer.answer != (name if name in known else None)
    ]
    counts = Counter((mistake.shown, mistake.answered) for mistake in wrong)

    def frequent_first(shown: str, answered: str | None) -> tuple[Any, ...]:
        return -counts[shown, answered], shown, answered or ""

    return Mistakes(
        len(answers),
        tuple(
            Confusion(shown, shown in known, answered, counts[shown, answered], images[shown])
            for shown, answered in sorted(counts, key=lambda pair: frequent_first(*pair))
        ),
        tuple(sorted(wrong, key=lambda each: (*frequent_first(each.shown, each.answered), -each.confidence))),
    )
