"""What can keep a run or a store from travelling to a hub or back."""

from __future__ import annotations

from pathlib import Path

from fairshot.errors import UserError


class NothingToPush(UserError):
    """A folder is neither a finished run nor a store."""

    folder: Path
    message = "{folder} is neither a finished run (it has no result.json) nor a store"


class HubUnreachable(UserError):
    """The hub does not answer, or has failed each time it was asked."""

    endpoint: str
    reason: str
    message = "{endpoint} does not answer ({reason}); try again later"


class HubRefused(UserError):
    """The hub does not let this user do what was asked for."""

    repo: str
    endpoint: str
    status: int

    def __str__(self) -> str:
        needs = "log in (hf auth login), or set HF_TOKEN to a token" if self.status == 401 else "use a token"
        refused = f"{self.endpoint} refuses access to {self.repo} ({self.status})"
        return f"{refused}; {needs} that may read or write it"


class RepoMissing(UserError):
    """There is no such repository, or none that this user may see."""

    repo: str
    endpoint: str
    message = (
        "{endpoint} has no repository {repo}, or it is private: then log in (hf auth login), or set HF_TOKEN"
    )


class BadRepoName(UserError):
    """A name that no repository can have."""

    repo: str
    reason: str
    message = "{repo!r} is no name of a repository; expected OWNER/NAME ({reason})"


class NotFromFairshot(UserError):
    """A repository holds no run and no store."""

    repo: str
    missing: str
    message = "{repo} holds no run and no store of fairshot: it has no {missing}"


class DownloadDamaged(UserError):
    """A file that was pulled is not the one that was pushed."""

    repo: str
    file: str
    problem: str
    message = "{file} of {repo} {problem}; nothing was kept; try again, or ask for a new push"
