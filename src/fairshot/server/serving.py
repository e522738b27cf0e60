"""Run a server: its address, its token, and a protocol that does not wait for slow clients."""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fairshot.errors import UserError
from fairshot.server.app import build_app
from fairshot.server.errors import AddressUnavailable
from fairshot.server.guard import is_loopback
from fairshot.server.limits import Limits
from fairshot.teaching.store import Store

SHORTEST_TOKEN = 16


class HeaderTimeoutProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection if the head of its next request does not arrive in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time for the head of the first request."""
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        """Start the time for the head of the next request."""
        self._expect_request()
        super().on_response_complete()

    def _expect_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(Limits.header_seconds, self._close_if_idle, self.cycle)

    def _close_if_idle(self, previous: object) -> None:
        """Close if no request has begun since the previous one: one begins when its head has arrived."""
        if self.cycle is previous and not self.transport.is_closing():
            self.transport.close()


def choose_token(host: str, given: str | None) -> str | None:
    """Return the token for an address: the one given, or a new one; none is needed on this machine alone."""
    if given is not None and len(given) < SHORTEST_TOKEN:
        raise UserError(f"the token has {len(given)} characters; give at least {SHORTEST_TOKEN}, or none")
    if given is not None and not (given.isascii() and given.isalnum()):
        raise UserError("the token may consist of letters a-z, A-Z and digits only")
    if given is not None or is_loopback(host):
        return given
    return secrets.token_hex(32)


def listen(host: str, port: int) -> socket.socket:
    """Open the address before anything is loaded; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as problem:
        listener.close()
        raise AddressUnavailable(host, port, problem.strerror) from None
    return listener


def build_server(store: Store, token: str | None = None) -> uvicorn.Server:
    """Return the server of a store, not started yet."""
    settings: dict[str, Any] = {
        "http": HeaderTimeoutProtocol,
        "ws": "none",
        "access_log": False,
        "log_level": "warning",
        "server_header": False,
        "timeout_keep_alive": 5,
        "timeout_graceful_shutdown": 5,
    }
    return uvicorn.Server(uvicorn.Config(build_app(store, token), **settings))


def serve(store: Store, listener: socket.socket, token: str | None) -> None:
    """Serve a store until interrupted."""
    build_server(store, token).run(sockets=[listener])
