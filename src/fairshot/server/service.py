"""Service: a store used by many clients at once, without ever blocking the event loop.

One thread computes, so that predictions and teachings take turns photo by photo; other processes decode
images, where hostile files can take long; and other threads read the database, which must wait for neither.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.datastructures import UploadFile

from fairshot.benchmarks.pictures import Bytes, Pictures
from fairshot.models.embedder import Features
from fairshot.server.batching import Batcher
from fairshot.server.counters import Counters
from fairshot.server.decoding import Decoders
from fairshot.server.errors import Refused
from fairshot.server.limits import Limits
from fairshot.server.recent import AskedPicture, RecentPictures, Unsure, by_doubt
from fairshot.teaching.learning_curve import ClassCurve, worst_first
from fairshot.teaching.names import checked_name
from fairshot.teaching.network import Photo
from fairshot.teaching.photos import fingerprint
from fairshot.teaching.store import Prediction, Store
from fairshot.teaching.teach_report import TeachReport

T = TypeVar("T")
MOST_CANDIDATES = 100


class Upload(NamedTuple):
    """An image file that a client sent, and its name in messages."""

    name: str
    file: UploadFile  # read when its turn has come: many may be waiting


class Answered(NamedTuple):
    """The answer for a picture, and by what it can be answered again."""

    prediction: Prediction
    sha256: bytes  # fingerprint of the picture
    features: Features


class Service:
    """A store behind a server."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.counters = Counters(lambda: len(store.snapshot().rows))
        self._computing = ThreadPoolExecutor(1, "computing")
        self._reading = ThreadPoolExecutor(2, "reading")
        preparation = store.network.preparation
        self._decoders = Decoders(preparation, limits)
        self._pictures = asyncio.Semaphore(max(limits.decoded_bytes // preparation.most_bytes, 1))
        self._pictures_per_request = max(limits.request_decoded_bytes // preparation.most_bytes, 1)
        self._batcher = Batcher(self._predict, limits.batch, limits.waiting)
        self._recent = RecentPictures(limits.recent_pictures, limits.recent_bytes)
        self._curves: tuple[int, list[ClassCurve]] = (-1, [])  # by the version of the snapshot
        self._computing_curves = asyncio.Lock()

    async def close(self) -> None:
        """Stop processes and threads; the store stays open."""
        await self._batcher.close()
        await self._decoders.close()
        for threads in (self._computing, self._reading):
            threads.shutdown(cancel_futures=True)

    async def predict(
        self, files: Sequence[Upload], top: int, remember: bool
    ) -> list[tuple[Prediction, str | None]]:
        """Answer for image files; with the ids of the pictures, if they are to be kept for a while."""
        ranks = itertools.count()

        async def ask(picture: Bytes) -> tuple[Prediction, str | None]:
            prediction, sha256, features = await self._batcher.submit(picture, next(ranks))
            asked = AskedPicture(sha256, picture, features)
            if remember:
                self._recent.add(asked)
            kept = asked.id if asked.id in self._recent else None
            return replace(prediction, top=prediction.top[:top]), kept

        return await self._each_picture(files, ask, self._pictures_per_request)

    async def unsure(self, at_most: int, top: int) -> list[Unsure]:
        """Return the pictures asked lately, the most doubtful first, answered as the store is now."""
        recent = self._recent.all()
        return (await self.compute(lambda: by_doubt(self.store, recent, top)))[:at_most]

    def dismiss(self, ids: Sequence[str]) -> None:
        """Keep pictures asked lately no longer."""
        self._recent.remove(ids)

    async def teach_recent(self, name: str, ids: Sequence[str], dry_run: bool = False) -> TeachReport:
        """Teach a class from pictures asked lately."""
        name = checked_name(name)
        embedded = [await self._embed(each.picture) for each in self._recent.take(ids)]
        return await self._teach(name, embedded, dry_run)

    async def learning_curves(self) -> list[ClassCurve]:
        """Return the accuracy of taught classes by their photos, computed once per state of the store.

        In a large store this takes seconds, and answers for images are computed in between.
        """
        async with self._computing_curves:
            version = (await self.compute(self.store.snapshot)).version
            if self._curves[0] != version:
                parts, found = self.store.learning_curve_parts(), list[ClassCurve]()
                while (part := await self.compute(lambda: next(parts, None))) is not None:
                    found += part
                self._curves = version, worst_first(found)
            return self._curves[1]

    async def teach(self, name: str, files: Sequence[Upload], dry_run: bool = False) -> TeachReport:
        """Teach a class from image files."""
        name = checked_name(name)
        embedded = await self._each_picture(files, self._embed, 1)  # predictions come in between
        return await self._teach(name, embedded, dry_run)

    async def _teach(self, name: str, embedded: Sequence[list[Photo]], dry_run: bool) -> TeachReport:
        photos = [photo for each in embedded for photo in each]
        report = await self.compute(lambda: self.store.teach(name, photos, dry_run))
        self.counters.teachings.inc(not dry_run and report.photos > 0)
        return report

    async def _each_picture(
        self, files: Sequence[Upload], use: Callable[[Bytes], Coroutine[Any, Any, T]], at_once: int
    ) -> list[T]:
        """Decode image files one after the other; meanwhile, use those that are decoded, a few at once."""
        self._check_files(files)
        kept = asyncio.Semaphore(at_once)
        tasks: list[asyncio.Task[T]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for name, file in files:
                    with ExitStack() as while_kept:
                        await kept.acquire()
                        while_kept.callback(kept.release)
                        make_room = partial(self._make_room, while_kept)
                        picture = await self._decoders.decode(await file.read(), name, make_room)
                        tasks.append(group.create_task(use(picture)))
                        tasks[-1].add_done_callback(partial(_close, while_kept.pop_all()))
                    del picture  # otherwise it stays until the next one is decoded
        except ExceptionGroup as problems:  # the first one ended the others
            raise problems.exceptions[0] from None
        return [task.result() for task in tasks]

    def _check_files(self, files: Sequence[Upload]) -> None:
        if len(files) > self.limits.files:
            raise Refused(413, f"{len(files)} images in one request; at most {self.limits.files} are allowed")
        for name, file in files:
            if (file.size or 0) > self.limits.file_bytes:
                megabytes = self.limits.file_bytes // 2**20
                raise Refused(413, f"{name} has {file.size:,} bytes; at most {megabytes} MB are allowed")

    async def _make_room(self, while_kept: ExitStack) -> None:
        """Wait until another decoded picture may be in memory, and count it until a stack is closed."""
        try:
            async with asyncio.timeout(self.limits.decoding_wait):
                await self._pictures.acquire()
        except TimeoutError:
            raise Refused(503, "too many images are waiting for an answer; ask again in a second") from None
        while_kept.callback(self._pictures.release)

    async def compute(self, action: Callable[[], T]) -> T:
        """Run something on the computing thread."""
        return await asyncio.get_running_loop().run_in_executor(self._computing, action)

    async def read(self, action: Callable[[], T]) -> T:
        """Run something short that only reads the database."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, action)

    async def _embed(self, picture: Bytes) -> list[Photo]:
        return await self.compute(partial(self.store.embed, Pictures.from_list([picture])))

    async def _predict(self, pictures: list[Bytes]) -> list[Answered]:
        self.counters.batches.observe(len(pictures))
        answered = await self.compute(partial(self._answer, pictures))
        unknown = sum(each.prediction.answer is None for each in answered)
        self.counters.answers.labels("unknown").inc(unknown)
        self.counters.answers.labels("known").inc(len(answered) - unknown)
        return answered

    def _answer(self, pictures: list[Bytes]) -> list[Answered]:
        features = self.store.network.embed(Pictures.from_list(pictures))
        predictions = self.store.predict(features, MOST_CANDIDATES)
        each = [{kind: rows[[i]] for kind, rows in features.items()} for i in range(len(pictures))]
        return [Answered(*found) for found in zip(predictions, map(fingerprint, pictures), each, strict=True)]


def _close(stack: ExitStack, _: object) -> None:
    stack.close()
