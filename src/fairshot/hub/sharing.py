"""Runs and stores on a hub of models: pushed with a card, pulled with every file checked.

Only files whose names are known travel, in either direction: weights as safetensors, the rest as text, a
store as its archive. Nothing that is pulled is run or unpickled.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlparse

from huggingface_hub import HfApi
from huggingface_hub import constants as defaults
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils.tqdm import tqdm
from pydantic import BaseModel, ConfigDict, Field

from fairshot.benchmarks.image_folder import Split
from fairshot.documents import read_model, read_yaml_text, write_json
from fairshot.errors import CannotWrite, DamagedFile, UserError
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import (
    FEATURES,
    MIRROR_TRADEOFF,
    MIRROR_TRADEOFF_PAGE,
    MODEL,
    OWN_METHOD,
    POISONING,
    POISONING_PAGE,
    RECIPE,
    RESULT,
    SPLIT,
    TRADEOFF,
    TRADEOFF_PAGE,
    TRAINING,
)
from fairshot.files import write_atomically
from fairshot.hub.card import run_card, store_card
from fairshot.hub.errors import (
    BadRepoName,
    DownloadDamaged,
    HubRefused,
    HubUnreachable,
    NotFromFairshot,
    NothingToPush,
    RepoMissing,
)
from fairshot.progress import SILENT, Reporter
from fairshot.teaching import export_archive, import_archive
from fairshot.teaching.database import DATABASE
from fairshot.teaching.errors import RunWithoutWeights
from fairshot.teaching.folders import new_folder
from fairshot.tensor_files import check_tensors

Kind = Literal["run", "store"]
Answer = TypeVar("Answer")

PUBLIC = "https://huggingface.co"
MANIFEST = "fairshot.json"  # what a repository holds, and the checksum of each file
CARD = "README.md"
ARCHIVE = "store.zip"
NEEDED = (RESULT, RECIPE, MODEL)  # of a run
OPTIONAL = (
    *(TRAINING, FEATURES, SPLIT, OWN_METHOD),
    *(TRADEOFF, TRADEOFF_PAGE, MIRROR_TRADEOFF, MIRROR_TRADEOFF_PAGE),
    *(POISONING, POISONING_PAGE),
)
NAMES: dict[Kind, tuple[str, ...]] = {"run": (*NEEDED, *OPTIONAL), "store": (ARCHIVE,)}
MANIFEST_BYTES = 2**16  # manifests take 2**11
ATTEMPTS = 5
WAIT = 1.0  # seconds before the second attempt; then twice as long each time
LATER = {408, 429, 500, 502, 503, 504}  # statuses of a server that may recover


class PushedFile(BaseModel):
    """A file as it was pushed."""

    model_config = ConfigDict(extra="forbid")

    sha256: str
    size: int = Field(ge=0, lt=2**50)


class Manifest(BaseModel):
    """What a repository holds."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    fairshot: str  # the version that pushed it
    files: dict[str, PushedFile]


def push(
    source: str | Path,
    repo: str,
    *,
    public: bool = False,
    licence: str | None = None,
    endpoint: str | None = None,
    reporter: Reporter = SILENT,
) -> str:
    """Push a finished run or a store to a repository, made if it is not there; return its address.

    A new repository is private unless `public`; one that exists stays as it is. `licence` is the hub's short
    name of one, for example mit or cc-by-4.0.
    """
    source, endpoint = Path(source), endpoint or defaults.ENDPOINT
    with tempfile.TemporaryDirectory(prefix="fairshot-push-") as folder:
        staged = Path(folder)
        card = _stage(source, staged, repo, licence)
        sizes = [path.stat().st_size for path in staged.iterdir()]
        reporter.say(f"pushing {len(sizes)} files, {sum(sizes) / 1e6:,.1f} MB, to {endpoint}/{repo}")
        write_atomically(staged / CARD, card.encode())
        api = HfApi(endpoint=endpoint)
        with _hub_errors(repo, endpoint), _plain_uploads(endpoint):
            _with_retries(lambda: api.create_repo(repo, private=not public, exist_ok=True), reporter)
            _with_retries(
                lambda: api.upload_folder(repo_id=repo, folder_path=staged, commit_message="by fairshot"),
                reporter,
            )
    return f"{endpoint}/{repo}"


