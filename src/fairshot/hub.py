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

from huggingface_hub import EvalResult, HfApi, ModelCardData
from huggingface_hub import constants as defaults
from huggingface_hub import errors as hub_errors
from pydantic import BaseModel, ConfigDict

from fairshot import benchmarks
from fairshot.benchmarks.image_folder import Split
from fairshot.documents import read_model, read_yaml_text, write_json
from fairshot.errors import DamagedFile, UserError
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import (
    FEATURES,
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
from fairshot.markdown import table
from fairshot.progress import SILENT, Reporter
from fairshot.reporting.measures import SESSION_MEASURES, SUMMARY_MEASURES
from fairshot.teaching import Store, export_archive, import_archive
from fairshot.teaching.database import DATABASE
from fairshot.teaching.errors import RunWithoutWeights
from fairshot.teaching.folders import check_free, new_folder
from fairshot.tensor_files import check_tensors

Kind = Literal["run", "store"]
Answer = TypeVar("Answer")

MANIFEST = "fairshot.json"  # what a repository holds, and the checksum of each file
CARD = "README.md"
ARCHIVE = "store.zip"
NEEDED = (RESULT, RECIPE, MODEL)  # of a run
OPTIONAL = (
    *(TRAINING, FEATURES, SPLIT, OWN_METHOD),
    *(TRADEOFF, TRADEOFF_PAGE, POISONING, POISONING_PAGE),
)
NAMES: dict[Kind, tuple[str, ...]] = {"run": (*NEEDED, *OPTIONAL), "store": (ARCHIVE,)}
ATTEMPTS = 5
WAIT = 1.0  # seconds before the second attempt; then twice as long each time
LATER = {408, 429, 500, 502, 503, 504}  # statuses of a server that may recover


class NothingToPush(UserError):
    """A folder is neither a finished run nor a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"{folder} is neither a finished run (it has no {RESULT}) nor a store")


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


class PushedFile(BaseModel):
    """A file as it was pushed."""

    model_config = ConfigDict(extra="forbid")

    sha256: str
    size: int


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
        size = sum(path.stat().st_size for path in staged.iterdir())
        reporter.say(
            f"pushing {len(list(staged.iterdir()))} files, {size / 1e6:,.1f} MB, to {endpoint}/{repo}"
        )
        write_atomically(staged / CARD, card.encode())
        api = HfApi(endpoint=endpoint)
        with _hub_errors(repo, endpoint):
            _insist(lambda: api.create_repo(repo, private=not public, exist_ok=True), reporter)
            _insist(
                lambda: api.upload_folder(repo_id=repo, folder_path=staged, commit_message="fairshot push"),
                reporter,
            )
    return f"{endpoint}/{repo}"


def pull(repo: str, folder: str | Path, *, endpoint: str | None = None, reporter: Reporter = SILENT) -> Kind:
    """Pull a run or a store into a new folder, whole or not at all; return which of them it is."""
    folder, endpoint = Path(folder), endpoint or defaults.ENDPOINT
    check_free(folder)
    with new_folder(folder) as temporary, tempfile.TemporaryDirectory(dir=temporary) as download:
        manifest = _download(HfApi(endpoint=endpoint), repo, Path(download), endpoint, reporter)
        if manifest.kind == "store":
            import_archive(Path(download) / ARCHIVE, Path(download) / "store")
            _move(Path(download) / "store", temporary)
        else:
            _check_run(repo, Path(download), manifest)
            for name in manifest.files:
                (Path(download) / name).rename(temporary / name)
    return manifest.kind


def _move(source: Path, target: Path) -> None:
    for path in source.iterdir():
        path.rename(target / path.name)


def _stage(source: Path, target: Path, repo: str, licence: str | None) -> str:
    """Put what is pushed into a folder; return the card."""
    if (source / DATABASE).is_file():
        kind: Kind = "store"
        export_archive(source, target / ARCHIVE)
        card = _store_card(source, repo, licence)
    elif (source / RESULT).is_file():
        kind = "run"
        _stage_run(source, target)
        card = _run_card(source, repo, licence)
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

    def fetch(name: str, revision: str) -> Path:
        try:
            path = _insist(
                lambda: api.hf_hub_download(repo, name, revision=revision, local_dir=target), reporter
            )
        except hub_errors.RemoteEntryNotFoundError:
            raise NotFromFairshot(repo, name) from None
        return Path(path)

    with _hub_errors(repo, endpoint):
        commit = _insist(lambda: api.model_info(repo), reporter).sha or "main"
        try:
            manifest = read_model(fetch(MANIFEST, commit), Manifest, "what fairshot pushed, that")
        except DamagedFile as problem:
            raise DownloadDamaged(repo, MANIFEST, problem.problem) from None
        if strange := set(manifest.files) - set(NAMES[manifest.kind]):
            raise NotFromFairshot(repo, f"list of known files alone, but {', '.join(sorted(strange))}")
        for name, pushed in manifest.files.items():
            reporter.say(f"pulling {name}, {pushed.size / 1e6:,.1f} MB")
            if _describe(fetch(name, commit)) != pushed:
                raise DownloadDamaged(
                    repo, name, "is damaged: its checksum is another than when it was pushed"
                )
    for name in NEEDED if manifest.kind == "run" else (ARCHIVE,):
        if name not in manifest.files:
            raise NotFromFairshot(repo, name)
    return manifest


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


def _insist(call: Callable[[], Answer], reporter: Reporter) -> Answer:
    """Ask again, and wait longer each time, while a hub fails in a way from which it may recover."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return call()
        except Exception as problem:
            if attempt == ATTEMPTS or not _may_recover(problem):
                raise
            reporter.say(f"the hub failed ({_reason(problem)}); trying again")
            time.sleep(WAIT * 2 ** (attempt - 1))
    raise AssertionError


def _may_recover(problem: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, is that of a server or a connection that failed."""
    while problem is not None:
        if isinstance(problem, hub_errors.HfHubHTTPError):
            return problem.response.status_code in LATER
        if isinstance(problem, hub_errors.OfflineModeIsEnabled):
            return False
        if _is_transport_error(problem):
            return True
        problem = problem.__cause__
    return False


def _is_transport_error(problem: BaseException) -> bool:
    """Whether it is of the library that carries the hub's requests, which has changed its name before."""
    return any(kind.__name__ in ("TransportError", "ConnectionError") for kind in type(problem).__mro__)


def _offline(problem: BaseException | None) -> bool:
    """Whether the user has set the hub's library offline."""
    while problem is not None and not isinstance(problem, hub_errors.OfflineModeIsEnabled):
        problem = problem.__cause__
    return problem is not None


def _reason(problem: BaseException) -> str:
    while problem.__cause__ is not None and not isinstance(problem, hub_errors.HfHubHTTPError):
        problem = problem.__cause__
    if isinstance(problem, hub_errors.HfHubHTTPError):
        return f"status {problem.response.status_code}"
    return str(problem).partition("\n")[0] or type(problem).__name__


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
        cause: BaseException | None = problem
        while cause is not None and not isinstance(cause, hub_errors.HfHubHTTPError):
            cause = cause.__cause__
        if cause is not None and cause.response.status_code in (401, 403):
            raise HubRefused(repo, endpoint, cause.response.status_code) from problem
        if isinstance(cause, hub_errors.RepositoryNotFoundError):
            raise RepoMissing(repo, endpoint) from problem
        if cause is not None or _may_recover(problem) or _offline(problem):
            raise HubUnreachable(endpoint, _reason(problem)) from problem
        raise


def _card(data: ModelCardData, title: str, *parts: str) -> str:
    return "\n\n".join([f"---\n{data.to_yaml()}\n---", f"# {title}", *parts]) + "\n"


def _licence_part(licence: str | None, what: str) -> str:
    chosen = f"Its licence is {licence}." if licence else "No licence was chosen for it."
    return f"## Licence\n\n{chosen} {what}"


def _run_card(run: Path, repo: str, licence: str | None) -> str:
    """Describe a run: results, how they were made, how to load it."""
    result = Result.read(run)
    known = benchmarks.DATASETS.get(result.benchmark)
    title = known.title if known else result.benchmark
    summary = [(each, each.pick(result.metrics)) for each in SUMMARY_MEASURES]
    data = ModelCardData(
        model_name=repo.rpartition("/")[2],
        license=licence,
        library_name="fairshot",
        pipeline_tag="image-classification",
        tags=["few-shot-class-incremental-learning", result.method],
        eval_results=[
            EvalResult("image-classification", result.benchmark, title, each.title, value)
            for each, value in summary
            if value is not None
        ],
    )
    sessions = [
        [str(number), *(_percent(each.pick(metrics)) for each in SESSION_MEASURES)]
        for number, metrics in enumerate(result.metrics.sessions)
    ]
    environment = ", ".join(f"{name} {number}" for name, number in result.environment.packages.items())
    return _card(
        data,
        f"{result.method} on {title}",
        f"Few-shot class-incremental learning by [fairshot](https://pypi.org/project/fairshot/): "
        f"{len(result.sessions[0])} base classes, then {len(result.sessions) - 1} sessions of new ones. "
        "Accuracies are in %, on test images of all classes seen so far.",
        "## Results",
        table(["session", *(each.title for each in SESSION_MEASURES)], sessions),
        table(
            ["measure", "value", "meaning"],
            [[each.title, _percent(value), each.meaning] for each, value in summary],
        ),
        "Calibration moved the classifiers by unlabelled test images (transductive)."
        if result.transductive
        else "No test image, labelled or not, changed the classifiers.",
        "## How to load",
        f"    pip install fairshot\n    fairshot pull {repo} my-run\n    fairshot report my-run\n"
        "    fairshot new my-store --from my-run      # teach it further classes",
        f"## How it was made\n\n    {result.command or 'fairshot run'}",
        f"Seed {result.seed}, on {result.environment.device}, Python {result.environment.python}: "
        f"{environment}. The recipe, with every setting:",
        f"```yaml\n{read_yaml_text(run / RECIPE).rstrip()}\n```",
        _licence_part(licence, f"The images of {title} are not part of it, and have a licence of their own."),
    )


def _store_card(folder: Path, repo: str, licence: str | None) -> str:
    """Describe a store: its classes, how to load it, what of photos it keeps."""
    with Store(folder) as store:
        classes = store.classes()
    data = ModelCardData(
        model_name=repo.rpartition("/")[2],
        license=licence,
        library_name="fairshot",
        pipeline_tag="image-classification",
        tags=["few-shot-learning", "teachable"],
    )
    rows = [
        [each.name, f"{each.photos} photos" if not each.base else f"trained on {each.trained_on}"]
        for each in classes
    ]
    return _card(
        data,
        f"A store of {len(classes)} classes",
        "A classifier of images that is taught by a few photos per class, with "
        "[fairshot](https://pypi.org/project/fairshot/).",
        "## How to load",
        f"    pip install fairshot\n    fairshot pull {repo} my-store\n"
        "    fairshot predict my-store photo.jpg\n    fairshot teach my-store NAME five-photos/",
        "## Classes",
        table(["class", "learnt from"], rows),
        "## What it holds\n\nThe weights of its network (safetensors), and of each photo its features and a "
        "thumbnail, but not the photo itself.",
        _licence_part(licence, "Thumbnails belong to whoever took the photos."),
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
