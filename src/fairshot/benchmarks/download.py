"""Downloads that go on where they stopped and are checked by their md5."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from filelock import FileLock

from fairshot.errors import FileRefused, UserError
from fairshot.progress import SILENT, Reporter

BLOCK = 2**20
TIMEOUT = 60  # seconds without receiving a byte


class DownloadFailed(UserError):
    """A file could not be downloaded, or is not the one expected."""

    url: str
    reason: str
    message = "{url} could not be downloaded: {reason}"


def download(url: str, target: Path, md5: str, reporter: Reporter = SILENT) -> None:
    """Download a file unless it is there; go on with what an earlier attempt left in `.part`."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url} is no address on the web")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with FileLock(target.with_name(f".{target.name}.lock")):
        if target.exists():
            if _md5(target) == md5:
                return
            raise FileRefused(
                target, f"it is not the file of {url}: its md5 is not {md5}; move it away and try again"
            )
        continued = part.exists()
        _fetch(url, part, reporter)
        if _md5(part) != md5 and continued:  # the beginning may have come from another version of the file
            part.unlink()
            _fetch(url, part, reporter)
        if _md5(part) != md5:
            part.unlink()
            raise DownloadFailed(url, f"its md5 is not {md5}; nothing was kept")
        os.replace(part, target)


def _fetch(url: str, part: Path, reporter: Reporter) -> None:
    """Append the missing rest to a partly downloaded file."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={done}-"} if done else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - `download` has checked the scheme
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
            if answer.status != 206:  # the server sends the whole file, not the rest
                done = 0
            total = done + int(answer.headers.get("Content-Length") or 0)
            with (
                part.open("ab" if done else "wb") as file,
                reporter.track(f"downloading {part.stem}", total, done) as advance,
            ):
                while block := answer.read(BLOCK):
                    file.write(block)
                    advance(len(block))
        if (received := part.stat().st_size) < total:
            raise OSError(f"the connection ended after {received:,} of {total:,} bytes")
    except urllib.error.HTTPError as problem:
        if problem.code != 416:  # 416: nothing is missing
            raise DownloadFailed(url, str(problem)) from problem
    except (OSError, http.client.HTTPException) as problem:
        raise DownloadFailed(
            url, f"{problem}; what has arrived is kept, and another attempt goes on"
        ) from problem


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