def pull(repo: str, folder: str | Path, *, endpoint: str | None = None, reporter: Reporter = SILENT) -> Kind:
    """Pull a run or a store into a new folder, whole or not at all; return which of them it is."""
    folder, endpoint = Path(folder), endpoint or defaults.ENDPOINT
    with new_folder(folder) as temporary, tempfile.TemporaryDirectory(dir=temporary) as download:
        manifest = _download(HfApi(endpoint=endpoint), repo, Path(download), endpoint, reporter)
        if manifest.kind == "store":
            import_archive(Path(download) / ARCHIVE, Path(download) / "store")
            pulled = list((Path(download) / "store").iterdir())
        else:
            _check_run(repo, Path(download), manifest)
            pulled = [Path(download) / name for name in manifest.files]
        for path in pulled:
            path.rename(temporary / path.name)
    return manifest.kind


def _stage(source: Path, target: Path, repo: str, licence: str | None) -> str:
    """Put what is pushed into a folder; return the card."""
    if (source / DATABASE).is_file():
        kind: Kind = "store"
        export_archive(source, target / ARCHIVE)
        card = store_card(source, repo, licence)
    elif (source / RESULT).is_file():
        kind = "run"
        _stage_run(source, target)
        card = run_card(source, repo, licence)
    else:
        raise NothingToPush(source)
    files = {path.name: _describe(path) for path in sorted(target.iterdir())}
    manifest = Manifest(kind=kind, fairshot=version("fairshot"), files=files)
    write_json(target / MANIFEST, manifest.model_dump_json() + "\n")
    return card


def _stage_run(run: Path, target: Path) -> None:
    """Copy the files of a run that are known; the split without the folder of its photos."""
    Result.read(run)
    read_yaml_text(run / RECIPE)
    if not (run / MODEL).is_file():
        raise RunWithoutWeights(run / MODEL)
    check_tensors(run / MODEL)
    for name in NAMES["run"]:
        if name == SPLIT and (run / SPLIT).is_file():
            Split.read(run).model_copy(update={"photos": None}).write(target)
        elif (run / name).is_file():
            shutil.copyfile(run / name, target / name)


def _describe(path: Path) -> PushedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return PushedFile(sha256=digest, size=path.stat().st_size)


def _download(api: HfApi, repo: str, target: Path, endpoint: str, reporter: Reporter) -> Manifest:
    """Download the files that the manifest names, all of one commit, and check them against it."""

    def fetch(name: str, revision: str, most: int) -> Path:
        try:
            path = _with_retries(
                lambda: api.hf_hub_download(
                    repo, name, revision=revision, local_dir=target, tqdm_class=_bounded(most)
                ),
                reporter,
            )
        except hub_errors.RemoteEntryNotFoundError:
            raise NotFromFairshot(repo, name) from None
        except _TooLong:
            raise DownloadDamaged(repo, name, f"is longer than {most:,} bytes, which it may have") from None
        return Path(path)

    with _hub_errors(repo, endpoint):
        commit = _with_retries(lambda: api.model_info(repo), reporter).sha or "main"
        try:
            manifest = read_model(
                fetch(MANIFEST, commit, MANIFEST_BYTES), Manifest, "what fairshot pushed, that"
            )
        except DamagedFile as problem:
            raise DownloadDamaged(repo, MANIFEST, problem.problem) from None
        if strange := set(manifest.files) - set(NAMES[manifest.kind]):
            named = ", ".join(f"{name!r:.60}" for name in sorted(strange)[:5])
            raise NotFromFairshot(repo, f"list of known files alone, but {named}")
        _check_room(target, sum(pushed.size for pushed in manifest.files.values()))
        for name, pushed in manifest.files.items():
            reporter.say(f"pulling {name}, {pushed.size / 1e6:,.1f} MB")
            if _describe(fetch(name, commit, pushed.size)) != pushed:
                raise DownloadDamaged(
                    repo, name, "is damaged: its checksum is another than when it was pushed"
                )
    for name in NEEDED if manifest.kind == "run" else (ARCHIVE,):
        if name not in manifest.files:
            raise NotFromFairshot(repo, name)
    return manifest


class _TooLong(Exception):
    """A hub sends more than a file may have."""


def _bounded(most: int) -> type[tqdm]:
    """Return a progress bar that ends a download of more bytes: a hub may send without an end."""

    class Bounded(tqdm):
        received = 0

        def update(self, n: float | None = 1) -> bool | None:
            self.received += int(n or 0)
            if self.received > most:
                raise _TooLong
            shown: bool | None = super().update(n)
            return shown

    return Bounded


