"""How well base classes and taught classes do on the images a store keeps."""

from __future__ import annotations

from dataclasses import dataclass

from fairshot.teaching.store import Store
from fairshot.teaching.teach_report import answers


@dataclass(frozen=True)
class Balance:
    """Images answered right, of base classes and of taught ones.

    Base images are among those the network was trained on; a taught photo is answered for as if it had not
    been taught. So base classes have the advantage here, and equal shares mean more than they seem.
    """

    base_images: int
    base_right: int
    taught_images: int
    taught_right: int


def balance(store: Store) -> Balance:
    """Answer for the images a store keeps."""
    snapshot, samples = store.snapshot(), store.base_samples()
    right = 0
    if samples.classes:
        found = answers(snapshot, samples.features).tolist()
        right = sum(answer == label for answer, label in zip(found, samples.classes, strict=True))
    taught = store.leave_one_out()
    return Balance(len(samples.classes), right, len(taught.known), int(taught.right.sum()))
