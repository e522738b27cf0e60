"""What ends a command early: an error that is the user's to mend, or a training that was stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class UserError(ValueError):
    """Something given to fairshot cannot be used; the message is complete without a traceback.

    A subclass is a dataclass of what was given and expected, which stand in braces in its message. That names
    no option of a command: callers from Python have none. `fairshot.cli.advice` adds which option helps.
    """

    message: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        dataclass(eq=False)(cls)  # it is caught, raised and compared as itself

    def __str__(self) -> str:
        return self.message.format_map(vars(self)) or super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields, whatever the arguments were: an error of a run on a cluster is sent here."""
        return _make, (type(self), self.args), vars(self)


def _make(kind: type[UserError], arguments: tuple[Any, ...]) -> UserError:
    """Make an error without calling its constructor."""
    base: Any = kind.__base__  # whose __new__ fits an error with two bases too
    problem: UserError = base.__new__(kind)
    problem.args = arguments
    return problem


class BadInput(UserError):
    """An argument that cannot be used, or an item of it: images, labels, weights."""

    name: str  # such as y, or y[3]
    reason: str
    message = "{name}: {reason}"


class BadImage(BadInput):
    """An image that cannot be used; its name is that of its file, or its place among those given."""


class BadSetting(UserError):
    """A setting that does not fit the others, or what it is for."""

    key: str
    given: object
    reason: str  # why not, or what is expected
    message = "{key}: {given!r} was given; {reason}"


class BadSettings(UserError):
    """Settings that can never be: for each key what is wrong with it."""

    reasons: Mapping[str, str]

    def __str__(self) -> str:
        return "\n".join(f"{key}: {reason}" for key, reason in self.reasons.items())


class PathUnusable(UserError):
    """A file or folder is not, or does not hold, what is needed."""

    path: Path
    reason: str
    message = "{path} {reason}"


class UnknownRecipe(UserError):
    """A recipe was named that is neither a file nor part of the package."""

    source: str
    known: Sequence[str]

    def __str__(self) -> str:
        of_method = [name for name in self.known if name.partition("/")[2] == self.source]
        meant = f"; did you mean {' or '.join(of_method)}?" if of_method else ""
        return (
            f"recipe: {self.source!r} is neither a file nor one of the recipes that come with fairshot"
            f"{meant or did_you_mean(self.source, self.known)}"
        )


class BadOverride(UserError):
    """A change of one key of a recipe, `key=value`, that cannot be applied."""

    override: str
    problem: str
    message = "{override!r}: {problem}"


class MethodNotLoaded(UserError):
    """A recipe is of a method from a file of its own, whose code is not run unless that is asked for."""

    recipe: Path
    name: str
    message = "{recipe}: {name} is a method from a file of its own, and reading a run runs no code"


class CodeNotTrusted(UserError):
    """A recipe file names Python code, and whoever runs the recipe has not said that it may be run."""

    recipe: str
    code: Path
    message = (
        "{recipe} runs the code of {code}, which can do all that you can: read the file, and run it only if "
        "you trust it"
    )


class DamagedFile(UserError):
    """A file is no longer what was written."""

    path: Path
    problem: str
    message = "{path} is damaged: {problem}; bring it back from a copy, or make it anew: repeat what wrote it"


class FileRefused(UserError):
    """A file cannot be read, or is larger or deeper than anything that is read here."""

    path: Path
    reason: str
    message = "{path} is refused: {reason}"


class TrainingDiverged(UserError):
    """The loss or the weights became NaN or infinite; the last good checkpoint is kept."""

    step: int  # the first with such a loss, or after which the weights were so
    total: int
    learning_rate: float  # the highest of the phase
    phase: str = ""  # of the training; nothing if it has one alone

    def __str__(self) -> str:
        in_phase = f" of {self.phase}" if self.phase else ""
        return (
            f"the training became unstable: at step {self.step} of {self.total}{in_phase} its loss or its "
            "weights were no longer finite numbers. What was good is kept. A lower learning rate (it was "
            f"{self.learning_rate:g}) or a longer warm-up helps most often"
        )


class NotFinite(UserError):
    """Features or scores of a method are not numbers."""

    session: int
    what: str
    message = "session {session}: {what} are not finite numbers; the method has failed"


