"""Bounded Calibration: unlabelled samples arrive in batches, and some may be hostile.

Eq. 9 and 10 move a prototype towards whatever was recognised as its class, again and again; anybody who can
show pictures to the system could move a class to another. Here the movement is bounded:

- a class keeps the R samples most similar to its labelled prototype, of all that ever came: order and batch
  size have no effect, and later samples must be more typical than earlier ones to count;
- recognition is by the labelled prototypes, never by moved ones: what one batch moved does not help the next;
- an exact or nearly exact copy of a kept sample does not count; one with a little noise, or saved anew as
  JPEG, may count as another sample, within the bounds below;
- alpha grows with the samples kept and reaches the paper's value at R of them: a few move little;
- no prototype moves farther from its labelled one than a share of the way to the nearest other class;
- every batch is in the journal, and the last ones can be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from fairshot.classifiers.calibration import NO_CLASS, recognise
from fairshot.classifiers.prototypes import class_sums
from fairshot.classifiers.similarity import similarity

AT_ONCE = 256  # samples that are compared with all before them
COPIES = 0.9999  # cosine above which two samples of a class are copies: nearly the same bits


@dataclass(frozen=True, eq=False)
class Bounds:
    """How much unlabelled samples may do."""

    threshold: float  # r of eq. 10
    at_most: int  # R of eq. 10: samples a class keeps
    drift: float  # farthest a prototype may move, as a share of the way to the nearest other class


@dataclass(frozen=True, eq=False)
class Entry:
    """What one batch was and did: the samples it added, and those they displaced."""

    arrived: Tensor  # (N,) ids
    added: Tensor  # (A,) ids
    added_to: Tensor  # (A,) the class of each
    displaced: Tensor  # (D,) ids
    displaced_features: Tensor  # (D, V, d): to bring them back


@dataclass(frozen=True, eq=False)
class Calibration:
    """Labelled prototypes, and the unlabelled samples that calibrate them."""

    labelled: Tensor  # (C, V, d)
    alpha: Tensor  # (C,) the most that the samples of a class may weigh
    kept: Tensor  # (K, V, d)
    ids: Tensor  # (K,)
    owner: Tensor  # (K,) the class that keeps each sample
    journal: tuple[Entry, ...] = ()

    @property
    def shown(self) -> int:
        """How many samples came so far; where ids count them, the id of the next."""
        return sum(len(entry.arrived) for entry in self.journal)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by name, to be kept."""
        names = [field.name for field in fields(self) if field.name != "journal"]
        found = {name: getattr(self, name) for name in names}
        for number, entry in enumerate(self.journal):
            found |= {f"journal.{number}.{f.name}": getattr(entry, f.name) for f in fields(entry)}
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Calibration:
        """Return what `tensors` was taken from."""
        own = dict(tensors)
        journal: list[Entry] = []
        while f"journal.{len(journal)}.added" in own:
            number = len(journal)
            journal.append(Entry(**{f.name: own.pop(f"journal.{number}.{f.name}") for f in fields(Entry)}))
        return cls(**own, journal=tuple(journal))


def begin(labelled: Tensor, alpha: Tensor) -> Calibration:
    """Start from labelled prototypes alone."""
    nothing = torch.empty(0, dtype=torch.int64, device=labelled.device)
    return Calibration(labelled.clone(), alpha, labelled[:0], nothing, nothing)


def absorb(state: Calibration, features: Tensor, ids: Tensor, bounds: Bounds) -> Calibration:
    """Take a batch of unlabelled samples (N, V, d), named by their ids (N,), as they arrive."""
    candidates, names = torch.cat([state.kept, features]), torch.cat([state.ids, ids.to(state.ids)])
    owner = _owners(candidates, state.labelled, bounds)
    stays, was_kept = owner != NO_CLASS, torch.arange(len(owner), device=owner.device) < len(state.kept)
    added, displaced = stays & ~was_kept, ~stays & was_kept
    entry = Entry(ids, names[added], owner[added], names[displaced], candidates[displaced])
    return replace(
        state, kept=candidates[stays], ids=names[stays], owner=owner[stays], journal=(*state.journal, entry)
    )


