"""Image files decoded in processes of their own, which are killed and replaced when they pass their limits.

Every image is measured first, by its header; then the cheapest goes first, and large ones never occupy all
processes: whoever sends a photo does not wait for those who send the largest images that are allowed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import math
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict

import numpy as np

from fairshot.benchmarks.pictures import Bytes
from fairshot.server.decode_worker import Job, Reply, WorkerSettings
from fairshot.server.errors import Refused
from fairshot.server.limits import Limits
from fairshot.teaching.photos import Preparation

STARTING_SECONDS = 60.0
WALL_SECONDS = 4  # per second of computing that is allowed: processors may be busy with other things
# Variables of the environment that decoders get, by how they begin; others may be secret.
KEPT_VARIABLES = ("PYTHON", "PATH", "HOME", "LD_", "DYLD_", "LANG", "LC_", "SYSTEMROOT")
ENVIRONMENT = {  # one thread, and memory that is freed goes back to the operating system
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**20),
}


class Turns:
    """Lets a few jobs run at a time: the cheapest first, and at least one place is kept from large ones."""

    def __init__(self, places: int, large: int) -> None:
        self._places, self._large = places, large
        self._running: list[int] = []  # costs
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._order = itertools.count()

    @asynccontextmanager
    async def turn(self, cost: int, wait: float) -> AsyncIterator[None]:
        """Wait for a place, and keep it for the length of a `with` block."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (cost, next(self._order), granted))
        self._grant()
        try:
            try:
                async with asyncio.timeout(wait):
                    await granted
            except TimeoutError:
                raise Refused(503, "too many images are being decoded; send it again in a second") from None
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._running.remove(cost)
                self._grant()

    def _grant(self) -> None:
        while self._waiting and len(self._running) < self._places:
            cost, _, granted = self._waiting[0]
            large = sum(running > self._large for running in self._running)
            if not granted.done() and cost > self._large and large >= max(self._places - 1, 1):
                return  # those behind it are as large
            heapq.heappop(self._waiting)
            if not granted.done():  # otherwise its client has given up
                self._running.append(cost)
                granted.set_result(None)


class Decoders:
    """Processes that decode images, started when they are first needed."""

    def __init__(self, preparation: Preparation, limits: Limits) -> None:
        self._settings = WorkerSettings(preparation, limits)
        self._turns = Turns(limits.decoders, limits.large_pixels)
        self._idle: list[Process] = []
        self._busy: set[Process] = set()

    async def decode(self, content: bytes, name: str, make_room: Callable[[], Awaitable[None]]) -> Bytes:
        """Decode and prepare the content of an image file, or refuse it.

        `make_room` is awaited when its turn has come: what waits for its turn needs no room yet.
        """
        limits = self._settings.limits
        async with self._turns.turn(0, limits.decoding_wait):
            measured, _ = await self._do(Job(name, len(content), decode=False), content)
        large = measured.cost > limits.large_pixels
        wait = limits.large_decoding_wait if large else limits.decoding_wait
        async with self._turns.turn(measured.cost, wait):
            await make_room()
            reply, pixels = await self._do(Job(name, len(content), decode=True), content)
        return np.frombuffer(pixels, np.uint8).reshape(reply.shape)

    async def close(self) -> None:
        """End all processes, also those that are decoding."""
        processes = [*self._idle, *self._busy]
        self._idle.clear()
        for process in processes:
            await _end(process)

    async def _do(self, job: Job, content: bytes) -> tuple[Reply, bytes]:
        process = self._idle.pop() if self._idle else await self._start()
        self._busy.add(process)
        try:
            reply, pixels = await self._exchange(process, job, content)
        except BaseException:  # also when the request is cancelled: the process is in the midst of it
            await _end(process)
            raise
        else:
            self._idle.append(process)
        finally:
            self._busy.discard(process)
        if reply.refused:
            raise Refused(422, reply.refused)
        return reply, pixels

    async def _start(self) -> Process:
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "fairshot.server.decode_worker", self._settings.dump()),
            env={**kept, **ENVIRONMENT},
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,  # signals from the terminal are for the server alone
        )
        try:
            async with asyncio.timeout(STARTING_SECONDS):
                await self._receive(process)
        except BaseException:
            await _end(process)
            raise
        return process

    async def _exchange(self, process: Process, job: Job, content: bytes) -> tuple[Reply, bytes]:
        assert process.stdin is not None
        limits = self._settings.limits
        seconds = limits.decoder_seconds if job.decode else limits.decoder_header_seconds
        try:
            async with asyncio.timeout(WALL_SECONDS * seconds):
                process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
                process.stdin.write(content)
                await process.stdin.drain()
                return await self._receive(process)
        except (TimeoutError, EOFError, ConnectionError):
            most = f"{seconds:g} s or {limits.large_decoder_bytes // 2**20} MB of memory"
            advice = "give a smaller version of it, or save it again with another program"
            raise Refused(422, f"{job.name}: decoding it takes more than {most}; {advice}") from None

    async def _receive(self, process: Process) -> tuple[Reply, bytes]:
        """Receive a reply, and the pixels of a picture if it announces any."""
        assert process.stdout is not None
        reply = Reply(**json.loads(await process.stdout.readuntil()))
        size = math.prod(reply.shape) if reply.shape else 0
        if size > self._settings.preparation.most_bytes:
            raise ValueError(f"a decoder returned a picture of shape {reply.shape}")
        return reply, await process.stdout.readexactly(size)


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
