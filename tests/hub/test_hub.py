"""Runs and stores over a hub, by real HTTP to a stand-in: pushed with a card, pulled, checked, used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from fairshot.cli.advice import with_advice
from fairshot.evaluation.experiment import RunOptions, run
from fairshot.evaluation.result import Result
from fairshot.evaluation.run_folder import MODEL, RECIPE, TRAINING
from fairshot.hub import sharing
from fairshot.hub.errors import (
    BadRepoName,
    DownloadDamaged,
    HubRefused,
    HubUnreachable,
    NotFromFairshot,
    NothingToPush,
    RepoMissing,
)
from fairshot.hub.sharing import ARCHIVE, CARD, MANIFEST, pull, push
from fairshot.recipes import load_recipe
from fairshot.reporting.measures import SUMMARY_MEASURES
from fairshot.teaching import Store
from fairshot.teaching.errors import RunWithoutWeights
from fairshot.training.hardware import choose_hardware
from support.commands import fairshot, set_environment
from support.hub_stand_in import TOKEN, Hub, running_hub
from support.stores import drawings, make_store

ENVIRONMENT = {"HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"}
LOGGED_IN = partial(set_environment, ENVIRONMENT)  # in the process of a command
SMALL = [
    *("benchmark.base_classes=4", "benchmark.way=2", "benchmark.sessions=1"),
    *("model.size=14", "training.epochs=1", "method.sr_width=16"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of SSS."""
    folder = tmp_path_factory.mktemp("hub") / "run"
    run(load_recipe("doodles/sss", SMALL), RunOptions(folder, choose_hardware("cpu"), command="fairshot run"))
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(sharing, "WAIT", 0.01)
    with running_hub() as served:
        yield served


def test_a_run_comes_back_as_it_was_and_is_taught_further(hub: Hub, finished: Path, tmp_path: Path) -> None:
    (finished / "private.txt").write_text("not known, so it stays here")
    assert push(finished, "me/doodles", licence="mit", endpoint=hub.url) == f"{hub.url}/me/doodles"
    assert hub.private["me/doodles"]
    files = hub.repos["me/doodles"]
    assert "private.txt" not in files
    assert not any(name.endswith((".pt", ".pth", ".pkl", ".bin")) for name in files)
    for name in (RECIPE, MODEL, TRAINING):
        assert files[name] == (finished / name).read_bytes()
    _check_card(files[CARD].decode(), Result.read(finished))

    there = ("--endpoint", hub.url)
    pulled = fairshot(tmp_path, "pull", "me/doodles", "mine", *there, before=LOGGED_IN)
    assert pulled.process.exitcode == 0, pulled.stderr
    assert "fairshot new STORE --from mine" in pulled.stdout
    assert {path.name for path in (tmp_path / "mine").iterdir()} == files.keys() - {CARD, MANIFEST}
    assert Result.read(tmp_path / "mine") == Result.read(finished)
    for command in (("new", "store", "--from", "mine"), ("report", "mine")):
        done = fairshot(tmp_path, *command)
        assert done.process.exitcode == 0, done.stderr


def _check_card(card: str, result: Result) -> None:
    _, head, text = card.split("---\n", 2)
    data = yaml.safe_load(head)
    assert (data["library_name"], data["license"], data["pipeline_tag"]) == (
        "fairshot",
        "mit",
        "image-classification",
    )
    values = {each["name"]: each["value"] for each in data["model-index"][0]["results"][0]["metrics"]}
    assert values[SUMMARY_MEASURES[0].title] == pytest.approx(result.metrics.overall_avg)
    assert "fairshot pull me/doodles" in text
    assert "base_classes: 4" in text  # the recipe
    assert f"{result.metrics.last:.2f}" in text


