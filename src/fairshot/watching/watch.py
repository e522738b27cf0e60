"""Watching: each new picture of a source is answered, printed, and told to all receivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from datetime import UTC, datetime
from threading import Event
from typing import Any

from fairshot.benchmarks.images import with_channels
from fairshot.benchmarks.pictures import Pictures
from fairshot.progress import SILENT, Reporter
from fairshot.teaching import Store
from fairshot.teaching.errors import NoClasses
from fairshot.watching.capture import Capture, Prepare, Source
from fairshot.watching.journal import Journal
from fairshot.watching.receivers import Delivery, Receiver, Record


def watch(
    store: Store,
    source: Source,
    journal: Journal,
    receivers: Sequence[Receiver],
    emit: Callable[[Record], None],
    stop: Event,
    reporter: Reporter = SILENT,
) -> None:
    """Answer for the pictures of a source until it ends or `stop` is set.

    Each record is given to `emit` first. Then the journal keeps that the picture is answered, and the
    messages to receivers; those that could not be delivered, the next watch with this journal delivers.
    """
    if not store.snapshot().rows:
        raise NoClasses
    with ExitStack() as ending:
        deliveries = [Delivery(journal, receiver, reporter) for receiver in receivers]
        for delivery in deliveries:
            ending.callback(lambda each: each.end(patient=not stop.is_set()), delivery)
        batches = ending.enter_context(closing(source.batches(stop)))
        for captures in batches:
            records = answer(store, source.name, captures)
            for record in records:
                emit(record)
            journal.record(
                captures, [_messages(receivers, *each) for each in zip(records, captures, strict=True)]
            )
            for delivery in deliveries:
                delivery.wake()


def preparation(store: Store) -> Prepare:
    """Return what turns a picture in RGB into what the embedder of a store takes."""
    wanted = store.network.preparation
    return lambda picture: wanted.picture(with_channels(picture, wanted.channels))


def answer(store: Store, source: str, captures: Sequence[Capture]) -> list[dict[str, Any]]:
    """Return a record for each picture: what it shows, or why it cannot be read."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    readable = [capture.picture for capture in captures if capture.picture is not None]
    predictions = iter(store.predict(Pictures.from_list(readable)) if readable else [])
    records = []
    for capture in captures:
        record = {"id": capture.id, "at": at, "source": source, "image": capture.image}
        if capture.picture is None:
            records.append(record | {"error": capture.problem})
            continue
        prediction = next(predictions)
        records.append(record | asdict(prediction) | {"sentence": prediction.sentence()})
    return records


def _messages(receivers: Sequence[Receiver], record: Record, capture: Capture) -> dict[str, str]:
    told = {receiver.name: receiver.message(record, capture) for receiver in receivers}
    return {name: message for name, message in told.items() if message is not None}
