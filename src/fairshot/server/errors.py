"""Requests that are not served, and addresses that cannot be opened."""

from __future__ import annotations

from fairshot.errors import UserError


class Refused(Exception):
    """A request that is not served: status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class AddressUnavailable(UserError):
    """An address that the operating system does not let us open."""

    def __init__(self, host: str, port: int, reason: str | None) -> None:
        super().__init__(f"{host} port {port} cannot be opened ({reason})")
        self.host = host
        self.port = port
        self.reason = reason
