"""What is done to the files of a watched folder: moved into a folder per class, or tagged beside them."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from fairshot.files import PARTIAL, write_atomically
from fairshot.teaching.names import UNKNOWN, folder_name
from fairshot.watching.capture import Capture, Version
from fairshot.watching.journal import Journal
from fairshot.watching.receivers import Record, Refused, Unreachable

TOOLKIT = 'x:xmptk="fairshot"'
# An XMP sidecar: FILE.xmp beside FILE, which programs for photos read.
SIDECAR = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" {toolkit}>
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">
   <dc:subject><rdf:Bag><rdf:li>{keyword}</rdf:li></rdf:Bag></dc:subject>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


@dataclass
class FileActions:
    """Moves files to `move`/CLASS/ and, if `tag`, writes the class as a keyword beside each."""

    journal: Journal
    move: Path | None = None
    tag: bool = False
    name = "files"

    def message(self, record: Record, capture: Capture) -> str | None:
        """Return which file, in which version, is of which class; nothing of frames and unreadable files."""
        if capture.path is None or capture.version is None or "error" in record:
            return None
        answer = record["answer"] or UNKNOWN
        return json.dumps([str(capture.path), capture.image, *capture.version, answer])

    def deliver(self, message: str) -> None:
        """Tag and move a file; one that is gone or was changed since is left alone."""
        given, image, size, changed, answer = json.loads(message)
        path = Path(given)
        try:
            version = Version.of(path.stat())
        except FileNotFoundError:
            self.journal.forget_file(image)
            return
        except OSError as problem:
            raise Unreachable(str(problem)) from None
        if version != (size, changed):
            return
        try:
            foreign = self.tag and not write_sidecar(path, answer)
            if self.move is not None:
                moved = move_to(path, self.move / folder_name(answer))
                if sidecar_of(path).exists():
                    move_to(sidecar_of(path), moved.parent, sidecar_of(moved).name)
                self.journal.forget_file(image)
        except OSError as problem:
            raise Unreachable(f"{path}: {problem.strerror or problem}") from None
        if foreign:
            raise Refused(f"{sidecar_of(path)} was written by another program, and is left as it is")

    def close(self) -> None:
        """Do nothing: no file stays open."""


def sidecar_of(path: Path) -> Path:
    """Return the file beside a photo that holds its tags."""
    return path.with_name(f"{path.name}.xmp")


def write_sidecar(path: Path, keyword: str) -> bool:
    """Write a keyword beside a photo; False if another program wrote a file there, which is left alone."""
    sidecar = sidecar_of(path)
    if os.path.lexists(sidecar) and not _is_ours(sidecar):
        return False
    write_atomically(sidecar, SIDECAR.format(toolkit=TOOLKIT, keyword=escape(keyword)).encode())
    return True


def _is_ours(sidecar: Path) -> bool:
    """Whether it is a file of tags that a watch wrote; reading a pipe would wait for ever."""
    if not sidecar.is_file():
        return False
    with sidecar.open("rb") as file:
        return TOOLKIT.encode() in file.read(2000)


def move_to(path: Path, folder: Path, name: str = "") -> Path:
    """Move a file into a folder and return where it is; another of its name is never overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Path(name or path.name)
    number = 1
    while True:
        target = folder / (wanted.name if number == 1 else f"{wanted.stem} ({number}){wanted.suffix}")
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))  # the name is ours now
            break
        except FileExistsError:
            number += 1
    try:
        _replace(path, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _replace(path: Path, target: Path) -> None:
    """Move a file over an empty one, also from another file system."""
    try:
        os.replace(path, target)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        partial = target.with_name(f".{target.name}{PARTIAL}")
        try:
            shutil.copy2(path, partial)
            with partial.open("rb") as copied:
                os.fsync(copied.fileno())  # the only copy soon
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        path.unlink()
