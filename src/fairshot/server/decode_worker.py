"""A process that decodes image files for the server, and may be killed at any time.

Hostile files can make decoders take any time and memory, and worse. This process has limits on both, writes
no files, and answers in a form that the server can check: a line of JSON, then pixels. It reads, for each
job, a line of JSON and then the content of a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from PIL import Image

from fairshot.benchmarks.images import ImageHeader, decode_image, image_formats, read_header
from fairshot.benchmarks.pictures import Bytes
from fairshot.errors import BadImage, UserError
from fairshot.server.limits import Limits
from fairshot.teaching.photos import Preparation

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker makes of images, and how much it may take for that."""

    preparation: Preparation
    limits: Limits

    def dump(self) -> str:
        """Return the settings as text, for the command line of a worker."""
        return json.dumps([asdict(self.preparation), asdict(self.limits)])

    @classmethod
    def load(cls, text: str) -> WorkerSettings:
        """Read what `dump` returned."""
        preparation, limits = json.loads(text)
        return cls(Preparation(**preparation), Limits(**limits))


@dataclass(frozen=True)
class Job:
    """One image file: measure it, or decode and prepare it."""

    name: str
    size: int  # bytes of the content that follows
    decode: bool


@dataclass(frozen=True)
class Reply:
    """Why an image is refused, or its cost, or the shape of the picture whose pixels follow."""

    refused: str = ""
    cost: int = 0  # about how many pixels decoding takes, each scan of a JPEG counted
    shape: list[int] = field(default_factory=list)


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has now, where that can be limited."""
    if resource is not None and STATM.exists():
        in_use = int(STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + more, resource.RLIM_INFINITY))


def limit_time(seconds: float) -> None:
    """Let the operating system end this process after so many seconds of computing."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends a process that does not handle it


def run_job(job: Job, content: bytes, settings: WorkerSettings) -> tuple[Reply, Bytes | None]:
    """Measure or decode an image."""
    limits, preparation = settings.limits, settings.preparation
    limit_time(limits.decoder_header_seconds)
    limit_memory(limits.decoder_bytes)
    try:
        header = read_header(content, job.name, limits.pixels)
        check_shape(header, job.name, limits)
        cost = header.pixels * max(header.scans // 3, 1)
        if not job.decode:
            return Reply(cost=cost), None
        limit_time(limits.decoder_seconds)
        limit_memory(limits.large_decoder_bytes if cost > limits.large_pixels else limits.decoder_bytes)
        picture = preparation.picture(decode_image(content, job.name, preparation.channels, limits.pixels))
    except UserError as problem:
        return Reply(refused=str(problem)), None
    except MemoryError:
        return Reply(refused=f"{job.name}: it needs too much memory; give a smaller version of it"), None
    finally:
        limit_time(0)
    return Reply(shape=list(picture.shape)), picture


def check_shape(header: ImageHeader, name: str, limits: Limits) -> None:
    """Refuse very long images."""
    short, long = sorted((header.width, header.height))
    if long > min(limits.side, limits.aspect * short):
        bounds = f"{limits.side:,} pixels a side and {limits.aspect} times as long as wide"
        raise BadImage(name, f"{header.width} x {header.height} pixels; at most {bounds} are allowed")


def work(jobs: IO[bytes], replies: IO[bytes], settings: WorkerSettings) -> None:
    """Do jobs until there are no more."""
    while line := jobs.readline():
        job = Job(**json.loads(line))
        reply, picture = run_job(job, jobs.read(job.size), settings)
        _send(replies, reply, b"" if picture is None else picture.tobytes())


def _send(replies: IO[bytes], reply: Reply, pixels: bytes = b"") -> None:
    replies.write(json.dumps(asdict(reply)).encode() + b"\n" + pixels)
    replies.flush()


def main() -> None:
    """Serve the process that started this one, through standard input and output."""
    settings = WorkerSettings.load(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its workers
    image_formats()
    Image.init()
    with os.fdopen(os.dup(1), "wb") as replies:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # what decoders print about hostile files is of no use
            os.dup2(nowhere, stream)
        if resource is not None:
            for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):  # it writes no files
                resource.setrlimit(kind, (0, 0))
        _send(replies, Reply())  # ready
        work(sys.stdin.buffer, replies, settings)


if __name__ == "__main__":
    main()
