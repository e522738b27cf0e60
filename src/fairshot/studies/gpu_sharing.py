"""One GPU for several processes: through NVIDIA's MPS where it is there, so that their kernels run together.

Without it the GPU works for one process at a time, and what one leaves idle is lost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
TRIAL = "import torch; torch.ones(1, device='cuda').item()"  # that a process can use the GPU
SECONDS_TO_ANSWER = 120  # the first use of a GPU loads its libraries


@contextmanager
def shared_gpu() -> Iterator[bool]:
    """Let processes that are started inside share the GPU through MPS; say whether they do.

    A server that the environment names already is used. Where none can be started, or a process cannot use
    the GPU through it, everything is left as it was.
    """
    control = shutil.which(CONTROL)
    if control is None or any(name in os.environ for name in FOLDERS):
        yield control is not None
        return
    with tempfile.TemporaryDirectory(prefix="fairshot-mps-") as folder, tempfile.TemporaryFile() as quiet:
        os.environ.update(dict.fromkeys(FOLDERS, folder))
        works = False
        try:
            started = _succeeds([control, "-d"], quiet)
            works = started and _succeeds([sys.executable, "-c", TRIAL], quiet)
            if not works:
                _stop(control, quiet)
            yield works
        finally:
            if works:
                _stop(control, quiet)


def _stop(control: str, quiet: IO[bytes]) -> None:
    """End the server, and let processes use the GPU without it."""
    _succeeds([control], quiet, b"quit\n")
    for name in FOLDERS:
        del os.environ[name]


def _succeeds(command: list[str], quiet: IO[bytes], told: bytes = b"") -> bool:
    # Into a file: the server lives on, and would keep a pipe open.
    try:
        done = subprocess.run(  # noqa: S603 - a program of the driver, and this Python
            command, input=told, stdout=quiet, stderr=quiet, timeout=SECONDS_TO_ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
