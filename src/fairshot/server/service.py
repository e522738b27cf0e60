"""Service: a store used by many clients at once, without ever blocking the event loop.

One thread computes, so that predictions and teachings take turns photo by photo; others decode images, where
hostile files can take long; and others read the database, which must wait for neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from fairshot.benchmarks.images import decode_image
from fairshot.benchmarks.pictures import Bytes, Pictures
from fairshot.server.batching import Batcher
from fairshot.server.errors import Refused
from fairshot.server.limits import Limits
from fairshot.server.metrics import Metrics
from fairshot.teaching.names import checked_name
from fairshot.teaching.network import Photo
from fairshot.teaching.store import Prediction, Store
from fairshot.teaching.teach_report import TeachReport

T = TypeVar("T")
MOST_CANDIDATES = 100


class Upload(NamedTuple):
    """An image file that a client sent, and its name in messages."""

    name: str
    content: bytes


class Service:
    """A store behind a server."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.metrics = Metrics(lambda: len(store.snapshot().rows))
        self._computing = ThreadPoolExecutor(1, "computing")
        self._decoding = ThreadPoolExecutor(2, "decoding")
        self._reading = ThreadPoolExecutor(2, "reading")
        self._batcher = Batcher(self._predict, limits.batch, limits.waiting)

    async def close(self) -> None:
        """Stop the threads; the store stays open."""
        await self._batcher.close()
        for threads in (self._computing, self._decoding, self._reading):
            threads.shutdown(cancel_futures=True)

    async def predict(self, files: Sequence[Upload], top: int) -> list[Prediction]:
        """Answer for image files."""
        pictures = await self.decode(files)
        predictions = await asyncio.gather(*map(self._batcher.submit, pictures))
        return [replace(each, top=each.top[:top]) for each in predictions]

    async def teach(self, name: str, files: Sequence[Upload], dry_run: bool = False) -> TeachReport:
        """Teach a class from image files."""
        name = checked_name(name)
        photos: list[Photo] = []
        for picture in await self.decode(files):  # one at a time: predictions come in between
            photos += await self.compute(partial(self.store.embed, Pictures.from_list([picture])))
        report = await self.compute(lambda: self.store.teach(name, photos, dry_run))
        self.metrics.teachings.inc(not dry_run and report.photos > 0)
        return report

    async def decode(self, files: Sequence[Upload]) -> list[Bytes]:
        """Decode image files as the embedder needs them, or refuse them."""
        if not files:
            raise Refused(422, "no image was given")
        if len(files) > self.limits.files:
            raise Refused(413, f"{len(files)} images in one request; at most {self.limits.files} are allowed")
        for name, content in files:
            if len(content) > self.limits.file_bytes:
                megabytes = self.limits.file_bytes // 2**20
                raise Refused(413, f"{name} has {len(content):,} bytes; at most {megabytes} MB are allowed")
        loop = asyncio.get_running_loop()
        return [
            await loop.run_in_executor(self._decoding, self._decode, content, name) for name, content in files
        ]

    async def compute(self, action: Callable[[], T]) -> T:
        """Run something on the computing thread."""
        return await asyncio.get_running_loop().run_in_executor(self._computing, action)

    async def read(self, action: Callable[[], T]) -> T:
        """Run something short that only reads the database."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, action)

    def _decode(self, content: bytes, name: str) -> Bytes:
        preparation, limits = self.store.network.preparation, self.limits
        image = decode_image(content, name, preparation.channels, limits.pixels)
        height, width = image.shape[:2]
        if max(height, width) > min(limits.side, limits.aspect * min(height, width)):
            bounds = f"{limits.side:,} pixels a side and {limits.aspect} times as long as wide"
            raise Refused(422, f"{name}: {width} x {height} pixels; at most {bounds} are allowed")
        return preparation.picture(image)

    async def _predict(self, pictures: list[Bytes]) -> list[Prediction]:
        self.metrics.batches.observe(len(pictures))
        together = Pictures.from_list(pictures)
        predictions = await self.compute(lambda: self.store.predict(together, MOST_CANDIDATES))
        unknown = sum(prediction.answer is None for prediction in predictions)
        self.metrics.answers.labels("unknown").inc(unknown)
        self.metrics.answers.labels("known").inc(len(predictions) - unknown)
        return predictions
