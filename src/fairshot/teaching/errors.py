"""What a store refuses: each error keeps what was given; which option helps is the command line's to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairshot.errors import UserError, did_you_mean, first_of


class NotAStore(UserError):
    """A folder that holds no store."""

    folder: Path
    message = "{folder} is not a store; make one first"


class FolderExists(UserError):
    """A new folder was to be made where something is already."""

    folder: Path
    message = "{folder} exists already; give the name of a new folder"


class ForeignDatabase(UserError):
    """A database that is not that of a store."""

    path: Path
    reason: str
    message = "{path} is not the database of a store: {reason}"


class StoreDamaged(UserError):
    """A file of a store is not as it was written."""

    path: Path
    problem: str
    message = (
        "{path} is damaged ({problem}); bring the store back from an archive or another copy of it, or make "
        "it again"
    )


class LogDamaged(UserError):
    """The last changes of a store, which a killed process left in a file of their own, are damaged."""

    path: Path
    message = (
        "{path} is damaged, and with it the last changes of the store; bring the store back from an archive "
        "or another copy of it, or remove this file to go on without these changes"
    )


class ArchiveRefused(UserError):
    """An archive that is not, or not only, a store."""

    archive: Path
    reason: str
    message = "{archive} cannot be imported: {reason}"


class NoClasses(UserError):
    """A store without classes was asked something."""

    message = "the store knows no class yet; teach it one first"


class BadName(UserError):
    """A text that cannot be the name of a class."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"the name {self.name[:100]!r} {self.reason}"


class NothingToUndo(UserError):
    """No change of a store is left that could be undone."""

    message = "there is nothing to undo: the store is as it was made"


class PhotoHasClass(UserError):
    """A photo was to be taught that is stored as another class."""

    owner: str
    message = (
        "one of the photos is stored as {owner!r} already, and a photo has one class; leave it out, or move "
        "it, or merge or forget {owner!r} first"
    )


class UnknownClass(UserError):
    """A class that the store does not have."""

    name: str
    folder: Path
    names: Sequence[str]  # of those it has

    def __str__(self) -> str:
        return f"there is no class {self.name!r}{did_you_mean(self.name, self.names)}"


class UnknownPhotos(UserError):
    """Photos were to be taken out of a class that they are not taught to."""

    name: str
    photos: Sequence[int]

    def __str__(self) -> str:
        first = ", ".join(map(str, self.photos[:5]))
        which = f"the photos {first} are" if first else "no photo was named that is"
        return (
            f"{which} not among the photos taught to {self.name!r}; training images of base classes stay, "
            "and others may have been moved meanwhile"
        )


class ClassExists(UserError):
    """A class was to get the name of another one."""

    name: str
    new_name: str
    message = "there is a class {new_name!r} already; to put both together, merge them"


class UnreadablePhotos(UserError):
    """Files that cannot be read as photos, and why."""

    reasons: Mapping[str, str]

    def __str__(self) -> str:
        file, reason = next(iter(self.reasons.items()))
        number = len(self.reasons)
        return f"{number} images cannot be read: " * (number > 1) + f"{file}: {reason}"


class PhotosLeftOut(UserError):
    """No photo of a class can be taught, each for a reason: it cannot be read, or has another class."""

    reasons: Mapping[str, str]

    def __str__(self) -> str:
        file, reason = next(iter(self.reasons.items()))
        number = len(self.reasons)
        return f"all {number} photos are left out: " * (number > 1) + f"{file}: {reason}"


class NoClassFolders(UserError):
    """A folder was to be taught whose sub-folders hold no image."""

    folder: Path

    def __str__(self) -> str:
        what = "holds no sub-folders with images" if self.folder.is_dir() else "is not a folder"
        return f"{self.folder} {what}; expected {self.folder}/<class>/<image>.jpg (or .png, ...)"


class NestedClassFolders(UserError):
    """Folders of folders lie where the folders of classes are expected."""

    folder: Path
    nested: Sequence[Path]

    def __str__(self) -> str:
        named = first_of([str(path) for path in self.nested], 3)
        return (
            f"{named} hold{'s' * (len(self.nested) == 1)} folders, not photos; expected one folder per class "
            f"with photos in it, {self.folder}/<class>/<image>.jpg (or .png, ...); did you mean "
            f"{self.nested[0]}? If it is a single class, move its photos up into it"
        )


class ClassesRefused(UserError):
    """Sub-folders that could not be taught as classes, and why; the others were."""

    reasons: Mapping[str, str]

    def __str__(self) -> str:
        told = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        return f"not taught: {told}"


class ExportRefused(UserError):
    """An export of labelled images that no photo can be taken from."""

    export: Path
    reason: str
    message = "{export}: no photo can be imported: {reason}"


class TooFewHeldOut(UserError):
    """Too few images of known classes to choose confidence on."""

    found: int
    expected: int
    message = (
        "half of the images holds {found} of classes that the store knows; at least {expected} are needed to "
        "choose confidence and threshold, and as many to measure on"
    )


class UnsupportedRun(UserError):
    """A run whose method answers by a rule that a store does not have."""

    run: Path
    method: str
    reason: str
    message = "{run} is a run of {method}; {reason}"


class RunWithoutWeights(UserError):
    """A run that kept no weights."""

    path: Path
    message = "{path} is missing: the run kept no weights; run it again from the beginning"


class RunImagesMissing(UserError):
    """The images of a run are not where they are looked for."""

    problem: UserError

    def __str__(self) -> str:
        return str(self.problem)


class NoBaseFolder(UserError):
    """Base images were to be read from what is no folder."""

    folder: Path
    message = "{folder} is not a folder; images are expected as {folder}/<class>/*.jpg"