def prototypes(state: Calibration, bounds: Bounds) -> Tensor:
    """Eq. 9 within bounds: the labelled prototypes (C, V, d), moved towards the samples of their classes."""
    labelled = state.labelled
    sums, counts = class_sums(state.kept, state.owner, range(len(labelled)))
    # alpha * (counts / R) times the mean of the samples less the labelled prototype
    weight = state.alpha.to(sums) / bounds.at_most
    step = weight[:, None, None] * (sums - counts[:, None, None] * labelled)
    farthest = bounds.drift * _distance_to_nearest(labelled)
    length: Tensor = torch.linalg.vector_norm(step, dim=-1)
    shortened = (farthest / length.clamp(min=1e-12)).clamp(max=1)
    return (labelled + shortened[..., None] * step).to(labelled.dtype)


def rollback(state: Calibration, batches: int, bounds: Bounds) -> Calibration:
    """Undo the last batches: their samples leave, those they displaced return."""
    if not 0 <= batches <= len(state.journal):
        raise ValueError(f"{batches} batches to undo; the journal has {len(state.journal)}")
    for entry in reversed(state.journal[len(state.journal) - batches :]):
        stays = ~torch.isin(state.ids, entry.added)
        kept = torch.cat([state.kept[stays], entry.displaced_features])
        ids = torch.cat([state.ids[stays], entry.displaced])
        state = replace(state, kept=kept, ids=ids, journal=state.journal[:-1])
    return relabel(state, state.labelled, state.alpha, bounds)


def relabel(state: Calibration, labelled: Tensor, alpha: Tensor, bounds: Bounds) -> Calibration:
    """Replace the labelled prototypes, by more classes or more labelled samples; samples choose anew."""
    owner = _owners(state.kept, labelled, bounds)
    stays = owner != NO_CLASS
    return Calibration(
        labelled.clone(), alpha, state.kept[stays], state.ids[stays], owner[stays], state.journal
    )


def _distance_to_nearest(labelled: Tensor) -> Tensor:
    """Distance of each prototype to the nearest other one, both at its own length (C, V)."""
    cosine = similarity(labelled, labelled).fill_diagonal_(-1)
    gap = (2 - 2 * cosine.amax(1, keepdim=True)).clamp(min=0).sqrt()
    length: Tensor = torch.linalg.vector_norm(labelled, dim=-1)
    return gap * length


def _owners(candidates: Tensor, labelled: Tensor, bounds: Bounds) -> Tensor:
    """Eq. 10, copies aside: the class that keeps each candidate (K,), or NO_CLASS."""
    scores = similarity(candidates, labelled)
    scores[_copies(candidates, scores, bounds)] = -torch.inf
    return recognise(scores, bounds.threshold, bounds.at_most)


def _copies(candidates: Tensor, scores: Tensor, bounds: Bounds) -> Tensor:
    """Find the candidates that repeat one which the same class recognises better, or as well and earlier."""
    best, winner = scores.max(1)
    order = best.argsort(descending=True, stable=True)
    order = order[best[order] > bounds.threshold]  # no class keeps the others
    order = order[winner[order].argsort(stable=True)]
    repeated = torch.zeros(len(candidates), dtype=torch.bool, device=candidates.device)
    for own in torch.split(order, winner[order].bincount().tolist()):
        repeated[own] = _repeated(candidates[own], bounds)
    return repeated


def _repeated(candidates: Tensor, bounds: Bounds) -> Tensor:
    """Find which candidates of one class, the most similar first, repeat one before them (K,).

    After as many others as a class keeps, none is looked for.
    """
    repeated = torch.zeros(len(candidates), dtype=torch.bool, device=candidates.device)
    for start in range(0, len(candidates), AT_ONCE):
        end = start + AT_ONCE
        alike = similarity(candidates[start:end], candidates[:end]) > COPIES
        repeated[start:end] = alike.tril(start - 1).any(1)
        if (~repeated[:end]).sum() >= bounds.at_most:
            break
    return repeated
