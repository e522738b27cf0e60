"""`fairshot push` and `fairshot pull`: runs and stores on a hub of models."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fairshot.cli.console import MESSAGES, ConsoleReporter, say

Repo = Annotated[str, typer.Argument(metavar="REPO", help="The repository on the hub: OWNER/NAME.")]
Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Address of the hub; if not given, HF_ENDPOINT or huggingface.co."),
]


def push_command(
    source: Annotated[Path, typer.Argument(metavar="RUN_OR_STORE", help="A finished run, or a store.")],
    repo: Repo,
    public: Annotated[
        bool, typer.Option("--public/--private", help="Who may see a repository that is made for it.")
    ] = False,
    licence: Annotated[
        str | None,
        typer.Option("--license", metavar="NAME", help="Licence in the card, as the hub names it: mit."),
    ] = None,
    endpoint: Endpoint = None,
) -> None:
    """Push a run or a store to a hub of models, with a card that says what it is and how to load it.

    The token of `hf auth login`, or HF_TOKEN, is used. Weights travel as safetensors, a store as its archive.

    Example: fairshot push runs/demo/sss-seed0 me/doodles-sss
    """
    from fairshot.hub.sharing import push

    _quiet_unless_watched()
    address = push(
        source, repo, public=public, licence=licence, endpoint=endpoint, reporter=ConsoleReporter()
    )
    say(f"pushed to {address}")


def pull_command(
    repo: Repo,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    endpoint: Endpoint = None,
) -> None:
    """Pull a run or a store from a hub of models; every file is checked, and no code of it is run.

    Example: fairshot pull me/doodles-sss my-run
    """
    from fairshot.hub.sharing import pull

    _quiet_unless_watched()
    kind = pull(repo, folder, endpoint=endpoint, reporter=ConsoleReporter())
    then = ["new", "STORE", "--from", str(folder)] if kind == "run" else ["predict", str(folder), "PHOTO"]
    say(f"a {kind}, in {folder}\nnext: {shlex.join(['fairshot', *then])}")


def _quiet_unless_watched() -> None:
    """Show the hub's own progress bars on a terminal alone."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not MESSAGES.is_terminal:
        disable_progress_bars()
