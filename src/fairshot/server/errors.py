"""Requests that are not served, and addresses that cannot be opened."""

from __future__ import annotations

from fairshot.errors import CannotWrite, UserError


class Refused(Exception):
    """A request that is not served: status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def status_of(error: UserError) -> int:
    """Return the status that a client is answered with: what it asked cannot be done, or not written here."""
    if isinstance(error, CannotWrite):
        return 507 if error.disk_full else 503
    return 422


class AddressUnavailable(UserError):
    """An address that the operating system does not let us open."""

    host: str
    port: int
    reason: str | None
    message = "{host} port {port} cannot be opened ({reason})"
