"""What can keep a run or a store from travelling to a hub or back."""

from __future__ import annotations

from pathlib import Path

from fairshot.errors import UserError


class NothingToPush(UserError):
    """A folder is neither a finished run nor a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"{folder} is neither a finished run (it has no result.json) nor a store")


class HubUnreachable(UserError):
    """The hub does not answer, or has failed each time it was asked."""

    def __init__(self, endpoint: str, reason: str) -> None:
        self.endpoint, self.reason = endpoint, reason
        super().__init__(f"{endpoint} does not answer ({reason}); try again later")


class HubRefused(UserError):
    """The hub does not let this user do what was asked for."""

    def __init__(self, repo: str, endpoint: str, status: int) -> None:
        self.repo, self.endpoint, self.status = repo, endpoint, status
        needs = "log in (hf auth login), or set HF_TOKEN to a token" if status == 401 else "use a token"
        super().__init__(f"{endpoint} refuses access to {repo} ({status}); {needs} that may read or write it")


class RepoMissing(UserError):
    """There is no such repository, or none that this user may see."""

    def __init__(self, repo: str, endpoint: str) -> None:
        self.repo, self.endpoint = repo, endpoint
        super().__init__(
            f"{endpoint} has no repository {repo}, or it is private: then log in (hf auth login), or set "
            "HF_TOKEN"
        )


class BadRepoName(UserError):
    """A name that no repository can have."""

    def __init__(self, repo: str, reason: str) -> None:
        self.repo = repo
        super().__init__(f"{repo!r} is no name of a repository; expected OWNER/NAME ({reason})")


class NotFromFairshot(UserError):
    """A repository holds no run and no store."""

    def __init__(self, repo: str, missing: str) -> None:
        self.repo, self.missing = repo, missing
        super().__init__(f"{repo} holds no run and no store of fairshot: it has no {missing}")


class DownloadDamaged(UserError):
    """A file that was pulled is not the one that was pushed."""

    def __init__(self, repo: str, file: str, problem: str) -> None:
        self.repo, self.file, self.problem = repo, file, problem
        super().__init__(f"{file} of {repo} {problem}; nothing was kept; try again, or ask for a new push")
