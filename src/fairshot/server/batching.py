"""Requests answered together: while one batch is computed, the next one gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from fairshot.server.limits import Refused

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Batcher(Generic[Question, Answer]):
    """Collects questions of many clients and answers them in batches, first come, first served."""

    def __init__(
        self, answer: Callable[[list[Question]], Awaitable[list[Answer]]], batch: int, waiting: int
    ) -> None:
        self._answer = answer
        self._batch = batch
        self._queue: asyncio.Queue[tuple[Question, asyncio.Future[Answer]]] = asyncio.Queue(waiting)
        self._worker: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        """Wait for an answer; refused at once when too many wait already."""
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((question, future))
        except asyncio.QueueFull:
            raise Refused(503, "too many images are waiting for an answer; ask again in a second") from None
        return await future

    async def close(self) -> None:
        """Stop answering."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker

    async def _work(self) -> None:
        while True:
            gathered = [await self._queue.get()]
            while len(gathered) < self._batch and not self._queue.empty():
                gathered.append(self._queue.get_nowait())
            wanted = [(question, future) for question, future in gathered if not future.done()]
            if not wanted:  # their clients went away
                continue
            try:
                answers = await self._answer([question for question, _ in wanted])
            except Exception as problem:
                for _, future in wanted:
                    if not future.done():
                        future.set_exception(problem)
            else:
                for (_, future), answer in zip(wanted, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
