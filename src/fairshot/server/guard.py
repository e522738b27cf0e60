"""The door of the server: who may come in, and how much they may bring.

It stands before the API and the page alike. On a loopback address only names of this machine are let in, so
that no web site can reach the store through the browser of a person who visits it (DNS rebinding); requests
that change something must come from our own page or from no page at all. Elsewhere a token is needed.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from fairshot.server.limits import Limits
from fairshot.server.metrics import Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "fairshot_token"
HEALTH, LOGIN = "/api/health", "/login"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "content-security-policy": "; ".join(
        [
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "media-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src 'self' blob:",
            "connect-src 'self' data: blob:",
            "frame-ancestors 'none'",
            "base-uri 'self'",
            "form-action 'self'",
        ]
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
LOGIN_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>fairshot</title>
<style>body{font:16px system-ui,sans-serif;display:grid;place-items:center;height:90vh;background:#f6f7f9}
form{background:#fff;padding:2rem;border-radius:12px;box-shadow:0 1px 6px #0002}
input,button{font:inherit;padding:.5rem .75rem;border-radius:8px;border:1px solid #ccd}
button{background:#2457c5;color:#fff;border:0;margin-left:.5rem}</style>
<form method="post" action="/login"><p>The server printed a token when it started.</p>
<input name="token" type="password" placeholder="token" aria-label="token" autofocus>
<button>Enter</button></form></html>"""


def is_loopback(host: str) -> bool:
    """Say whether an address or name means this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class Guard:
    """An ASGI application around another."""

    app: App
    limits: Limits
    metrics: Metrics
    token: str | None  # needed by everybody; None: only this machine is let in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on what stays within the limits."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        began = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        passage = BoundedRequest(self.limits, receive, send)
        if self.token is not None and scope["path"] == LOGIN:
            await self._login(scope, passage)
            where = "page"
        elif refusal := self._refusal(scope, headers):
            await passage.refuse(*refusal)
            where = "refused"
        else:
            await passage.through(self.app, scope)
            where = _operation(scope)
        self.metrics.requests.labels(where, str(passage.status)).inc()
        self.metrics.seconds.labels(where).observe(time.perf_counter() - began)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self.token is None and not is_loopback(_address(f"//{host}").hostname or ""):
            return 421, "this server answers to localhost only"
        if self.token is not None and scope["path"] != HEALTH and not self._knows_token(headers):
            return 401, "a token is needed: Authorization: Bearer TOKEN, or open /login"
        foreign = "origin" in headers and _address(headers["origin"]).netloc != host
        if foreign and scope["method"] not in SAFE_METHODS:
            return 403, "requests of other web sites are not served"
        if _length(headers) > self.limits.request_bytes:
            return 413, f"more than {self.limits.request_bytes // 2**20} MB in one request"
        return None

    def _knows_token(self, headers: dict[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return COOKIE in cookies and self._is_token(cookies[COOKIE].value)

    def _is_token(self, given: str) -> bool:
        """Compare in constant time."""
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    async def _login(self, scope: Scope, passage: BoundedRequest) -> None:
        """Show the form, or take the token from it into a cookie."""
        if scope["method"] == "GET":
            await passage.respond(200, LOGIN_PAGE, "text/html; charset=utf-8")
            return
        if scope["method"] != "POST":
            await passage.refuse(405, "GET or POST")
            return
        body = await passage.body(at_most=4096)
        given = parse_qs(body.decode("latin-1")).get("token", [""])[0]
        if not self._is_token(given):
            await passage.refuse(401, "this is not the token")
            return
        cookie = f"{COOKIE}={given}; HttpOnly; SameSite=Strict; Path=/"
        await passage.respond(303, b"", "text/plain", {"location": "/", "set-cookie": cookie})


class BoundedRequest:
    """One request on its way through: its bytes and seconds are counted, its response gets our headers."""

    def __init__(self, limits: Limits, receive: Receive, send: Send) -> None:
        self._limits, self._receive, self._send = limits, receive, send
        self._left = limits.request_bytes
        self._complete = False
        self._deadline = time.monotonic() + limits.body_seconds
        self._refusal: tuple[int, str] | None = None
        self.status = 0

    async def through(self, app: App, scope: Scope) -> None:
        """Pass a request on."""
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            if self._refusal is None or self.status != 0:
                raise
            await self.refuse(*self._refusal)

    async def receive(self) -> Message:
        """Receive a part of the body, or give up on a client that is too slow or brings too much."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0)):
                message = await self._receive()
        except TimeoutError:
            self._refusal = (408, f"the request took longer than {self._limits.body_seconds:.0f} s to arrive")
            return {"type": "http.disconnect"}
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self._refusal = (413, f"more than {self._limits.request_bytes // 2**20} MB in one request")
            return {"type": "http.disconnect"}
        self._complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response; in place of one to a refused request, the refusal."""
        if self._refusal is not None and self.status == 0:
            await self.refuse(*self._refusal)
        if self._refusal is not None:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *ours]}
        await self._send(message)

    async def body(self, at_most: int) -> bytes:
        """Read a small body."""
        content = b""
        while len(content) <= at_most:
            message = await self.receive()
            content += message.get("body", b"")
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                break
        return content

    async def refuse(self, status: int, reason: str) -> None:
        """Say why not, as the API says it."""
        extra = {"connection": "close"} | ({"www-authenticate": "Bearer"} if status == 401 else {})
        await self.respond(status, json.dumps({"detail": reason}).encode(), "application/json", extra)

    async def respond(
        self, status: int, body: bytes, content_type: str, extra: dict[str, str] | None = None
    ) -> None:
        """Respond without the application."""
        self.status = status
        headers = {"content-type": content_type, "content-length": str(len(body)), **HEADERS, **(extra or {})}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})
        await self._send({"type": "http.response.body", "body": body})


def _operation(scope: Scope) -> str:
    """Name the operation of the API that the application found for a request: one of few, unlike its path."""
    path: str = getattr(scope.get("route"), "path", "")
    return path if path.startswith("/api/") else "page"


def _address(given: str) -> SplitResult:
    """Take an address apart; what is none has no parts."""
    try:
        return urlsplit(given)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _length(headers: dict[str, str]) -> int:
    announced = headers.get("content-length", "0")
    return int(announced) if announced.isascii() and announced.isdigit() else 0
