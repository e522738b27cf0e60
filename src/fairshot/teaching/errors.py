"""What a store refuses: each error keeps what was given; which option helps is the command line's to say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fairshot.errors import UserError, did_you_mean


class NotAStore(UserError):
    """A folder that holds no store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"{folder} is not a store; make one first")


class FolderExists(UserError):
    """A new folder was to be made where something is already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"{folder} exists already; give the name of a new folder")


class ForeignDatabase(UserError):
    """A database that is not that of a store."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path} is not the database of a store: {reason}")


class StoreDamaged(UserError):
    """A file of a store is not as it was written."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(
            f"{path} is damaged ({problem}); bring the store back from an archive or another copy of it, or "
            "make it again"
        )


class LogDamaged(UserError):
    """The last changes of a store, which a killed process left in a file of their own, are damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path} is damaged, and with it the last changes of the store; bring the store back from an "
            "archive or another copy of it, or remove this file to go on without these changes"
        )


class ArchiveRefused(UserError):
    """An archive that is not, or not only, a store."""

    def __init__(self, archive: Path, reason: str) -> None:
        self.archive, self.reason = archive, reason
        super().__init__(f"{archive} cannot be imported: {reason}")


class NoClasses(UserError):
    """A store without classes was asked something."""

    def __init__(self) -> None:
        super().__init__("the store knows no class yet; teach it one first")


class BadName(UserError):
    """A text that cannot be the name of a class."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"the name {name[:100]!r} {reason}")


class NothingToUndo(UserError):
    """No change of a store is left that could be undone."""

    def __init__(self) -> None:
        super().__init__("there is nothing to undo: the store is as it was made")


class PhotoHasClass(UserError):
    """A photo was to be taught that is stored as another class."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(
            f"one of the photos is stored as {owner!r} already, and a photo has one class; leave it out, or "
            f"move it, or merge or forget {owner!r} first"
        )


class UnknownClass(UserError):
    """A class that the store does not have."""

    def __init__(self, name: str, folder: Path, names: Iterable[str]) -> None:
        self.name, self.folder = name, folder
        super().__init__(f"there is no class {name!r}{did_you_mean(name, names)}")


class UnknownPhotos(UserError):
    """Photos were to be taken out of a class that they are not taught to."""

    def __init__(self, name: str, photos: Sequence[int]) -> None:
        self.name, self.photos = name, tuple(photos)
        which = (
            f"the photos {', '.join(map(str, photos[:5]))} are" if photos else "no photo was named that is"
        )
        super().__init__(
            f"{which} not among the photos taught to {name!r}; training images of base classes stay, and "
            "others may have been moved meanwhile"
        )


class ClassExists(UserError):
    """A class was to get the name of another one."""

    def __init__(self, name: str, new_name: str) -> None:
        self.name, self.new_name = name, new_name
        super().__init__(f"there is a class {new_name!r} already; to put both together, merge them")


class UnreadablePhotos(UserError):
    """Files that cannot be read as photos, and why."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        file, reason = next(iter(self.reasons.items()))
        number = len(self.reasons)
        super().__init__(f"{number} images cannot be read: " * (number > 1) + f"{file}: {reason}")


class NoClassFolders(UserError):
    """A folder was to be taught whose sub-folders hold no image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        what = "holds no sub-folders with images" if folder.is_dir() else "is not a folder"
        super().__init__(f"{folder} {what}; expected {folder}/<class>/<image>.jpg (or .png, ...)")


class ClassesRefused(UserError):
    """Sub-folders that could not be taught as classes, and why; the others were."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        told = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        super().__init__(f"not taught: {told}")


class ExportRefused(UserError):
    """An export of labelled images that no photo can be taken from."""

    def __init__(self, export: Path, reason: str) -> None:
        self.export, self.reason = export, reason
        super().__init__(f"{export}: no photo can be imported: {reason}")


class TooFewHeldOut(UserError):
    """Too few images of known classes to choose confidence on."""

    def __init__(self, found: int, expected: int) -> None:
        self.found, self.expected = found, expected
        super().__init__(
            f"half of the images holds {found} of classes that the store knows; at least {expected} are "
            "needed to choose confidence and threshold, and as many to measure on"
        )


class UnsupportedRun(UserError):
    """A run whose method answers by a rule that a store does not have."""

    def __init__(self, run: Path, method: str, reason: str) -> None:
        self.run, self.method = run, method
        super().__init__(f"{run} is a run of {method}; {reason}")


class RunWithoutWeights(UserError):
    """A run that kept no weights."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is missing: the run kept no weights; run it again from the beginning")


class RunImagesMissing(UserError):
    """The images of a run are not where they are looked for."""

    def __init__(self, problem: UserError) -> None:
        self.problem = problem
        super().__init__(f"{problem}")


class NoBaseFolder(UserError):
    """Base images were to be read from what is no folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"{folder} is not a folder; images are expected as {folder}/<class>/*.jpg")
