"""How the commands of pages are executed: what is replaced so that they take seconds, and what is left out.

Every command of a page is executed with the replacements of `REPLACED`, in the order of the page, or it is
one of `NOT_EXECUTED`. Data of the large benchmarks are replaced by `miniature` ones, under the same names.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from support.commands import TINY
from support.pages import CommandLine

SHORT = [word for word in TINY if word != "method.sr_width=32"]  # which NCM has not
SHORT.pop(SHORT.index("--device") - 1)
COMPARED = "tests/studies/test_compare.py"
BACKBONE = "tests/teaching/test_from_backbone.py"


@dataclass(frozen=True)
class Replaced:
    """A part of a command that is replaced before it is executed."""

    pattern: str  # of the command as it is typed
    by: str
    why: str  # and, behind a colon, the test in which the part itself is executed


REPLACED = (
    Replaced(
        r"--seeds 3|--seed 0 --seed 1 --seed 2", "--seed 0", "seeds differ in nothing that a page is about"
    ),
    Replaced(r"--parallel 4", "", f"time: {COMPARED}::test_runs_at_once_end_as_they_do_one_after_the_other"),
    Replaced(r"--ray --out /", "--out ", f"time: {COMPARED}::test_through_ray_a_run_ends_as_it_does_here"),
    Replaced(
        r"cifar100/sss --processes 4",
        "doodles/sss --processes 2",
        "further processes do not know of the miniature benchmark",
    ),
    Replaced(r"images=14376960", "images=100", "time"),
    Replaced(r"(compare) all", r"\1 ncm sss", "time: tests/studies/test_budget.py"),
    Replaced(
        r"ncm-lite0-frozen ncm-lite2-frozen sss_gate-lite0-frozen sss_gate-lite2-frozen",
        "ncm-lite0-frozen sss_gate-lite0-frozen",
        "time: tests/recipes/test_recipes.py reads the others, tests/models/test_weights.py their weights",
    ),
    Replaced(r"tune cifar100/all", "tune cifar100/teen", "time: tests/studies/test_tuning.py"),
    Replaced(r"training\.epochs=(54|60)", "training.epochs=1", "time"),
    Replaced(r"training\.low_resolution=24", "training.low_resolution=8", "smaller pictures"),
    Replaced(
        r"(tradeoff .*?)( --novel \d+ --held-out \d+)?$",
        r"\1 --novel 2 --held-out 5 --draws 2",
        "few classes, time",
    ),
    Replaced(r"--splits 3", "--splits 1", "time"),
    Replaced(r"(doodles \w+).*", r"\1 --photos 6", "time"),
    # What stands for something of the reader's.
    Replaced(r"\bRUN2\b", "runs/other", "a run of another seed"),
    Replaced(r"\bMIRRORED\b", "runs/mirrored", "a run that the page makes"),
    Replaced(r"\bRUN\b", "runs/demo/sss-seed0", "a run"),
    Replaced(r"--base PHOTOS", "--base few-photos", "a folder of three classes: time"),
    Replaced(r"\bPHOTOS\b", "drawings/teach", "a folder of photos"),
    Replaced(r"--data photos/", "--data drawings/teach", "a folder of photos of more than two classes"),
    Replaced(r"\bFILE\b", "resnet18.pth", "a file of weights"),
    Replaced(r"\bS\b|(?<=seed)S\b", "0", "a seed"),
    # What does not end by itself, or is not on this machine.
    Replaced(r"(watch .* inbox)", r"\1 --once", "it would wait: tests/watching/test_watch_command.py"),
    Replaced(r"(watch \S+) (0|rtsp:\S+)", r"\1 video.mp4", "a camera: tests/watching/test_watching_video.py"),
    Replaced(
        r"(serve .*)", r"\1 --port 0", "the port may be in use; it is asked for its health, and stopped"
    ),
    # Settings that take seconds.
    Replaced(
        r"((?:run|compare|tune) (?=.*--data ).*)",
        r"\1 --set benchmark.base_classes=4 --set benchmark.way=2 --set benchmark.sessions=1",
        "there are six classes",
    ),
    Replaced(
        r"(compare (?!.*model\.).*--data .*)",
        r"\1 --set model.backbone=tiny --set model.size=16 --set model.resize=18",
        "time",
    ),
    Replaced(
        r"((?:run|compare|tune) (?!.*(?:--data |cifar100|cub200|\.yaml)).*)",
        r"\1 --set benchmark.base_classes=6 --set benchmark.way=2 --set benchmark.sessions=2"
        " --set training.batch=60 --set model.size=12",
        "time",
    ),
    Replaced(
        r"((?:run|compare|tune) (?=.*(?:cifar100|cub200|weights=)).*)",
        r"\1 --set training.batch=60 --set model.size=16 --set model.resize=18",
        "time",
    ),
    Replaced(r"((?:run|compare|tune) (?=.*cifar100).*)", r"\1 --set model.backbone=tiny", "time"),
    Replaced(
        r"((?:run|compare|tune) (?!.*(?:training\.epochs=|--budget|\.yaml)).*)",
        r"\1 --set training.epochs=1",
        "time",
    ),
    Replaced(r"((?:run|compare|tune|tradeoff) .*)", r"\1 --device cpu", "the same on every machine"),
)


@dataclass(frozen=True)
class NotExecuted:
    """Commands that no walk executes."""

    pattern: str  # of the whole command
    why: str
    instead: tuple[str, ...] = ()  # tests of what they do


NOT_EXECUTED = (
    NotExecuted(
        r"make (install|demo|test|format|docs)",
        "installs everything; what it would do is looked at",
        ("tests/test_makefile.py", "tests/docs/test_habits.py"),
    ),
    NotExecuted(
        r"pip install '[^'$]*'", "installs gigabytes from a registry", ("tests/wheel/test_wheel.py",)
    ),
    NotExecuted(
        r"pip (wheel --no-deps --wheel-dir dist \.|install '\$\(echo dist/\S+\.whl\)\[photos,serve\]')",
        "the wheel is built and installed alone there, without what it depends on",
        ("tests/wheel/test_wheel.py",),
    ),
    NotExecuted(r"python3 -m venv \.venv|\. \.venv/bin/activate", "a shell's own environment"),
    NotExecuted(r"pre-commit install", "changes the checkout", ("tests/docs/test_habits.py",)),
    NotExecuted(r"pytest tests/classifiers", "is a part of the tests", ("tests/classifiers",)),
    NotExecuted(r"docker .*", "needs a daemon: where there is one", ("tests/docs/test_containers.py",)),
    NotExecuted(r"hf auth login", "asks for a token of an account: a stand-in is there", ("tests/hub",)),
    NotExecuted(r"tensorboard --logdir runs", "not ours", ("tests/evaluation/test_tracking.py",)),
    NotExecuted(
        r"fairshot data get cifar100",
        "downloads",
        ("tests/benchmarks/test_download.py", "tests/cli/test_data_command.py"),
    ),
    NotExecuted(r"fairshot new \S+ --backbone (resnet18|convnext_atto)", "downloads weights", (BACKBONE,)),
    NotExecuted(
        r"fairshot bench photos .*",
        "takes two benchmarks of photos",
        ("tests/teaching/test_photo_stores.py",),
    ),
    NotExecuted(r"torchrun .*", "needs two machines", ("tests/training/test_processes.py",)),
)


def not_executed(line: CommandLine) -> NotExecuted | None:
    """Return why a command is not executed, if it is not."""
    return next((each for each in NOT_EXECUTED if re.fullmatch(each.pattern, line.command)), None)


def small(line: CommandLine) -> list[str]:
    """Return the words behind `fairshot` with which a command of a page is executed."""
    command = shlex.join(line.words)
    for each in REPLACED:
        command = re.sub(each.pattern, each.by, command)
    return shlex.split(command)


def shrink_benchmarks() -> None:
    """In the process of a command: replace the large benchmarks by miniature ones of ten classes."""
    from fairshot.benchmarks import DATASETS

    for name in ("cifar100", "cub200", "mini_imagenet"):
        DATASETS[name] = replace(DATASETS[name], load=partial(miniature, name))


def miniature(name: str, *_: object) -> object:
    """Return drawings, in colour and 32 pixels wide, as the images of a benchmark."""
    from fairshot.benchmarks import doodles
    from fairshot.benchmarks.pictures import Pictures
    from fairshot.benchmarks.stream import LabelledPictures, Protocol

    whole = doodles.load()

    def few(images: LabelledPictures, each: int) -> LabelledPictures:
        kept = np.concatenate([np.flatnonzero(images.labels == label)[:each] for label in range(10)])
        pixels = np.stack([np.pad(picture.reshape(28, 28), 2) for picture in images.take(kept).pictures])
        return LabelledPictures(Pictures.from_array(np.repeat(pixels[..., None], 3, 3)), images.labels[kept])

    train = few(whole.train, 12)
    shots = {label: np.flatnonzero(train.labels == label)[:5] for label in range(6, 10)}
    names, protocol = whole.class_names[:10], Protocol(base_classes=6, way=2, shots=5, sessions=2)
    return replace(
        whole,
        name=name,
        class_names=names,
        train=train,
        test=few(whole.test, 5),
        protocol=protocol,
        listed_shots=shots,
    )