def test_a_store_comes_back_and_answers_as_before(hub: Hub, tmp_path: Path) -> None:
    with make_store(tmp_path / "store") as store:
        store.teach("okapi", drawings("okapi", 3))
        digest = store.digest()
    pushed = fairshot(
        tmp_path, "push", "store", "me/zoo", "--public", "--endpoint", hub.url, before=LOGGED_IN
    )
    assert pushed.process.exitcode == 0, pushed.stderr
    assert f"{hub.url}/me/zoo" in pushed.stdout
    assert not hub.private["me/zoo"]
    assert set(hub.repos["me/zoo"]) == {ARCHIVE, CARD, MANIFEST}
    assert "| okapi | 3 photos |" in hub.repos["me/zoo"][CARD].decode()
    assert pull("me/zoo", tmp_path / "copy", endpoint=hub.url) == "store"
    with Store(tmp_path / "copy") as copy:
        assert copy.digest() == digest
        assert copy.predict(drawings("okapi", 1))[0].answer is not None


def test_a_hub_that_fails_and_recovers_is_asked_again(hub: Hub, finished: Path, tmp_path: Path) -> None:
    hub.failing.update(create=2, commit=1)
    push(finished, "me/again", endpoint=hub.url)
    assert (hub.asked["create"], hub.asked["commit"]) == (3, 2)
    hub.failing.update(info=1)
    pull("me/again", tmp_path / "run", endpoint=hub.url)
    hub.failing.update(info=99)
    with pytest.raises(HubUnreachable) as failed:
        pull("me/again", tmp_path / "other", endpoint=hub.url)
    assert failed.value.reason == "status 503"
    assert hub.asked["info"] == 2 + sharing.ATTEMPTS
    assert not (tmp_path / "other").exists()


def test_what_a_hub_refuses_or_does_not_have_is_said(
    hub: Hub, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RepoMissing) as missing:
        pull("me/none", tmp_path / "run", endpoint=hub.url)
    assert (missing.value.repo, missing.value.endpoint) == ("me/none", hub.url)
    with pytest.raises(BadRepoName) as misnamed:
        pull("a/b/c", tmp_path / "run", endpoint=hub.url)
    assert misnamed.value.repo == "a/b/c"
    hub.repos["me/foreign"] = {"config.json": b"{}"}
    with pytest.raises(NotFromFairshot, match=MANIFEST):
        pull("me/foreign", tmp_path / "run", endpoint=hub.url)
    monkeypatch.setenv("HF_TOKEN", "wrong")
    for call in (
        lambda: pull("me/foreign", tmp_path / "run", endpoint=hub.url),
        lambda: push(finished, "me/foreign", endpoint=hub.url),
    ):
        with pytest.raises(HubRefused, match="HF_TOKEN") as refused:
            call()
        assert refused.value.status == 401
    monkeypatch.setattr(sharing, "ATTEMPTS", 1)
    with pytest.raises(HubUnreachable) as nobody:
        push(finished, "me/run", endpoint="http://127.0.0.1:1")
    assert with_advice(nobody.value, {"--endpoint"}).endswith("; or give another --endpoint")
    assert not (tmp_path / "run").exists()


def test_a_damaged_download_leaves_nothing(hub: Hub, finished: Path, tmp_path: Path) -> None:
    push(finished, "me/run", endpoint=hub.url)
    for name in (MODEL, MANIFEST, TRAINING):
        hub.damaged = name
        with pytest.raises(DownloadDamaged) as damaged:
            pull("me/run", tmp_path / "run", endpoint=hub.url)
        assert damaged.value.file == name
    hub.damaged = ""
    files = hub.repos["me/run"]
    files[MANIFEST] = files[MANIFEST].replace(b'"recipe.yaml"', b'"../recipe.yaml"')
    with pytest.raises((NotFromFairshot, DownloadDamaged)):
        pull("me/run", tmp_path / "run", endpoint=hub.url)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_run_and_no_store_is_not_pushed(hub: Hub, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(NothingToPush):
        push(tmp_path, "me/nothing", endpoint=hub.url)
    shutil.copytree(finished, tmp_path / "light")
    (tmp_path / "light" / MODEL).unlink()
    with pytest.raises(RunWithoutWeights):
        push(tmp_path / "light", "me/light", endpoint=hub.url)
    assert not hub.repos
