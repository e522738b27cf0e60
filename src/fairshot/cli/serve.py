"""`fairshot serve`: a store over HTTP."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Annotated

import typer

from fairshot import teaching
from fairshot.cli.console import say
from fairshot.cli.stores import StoreFolder
from fairshot.errors import ExtraMissing
from fairshot.server.limits import Limits

TOKEN_VARIABLE = "FAIRSHOT_TOKEN"  # noqa: S105 - the name of a variable, no token


def serve_command(
    store: StoreFolder,
    host: Annotated[
        str, typer.Option(help="Address; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any that is free.")] = 8000,
    keep_asked: Annotated[
        int,
        typer.Option(min=0, max=1000, help="Pictures asked lately that stay in memory, to be labelled."),
    ] = Limits.recent_pictures,
) -> None:
    """Serve a store: a web page, and a REST API described at /docs.

    On an address other machines can reach, clients need a token: the environment variable FAIRSHOT_TOKEN, or
    a random one that is printed here.

    Example: fairshot serve my-store --port 8080
    """
    try:
        from fairshot.server.serving import choose_token, listen, serve
    except ImportError:
        raise ExtraMissing("the server", "serve") from None
    with teaching.Store(store) as opened:
        given = os.environ.get(TOKEN_VARIABLE)
        token = choose_token(host, given)
        listener = listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}"
        print(f"page {address}/  API {address}/docs", flush=True)
        if token is not None and given is None:
            print(f"token {token}", flush=True)
        say("Ctrl-C stops it")
        with suppress(KeyboardInterrupt):
            serve(opened, listener, token, keep_asked)
    say("stopped")