def _check_room(folder: Path, size: int) -> None:
    """Refuse what does not fit on the disk before any of it is pulled."""
    if size > (free := shutil.disk_usage(folder).free):
        raise CannotWrite(folder, f"{size:,} bytes are to be pulled, and {free:,} are free", disk_full=True)


def _check_run(repo: str, folder: Path, manifest: Manifest) -> None:
    """Refuse a run whose files cannot be read here."""
    try:
        result = Result.read(folder)
        read_yaml_text(folder / RECIPE)
        for name in {MODEL, FEATURES} & set(manifest.files):
            check_tensors(folder / name)
        if TRAINING in manifest.files and result.training_sha256:
            digest = hashlib.sha256((folder / TRAINING).read_bytes()).hexdigest()
            if digest != result.training_sha256:
                raise DamagedFile(folder / TRAINING, "it is not the curve of this run")
    except UserError as problem:
        reason = str(problem).replace(f"{folder}/", "")
        raise DownloadDamaged(repo, "a file", f"cannot be used: {reason}") from problem


def _with_retries(call: Callable[[], Answer], reporter: Reporter) -> Answer:
    """Ask again, and wait longer each time, while a hub fails and may recover."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return call()
        except Exception as problem:
            if attempt == ATTEMPTS or not _may_recover(problem):
                raise
            reporter.say(f"the hub failed ({_reason(problem)}); trying again")
            time.sleep(WAIT * 2 ** (attempt - 1))
    raise AssertionError


def _may_recover(problem: BaseException) -> bool:
    """Whether an error is that of a server or a connection that failed."""
    if (answer := _http_error(problem)) is not None:
        return answer.response.status_code in LATER
    return not _offline(problem) and any(map(_is_transport_error, _causes(problem)))


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    """Go through an error and what it was raised from."""
    while problem is not None:
        yield problem
        problem = problem.__cause__


def _http_error(problem: BaseException) -> hub_errors.HfHubHTTPError | None:
    """Return the hub's answer with a status that an error was raised from, if it was."""
    return next((each for each in _causes(problem) if isinstance(each, hub_errors.HfHubHTTPError)), None)


def _is_transport_error(problem: BaseException) -> bool:
    """Whether it is of the library that carries the hub's requests, which has changed its name before."""
    names = ("RequestError", "ConnectionError", "InvalidURL")  # redirects without end or to nowhere too
    return any(kind.__name__ in names for kind in type(problem).__mro__)


def _offline(problem: BaseException) -> bool:
    """Whether the user has set the hub's library offline."""
    return any(isinstance(each, hub_errors.OfflineModeIsEnabled) for each in _causes(problem))


def _reason(problem: BaseException) -> str:
    if (answer := _http_error(problem)) is not None:
        return f"status {answer.response.status_code}"
    *_, first = _causes(problem)
    return str(first).partition("\n")[0] or type(first).__name__


@contextmanager
def _plain_uploads(endpoint: str) -> Iterator[None]:
    """Upload large files by HTTP to hubs other than the public one, which alone has the storage Xet."""
    before, host = defaults.HF_HUB_DISABLE_XET, urlparse(endpoint).hostname or ""
    defaults.HF_HUB_DISABLE_XET = before or host.removeprefix("www.") != urlparse(PUBLIC).hostname
    try:
        yield
    finally:
        defaults.HF_HUB_DISABLE_XET = before


@contextmanager
def _hub_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Turn the errors of the hub's library into ours."""
    try:
        yield
    except UserError:
        raise
    except hub_errors.HFValidationError as problem:
        raise BadRepoName(repo, str(problem).partition("\n")[0]) from None
    except Exception as problem:
        answer = _http_error(problem)
        # the public hub answers 401 for what is not there, to those who have not logged in
        if answer is not None and answer.response.headers.get("X-Error-Code") == "RepoNotFound":
            raise RepoMissing(repo, endpoint) from problem
        if answer is not None and answer.response.status_code in (401, 403):
            raise HubRefused(repo, endpoint, answer.response.status_code) from problem
        if answer is not None or _may_recover(problem) or _offline(problem):
            raise HubUnreachable(endpoint, _reason(problem)) from problem
        raise
