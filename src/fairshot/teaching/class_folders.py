"""Teach every sub-folder of a folder: one class and one transaction each, and no photo twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairshot.benchmarks.images import image_files
from fairshot.errors import UserError
from fairshot.progress import SILENT, Advance, Reporter
from fairshot.teaching.errors import NestedClassFolders, NoClassFolders, PhotosLeftOut, UnreadablePhotos
from fairshot.teaching.event_log import counted_photos
from fairshot.teaching.names import checked_name
from fairshot.teaching.network import Photo
from fairshot.teaching.photos import fingerprint
from fairshot.teaching.store import WARN_SHARE, Store
from fairshot.teaching.teach_report import TeachReport

AT_ONCE = 32  # photos that are in memory together


@dataclass(frozen=True)
class FolderReport:
    """What teaching a folder of classes did."""

    reports: list[TeachReport] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # sub-folders that could not be taught, and why

    def sentence(self) -> str:
        """Tell it in one line."""
        taught = [report for report in self.reports if report.photos]
        photos, known = (sum(getattr(each, kind) for each in self.reports) for kind in ("photos", "known"))
        new = sum(report.created for report in taught)
        told = f"{len(taught)} class{'' if len(taught) == 1 else 'es'} ({new} new), {counted_photos(photos)}"
        if not known:
            return told
        return f"{told}; {known:,} more photo{' was' if known == 1 else 's were'} known already"


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """Return the image files in and below each sub-folder that holds some, by its name.

    A sub-folder with images below it but none of its own is more likely a folder of classes than a class.
    """
    if not folder.is_dir():
        raise NoClassFolders(folder)
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = {path: files for path in inside if (files := list(image_files(path)))}
    if not found:
        raise NoClassFolders(folder)
    nested = [path for path, files in found.items() if all(file.parent != path for file in files)]
    if nested:
        raise NestedClassFolders(folder, nested)
    return {path.name: files for path, files in found.items()}


def teach_folder(
    store: Store,
    folder: Path,
    reporter: Reporter = SILENT,
    dry_run: bool = False,
    warn_share: float = WARN_SHARE,
) -> FolderReport:
    """Teach the photos of each sub-folder as the class of its name.

    A class is kept as soon as its sub-folder is done. Photos that it has already are not embedded again, so
    that the same call goes on where an earlier one was stopped.
    """
    by_class = class_folders(folder)
    done = FolderReport()
    with reporter.track("teaching", sum(map(len, by_class.values()))) as advance:
        for name, files in by_class.items():
            try:
                report = _teach_class(store, checked_name(name), files, advance, dry_run, warn_share)
            except UserError as problem:
                done.refused[name] = str(problem)
                continue
            done.reports.append(report)
            for line in (
                *(f"skipped {file}: {reason}" for file, reason in report.skipped.items()),
                ("would be taught: " if dry_run else "") + report.sentence(),
                *(f"warning: {warning}" for warning in report.warnings),
            ):
                reporter.say(line)
    return done


def _teach_class(
    store: Store, name: str, files: Sequence[Path], advance: Advance, dry_run: bool, warn_share: float
) -> TeachReport:
    new: list[Photo] = []
    skipped: dict[str, str] = {}
    known = 0
    for start in range(0, len(files), AT_ONCE):
        some = files[start : start + AT_ONCE]
        photos, known_here, left_out = _new_photos(store, name, some)
        new += photos
        known += known_here
        skipped |= left_out
        advance(len(some), name)
    if not new and not known:
        raise PhotosLeftOut(skipped)
    if not new:
        return TeachReport(name, 0, known, False, warn_share, dry_run, skipped=skipped)
    report = store.teach(name, new, dry_run, warn_share)
    return replace(report, known=report.known + known, skipped=skipped)


def _new_photos(store: Store, name: str, files: Sequence[Path]) -> tuple[list[Photo], int, dict[str, str]]:
    """Embed the photos that the store does not have; count those of this class, and name what is left out."""
    try:
        read = store.read(list(files))
    except UnreadablePhotos as problem:
        return [], 0, dict(problem.reasons)
    chosen, known, left_out = [], 0, dict(read.unreadable)
    for index, (file, picture) in enumerate(zip(read.photos, read.pictures, strict=True)):
        owner = store.class_of_photo(fingerprint(picture))
        if owner is None:
            chosen.append(index)
        elif owner == name:
            known += 1
        else:
            left_out[str(file)] = f"it is stored as {owner!r} already, and a photo has one class"
    photos = store.network.photos(read.pictures.take(chosen)) if chosen else []
    return photos, known, left_out
