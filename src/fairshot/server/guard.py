"""Checks that every request passes before the API or the page sees it: who asks, and how much they send.

Without a token, only requests addressed to a name of this machine are served: otherwise a web site could make
the browser of its visitor talk to the store under the site's own name (DNS rebinding). Requests that change
something must come from our own page or from no page at all. With a token, everybody needs it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairshot.server.counters import Counters
from fairshot.server.limits import Limits

COOKIE = "fairshot_token"
HEALTH, LOGIN, STATIC, DOCS = "/api/health", "/login", "/static", "/docs"
UPLOADS = ("/api/predict", "/api/teach")
UTF_8 = (b"utf-8", b"utf8")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
INLINE_ALLOWED = "; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'"  # Swagger needs it


def is_loopback(host: str) -> bool:
    """Say whether an address or name means this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_token(given: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), token.encode())


def refusal(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the response to a request that is not served."""
    extra = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(status, {})
    return JSONResponse({"detail": reason}, status, {**extra, **(headers or {})})


def announced_bytes(headers: Headers) -> int | None:
    """Return the size of a body as its head announces it."""
    given = headers.get("content-length", "")
    return int(given[:20]) if given.isascii() and given.isdigit() else None


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, limits: Limits, counters: Counters, token: str | None) -> None:
        self.app, self.limits, self.counters = app, limits, counters
        self.token = token  # None: only this machine is served
        self.arriving_bytes = 0  # received so far by all requests that are not answered yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on within the limits."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no WebSockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        started = time.perf_counter()
        request = BoundedRequest(self, scope, receive, send)
        response = self._refusal(scope, request)
        try:
            await request.run(response or self.app)
        finally:
            self.arriving_bytes -= request.received
        path = "refused" if response is not None else _operation(scope)
        self.counters.requests.labels(path, str(request.status)).inc()
        self.counters.seconds.labels(path).observe(time.perf_counter() - started)

    def _refusal(self, scope: Scope, request: BoundedRequest) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        close = {"connection": "close"}  # the body of a refused request is not read
        if self.token is None and not is_loopback(_address(f"//{host}").hostname or ""):
            return refusal(421, "this server answers to localhost only", close)
        public = path in (HEALTH, LOGIN) or path.startswith(f"{STATIC}/")
        if self.token is not None and not public and not self._has_token(scope, self.token):
            if path == "/":
                return RedirectResponse(LOGIN, 303, close)
            return refusal(401, f"a token is needed: Authorization: Bearer TOKEN, or open {LOGIN}", close)
        foreign = "origin" in headers and _address(headers["origin"]).netloc != host
        if foreign and scope["method"] not in SAFE_METHODS:
            return refusal(403, "requests of other web sites are not served", close)
        if (announced_bytes(headers) or 0) > request.most_bytes:
            return refusal(413, f"more than {request.most_bytes:,} bytes in one request", close)
        if request.charset.lower() not in UTF_8:
            return refusal(400, "forms are read as UTF-8; name no other charset", close)
        return None

    def _has_token(self, scope: Scope, token: str) -> bool:
        connection = HTTPConnection(scope)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and is_token(given.strip(), token):
            return True
        return is_token(connection.cookies.get(COOKIE, ""), token)


class BoundedRequest:
    """One request: its bytes and seconds are counted, and its response gets our headers."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        limits, headers = guard.limits, Headers(scope=scope)
        login = scope["path"] == LOGIN
        kind, options = parse_options_header(headers.get("content-type", ""))
        files = kind == b"multipart/form-data"
        # Python knows charsets that take hours to read, and some that give text which cannot be written.
        self.charset = options.get(b"charset", b"utf-8") if files else b"utf-8"
        self._boundary = b"\r\n--" + options.get(b"boundary", b"") if files else None
        self._parts = 0
        self.most_bytes = limits.request_bytes if files and scope["path"] in UPLOADS else limits.text_bytes
        if login:
            self.most_bytes = limits.login_bytes
        # Part of the room is kept for small requests, so that large ones do not shut out all others.
        announced = announced_bytes(headers)
        small = announced is not None and announced <= limits.small_request_bytes
        self._most_arriving = limits.arriving_bytes if small else limits.arriving_bytes * 3 // 4
        self.received = 0
        self.status = 0
        self._complete = False
        self._seconds = limits.header_seconds if login else limits.body_seconds
        self._deadline = time.monotonic() + self._seconds
        self._refusal: Response | None = None

    async def run(self, app: ASGIApp) -> None:
        """Let an application answer; if it fails because the request was refused, send the refusal."""
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:
            if self._refusal is None or self.status != 0:
                raise
            await self._send_refusal(self._refusal)

    async def receive(self) -> Message:
        """Receive a part of the body; refuse a request that is too slow or too large."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0)):
                message = await self._receive()
        except TimeoutError:
            return self._refuse(408, f"the request took longer than {self._seconds:.0f} s to arrive")
        body = message.get("body", b"")
        size = len(body)
        self.received += size
        self._guard.arriving_bytes += size
        if self.received > self.most_bytes:
            return self._refuse(413, f"more than {self.most_bytes:,} bytes in one request")
        # Each boundary takes the parser as long as kilobytes of an image, also one that turns out to be none.
        self._parts += body.count(self._boundary) if self._boundary is not None else 0
        if self._parts > self._guard.limits.parts:
            return self._refuse(413, f"more than {self._guard.limits.parts} parts in one request")
        if self._guard.arriving_bytes > self._most_arriving:
            return self._refuse(503, "too many photos arrive at once; send them again in a second")
        self._complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response; of a refused request, the refusal in its place."""
        if self._refusal is not None:
            if self.status == 0:
                await self._send_refusal(self._refusal)
            return
        await self._send_with_headers(message)

    def _refuse(self, status: int, reason: str) -> Message:
        self._refusal = refusal(status, reason, {"connection": "close"})
        return {"type": "http.disconnect"}

    async def _send_refusal(self, response: Response) -> None:
        await response(self._scope, self._receive, self._send_with_headers)

    async def _send_with_headers(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            if self._scope["path"] == DOCS:
                headers["content-security-policy"] += INLINE_ALLOWED
        await self._send(message)


def _operation(scope: Scope) -> str:
    """Return the route of the API that served a request: one of few, unlike the path that was asked for."""
    path: str = getattr(scope.get("route"), "path", "")
    return path if path.startswith("/api/") else "page"


def _address(given: str) -> SplitResult:
    """Split an address; what is none has empty parts."""
    try:
        return urlsplit(given)
    except ValueError:
        return SplitResult("", "", "", "", "")
