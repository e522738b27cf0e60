"""Answers sent to a web address, one POST of JSON each."""

from __future__ import annotations

import json
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fairshot.watching.capture import Capture
from fairshot.watching.errors import BadAddress
from fairshot.watching.receivers import Record, Refused, Unreachable

TIMEOUT = 10.0  # seconds
LONGEST_REASON = 200  # characters of what a server says
# What says that the message is at fault, and not the connection to the receiver.
REFUSING = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}


class _NoRedirects(HTTPRedirectHandler):
    """A redirected POST becomes a GET, which tells nobody anything: that it redirects is an error."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """A web address that answers are posted to."""

    name = "webhook"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadAddress("the address of the webhook", "http://HOST/PATH or https://HOST/PATH")
        self.url = url
        self._opener = build_opener(_NoRedirects)

    def message(self, record: Record, capture: Capture) -> str:
        """Return the record as JSON."""
        del capture
        return json.dumps(record)

    def deliver(self, message: str) -> None:
        """Post it; what the receiver answers is passed over."""
        request = Request(  # noqa: S310 - http or https
            self.url, message.encode(), {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                answer.read(1)
        except HTTPError as problem:
            with problem:
                kind = Refused if problem.code in REFUSING else Unreachable
                raise kind(f"{problem.code} {problem.reason}"[:LONGEST_REASON]) from None
        except (OSError, HTTPException) as problem:
            raise Unreachable(str(problem)[:LONGEST_REASON] or type(problem).__name__) from None

    def close(self) -> None:
        """Do nothing: no connection stays open."""
