"""The command that makes a store, on a run or on a backbone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fairshot import teaching
from fairshot.cli.console import ConsoleReporter, say
from fairshot.cli.options import given
from fairshot.cli.presets import list_presets
from fairshot.cli.stores import MOST_NAMED
from fairshot.errors import UserError, first_of
from fairshot.models.presets import DEFAULT_PRESET

NewStore = Annotated[Path, typer.Argument(metavar="STORE", help="The folder to make.")]
FromRun = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="A finished run of SSS, or of a method that answers by nearest class means.",
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A preset, or any model of timm; `--backbone list` lists the presets. If neither this nor "
        f"--from is given, {DEFAULT_PRESET}.",
        callback=list_presets,
        is_eager=True,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With --backbone: its weights, a file of safetensors or a .pth of torch."
    ),
]
BasePhotos = Annotated[
    Path | None,
    typer.Option(
        metavar="PHOTOS",
        help="Base classes PHOTOS/<class>/*.jpg. SR is trained on them, and kept if held-out photos say that "
        "it pays.",
    ),
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="With --base: epochs of SR, on cached features; 30 if not given.")
]
MaxMinutes = Annotated[
    float | None, typer.Option(min=0, help="With --base: minutes that training SR may take at most.")
]
RunData = Annotated[
    Path | None,
    typer.Option(
        help="With --from: where the run's benchmark, or its own pictures, lie; if not given, where it "
        "found them."
    ),
]
WithoutImages = Annotated[
    bool,
    typer.Option(
        "--without-images",
        help="With --from: do without the run's images. The store has no examples of its base classes, and "
        "learns what is unknown from the photos it is taught alone.",
    ),
]
Sessions = Annotated[
    bool | None,
    typer.Option(
        "--sessions/--base-only",
        help="With --from: teach it the classes of the run's sessions too, or leave them out. If not given, "
        "they are taught if the run was on own pictures.",
        show_default=False,
    ),
]


def new_command(
    store: NewStore,
    run: FromRun = None,
    backbone: Backbone = None,
    weights: Weights = None,
    base: BasePhotos = None,
    epochs: Epochs = None,
    max_minutes: MaxMinutes = None,
    data: RunData = None,
    without_images: WithoutImages = False,
    sessions: Sessions = None,
) -> None:
    """Make a store, on a trained run or on a backbone.

    Example: fairshot new my-store --from runs/demo/sss-seed0
    """
    if run is not None and backbone is not None:
        raise UserError("give either --from RUN or --backbone NAME")
    if weights is not None and run is None and backbone is None:
        raise UserError("--weights goes with --backbone, which says of which network they are")
    if run is not None:
        _refuse("--backbone", {"--weights": weights, "--base": base}, "--from was given")
    else:
        of_run = {"--data": data, "--without-images": without_images, "--sessions": sessions is not None}
        _refuse("--from", of_run, "--from was not given")
    if without_images and (data or sessions):
        raise UserError(f"give either {'--data' if data else '--sessions'} or --without-images")
    teaching.check_free(store)
    reporter = ConsoleReporter("new store")
    if run is not None:
        spec = teaching.from_run(run, data, reporter, without_images, sessions)
    else:
        spec = teaching.from_backbone(
            backbone or DEFAULT_PRESET,
            weights,
            base,
            reporter=reporter,
            **given(epochs=epochs, max_minutes=max_minutes),
        )
    with teaching.Store.create(store, spec, reporter) as made:
        count = len(made.classes())
        say(f"{store}: a store of {count} classes" if count else f"{store}: a store without classes yet")
        _say_method(spec)
        if spec.remark:
            say(spec.remark)
        _say_sessions(spec, store, without_images)
        say(f'confidence and "unknown" are fitted to: {made.snapshot().confidence.source}')
        if not count:
            named = shlex.quote(str(store))
            say(f"to teach it: fairshot teach {named} PHOTOS, a folder with a sub-folder for each class")


def _refuse(needed: str, options: Mapping[str, object], reason: str) -> None:
    """Refuse the first option that was given, because it goes with another one."""
    for option, value in options.items():
        if value:
            raise UserError(f"{option} goes with {needed}, and {reason}")


def _say_method(spec: teaching.StoreSpec) -> None:
    """Say how a store answers that was made from a run of another method than SSS."""
    from fairshot.recipes import DEFAULT_METHOD

    method = spec.origin.get("method", DEFAULT_METHOD)
    if method != DEFAULT_METHOD:
        say(f"the run is of {method}: the store answers by nearest class means, not by SSS")


def _say_sessions(spec: teaching.StoreSpec, store: Path, without_images: bool) -> None:
    """Say which classes of the run were taught too, or are missing and how to add them."""
    if spec.taught:
        say(f"taught from the shots of the run's sessions: {first_of(list(spec.taught), MOST_NAMED)}")
    if spec.left_out:
        again = "" if without_images else ", or make the store with --sessions"
        names = first_of(spec.left_out, MOST_NAMED)
        say(f"left out, because the run learnt them in its sessions: {names}")
        say(f"to add one: fairshot teach {shlex.quote(str(store))} NAME PHOTOS{again}")
