"""Commands that a command suggests to run next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairshot.recipes import Recipe


def after_run(run: Path, recipe: Recipe) -> list[str]:
    """Return what to try with a finished run: its page, and a store where the method can answer in one."""
    from fairshot.teaching.errors import UnsupportedRun
    from fairshot.teaching.run_spec import check_method

    commands = {shlex.join(["fairshot", "report", str(run)]): "a page with figures and tables"}
    with suppress(UnsupportedRun):
        check_method(run, recipe)
        commands[shlex.join(["fairshot", "new", "my-store", "--from", str(run)])] = "a store to teach"
    width = max(map(len, commands))
    return [f"{command:{width}}  # {purpose}" for command, purpose in commands.items()]


def command_on_base(
    run: Path, method: Mapping[str, Any], out: str, photos: Path | None, root: Path | None
) -> str:
    """Return the command that decides by other settings on the base session and the images of a run."""
    command = ["fairshot", "run", str(run / "recipe.yaml"), "--base", str(run)]
    for key, value in method.items():
        command.append(f"--set=method.{key}={value if isinstance(value, str) else json.dumps(value)}")
    return shlex.join([*command, *picture_options(photos, root), "--out", out])


def picture_options(photos: Path | None, root: Path | None) -> list[str]:
    """Return the options of a command that say where the images of a run are, if anything must be said."""
    given = (("--data", photos), ("--root", root))
    return [word for option, folder in given if folder is not None for word in (option, str(folder))]
