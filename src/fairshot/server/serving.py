"""Run a server: its address, its token, a protocol that does not wait for slow clients, and its end."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
import threading
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fairshot.errors import BadInput
from fairshot.server.app import build_app
from fairshot.server.errors import AddressUnavailable
from fairshot.server.guard import is_loopback
from fairshot.server.limits import Limits
from fairshot.teaching.store import Store

SHORTEST_TOKEN = 16
GRACEFUL_SECONDS = 5  # for requests under way, after a signal to stop
SHUTDOWN_SECONDS = 9.0  # until the process has ended


class BoundedChunks(h11.Connection):
    """HTTP/1.1 that refuses a body of tiny chunks, each of which takes as long to parse as a large one."""

    _chunks = _bytes = 0  # of the present request

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return what has arrived; tiny chunks are an error of the client."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._bytes += len(event.data)
            if self._chunks > Limits.tiny_chunks + self._bytes // Limits.chunk_bytes:
                raise h11.RemoteProtocolError("a body of tiny chunks")
        return event


class HeaderTimeoutProtocol(H11Protocol):
    """HTTP/1.1 with bounds on open connections, and on the time clients take to send or to read.

    A connection is closed if the head of its next request does not arrive in time, or if its client does not
    read. When too many are open, the one that has waited for a request longest gives way to the new one.
    """

    _timer: asyncio.TimerHandle | None = None  # until the next request must have begun
    _reading_timer: asyncio.TimerHandle | None = None  # until the client must have read something
    given_up = False  # for a newer connection

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.conn = BoundedChunks(h11.SERVER)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, and start the time for the head of the first request."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        open_ones = (other for other in self.connections if isinstance(other, HeaderTimeoutProtocol))
        others = [other for other in open_ones if not other.given_up]
        neighbours = [other for other in others if other.address == self.address]
        if len(neighbours) > Limits.address_connections:
            _close_longest_waiting(neighbours)
        elif len(others) > Limits.connections:
            _close_longest_waiting(others)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, which would keep the connection in memory."""
        super().connection_lost(exc)
        for timer in (self._timer, self._reading_timer):
            if timer is not None:
                timer.cancel()

    def on_response_complete(self) -> None:
        """Start the time for the head of the next request."""
        self._expect_request()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; if a response has begun already, none can follow it."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the time for the client to read, as no more fits into the buffers on the way to it."""
        super().pause_writing()
        self._reading_timer = self.loop.call_later(Limits.reading_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the time for the client to read."""
        super().resume_writing()
        if self._reading_timer is not None:
            self._reading_timer.cancel()

    @property
    def address(self) -> str:
        """The address of the client; of IPv6 the half that belongs to one network."""
        host = self.client[0] if self.client else ""
        return str(ipaddress.ip_network(f"{host}/64", strict=False)) if ":" in host else host

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being received or answered: one begins when its head has arrived."""
        return self.cycle is None or self.cycle.response_complete

    def _expect_request(self) -> None:
        self.waiting_since = self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(Limits.header_seconds, self._close_if_idle, self.cycle)

    def _close_if_idle(self, previous: object) -> None:
        """Close if no request has begun since the previous one, whose response may still be on the way."""
        if self.cycle is previous:
            self.transport.close()
            self._timer = self.loop.call_later(Limits.reading_seconds, self.transport.abort)


def _close_longest_waiting(connections: list[HeaderTimeoutProtocol]) -> None:
    """Close the connection that has been waiting for a request longest: a new one, if no other waits."""
    chosen = min((each for each in connections if each.is_waiting), key=lambda each: each.waiting_since)
    chosen.given_up = True
    chosen.transport.abort()


class BoundedShutdown(uvicorn.Server):
    """A server that ends in bounded time after a signal, whatever is being computed."""

    _deadline: threading.Timer | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to shut down; what takes too long is cut off, by which a store loses nothing."""
        if self._deadline is None:
            self._deadline = threading.Timer(SHUTDOWN_SECONDS, os._exit, [128 + sig])
            self._deadline.daemon = True
            self._deadline.start()
        super().handle_exit(sig, frame)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until interrupted."""
        try:
            super().run(sockets)
        finally:
            if self._deadline is not None:
                self._deadline.cancel()


def choose_token(host: str, given: str | None) -> str | None:
    """Return the token for an address: the one given, or a new one; none is needed on this machine alone."""
    if given is not None and len(given) < SHORTEST_TOKEN:
        raise BadInput("token", f"it has {len(given)} characters; give at least {SHORTEST_TOKEN}, or none")
    if given is not None and not (given.isascii() and given.isalnum()):
        raise BadInput("token", "it may consist of letters a-z, A-Z and digits only")
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


def build_server(
    store: Store, token: str | None = None, recent_pictures: int = Limits.recent_pictures
) -> uvicorn.Server:
    """Return the server of a store, not started yet."""
    config = uvicorn.Config(
        build_app(store, token, Limits(recent_pictures=recent_pictures)),
        http=HeaderTimeoutProtocol,
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    return BoundedShutdown(config)


def serve(store: Store, listener: socket.socket, token: str | None, recent_pictures: int) -> None:
    """Serve a store until interrupted."""
    build_server(store, token, recent_pictures).run(sockets=[listener])