class TrainingStopped(Exception):
    """The training stopped early, by a signal or a time limit; its checkpoint lets it go on."""


class NoRun(UserError):
    """A folder is not that of a run, or the run has not come as far as it must have."""

    folder: Path
    missing: str  # the file that is not there
    message = "{folder} holds no {missing}: it is no run, or the run is not finished"


class NoRunsFound(UserError):
    """A path holds no run, neither itself nor one folder below; `collections` lie deeper and hold some."""

    path: Path
    collections: tuple[Path, ...] = ()

    def __str__(self) -> str:
        if not self.path.is_dir():
            return f"{self.path} is not a folder"
        if self.collections:
            below = " ".join(map(str, self.collections))
            return f"{self.path} holds no run itself; give the folders of runs in it: {below}"
        return f"{self.path} holds no run that can be read, itself or one folder below"


class FolderUnusable(PathUnusable):
    """The folder of a run cannot be made or written to now."""


class CannotWrite(UserError, OSError):
    """A file or folder could not be written; what was there before is unchanged."""

    def __init__(self, path: Path, reason: str, disk_full: bool = False) -> None:
        self.path, self.reason, self.disk_full = path, reason, disk_full
        super().__init__(f"{path} cannot be written ({reason}); nothing was changed")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as what it is made from: an OSError cannot be made without."""
        return type(self), (self.path, self.reason, self.disk_full)


class FolderOccupied(UserError):
    """A folder holds other work than what is to be done in it."""

    folder: Path
    content: str
    message = "{folder} holds {content}"


class CodeChanged(UserError):
    """The file of a method is no longer what began a run."""

    file: Path
    run: Path
    message = "{file} has changed since the run in {run} began, which keeps a copy"


class OtherTraining(UserError):
    """A base session comes from settings that differ in more than the decision."""

    run: Path
    differences: str
    message = (
        "the base session of {run} comes from another recipe: {differences}; only settings of the decision "
        "may differ"
    )


class OtherImages(UserError):
    """A base session was on other images than those that were found."""

    run: Path
    difference: str
    message = "the base session of {run} was on other images than those found here: {difference}"


class PicturesNotFound(UserError):
    """Own pictures are needed, and it is not known where they are."""

    reason: str
    message = "{reason}"


class PseudoNovelUnfit(UserError):
    """So many base classes cannot play novel ones."""

    novel: int
    way: int
    base_classes: int
    message = (
        "{novel} pseudo-novel classes in sessions of {way} cannot be taken from {base_classes} base classes; "
        "expected fewer than these, and a multiple of {way}: as many classes as a session brings"
    )


class HeldOutUnfit(UserError):
    """A class has too few training images to hold some of them out."""

    class_name: str
    images: int
    held_out: int
    needed: int  # to learn from
    message = (
        "class {class_name!r} has {images} training images, too few to hold out {held_out} and learn from "
        "{needed}"
    )


class ExtraMissing(UserError):
    """Something needs packages that are not installed, because they are needed for nothing else."""

    what: str
    extra: str  # of fairshot, which has the packages

    def __str__(self) -> str:
        from fairshot.extras import install_command  # requirements are parsed when something is missing

        needed = f"{self.what} needs the extra {self.extra!r}, which is not installed"
        return f"{needed}: {install_command(self.extra)}"


class NoGPU(UserError):
    """A GPU was asked for, and there is none."""

    message = "device: cuda was asked for, but torch finds no GPU here"


class UnevenEpisode(UserError):
    """The images of an episode cannot be divided evenly among the processes."""

    episode: str
    images: int
    processes: int
    message = (
        "{episode} has {images}, which {processes} processes cannot share evenly; give another method.way, "
        "method.shots or method.queries"
    )


class WeightsRefused(UserError):
    """Images are weighted, and a method, or its settings, can only weigh all alike."""

    method: str
    message = (
        "sample_weight: {method} weighs all images alike with these settings, because it does not only take "
        "the mean feature of each class; leave the weights out"
    )


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Return a question that names what was probably meant, to put behind a message; or nothing."""
    near = get_close_matches(given, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def first_of(names: Sequence[str], at_most: int) -> str:
    """List names for a message: the first of them, and how many more there are."""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")
