"""Images of several requests computed together: while one batch is computed, the next one gathers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from fairshot.server.errors import Refused

Item = TypeVar("Item")
Result = TypeVar("Result")
_Entry = tuple[int, int, Item, asyncio.Future[Result]]  # sorted by rank, then first come, first served


class Batcher(Generic[Item, Result]):
    """Collects items of many clients and computes their results in batches.

    The first item of every client comes before the second of any: whoever has one does not wait for those who
    have many.
    """

    def __init__(
        self, compute: Callable[[list[Item]], Awaitable[list[Result]]], batch: int, waiting: int
    ) -> None:
        self._compute = compute
        self._batch = batch
        self._queue: asyncio.PriorityQueue[_Entry[Item, Result]] = asyncio.PriorityQueue(waiting)
        self._order = itertools.count()
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, item: Item, rank: int = 0) -> Result:
        """Wait for the result of an item, the client's own `rank`-th; refused at once when too many wait."""
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((rank, next(self._order), item, future))
        except asyncio.QueueFull:
            raise Refused(503, "too many images are waiting for an answer; ask again in a second") from None
        return await future

    async def close(self) -> None:
        """Stop computing."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker

    async def _work(self) -> None:
        while True:
            gathered = [await self._queue.get()]
            while len(gathered) < self._batch and not self._queue.empty():
                gathered.append(self._queue.get_nowait())
            wanted = [(item, future) for _, _, item, future in gathered if not future.done()]
            if not wanted:  # their clients disconnected
                continue
            try:
                results = await self._compute([item for item, _ in wanted])
            except Exception as error:
                for _, future in wanted:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), result in zip(wanted, results, strict=True):
                    if not future.done():
                        future.set_result(result)
