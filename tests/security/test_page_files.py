"""No client reads a file of the host through the page, and what clients upload does not stay or pile up."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from support.stores import network, store_spec

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from fastapi.testclient import TestClient

from fairshot.errors import UserError
from fairshot.server.app import build_app
from fairshot.server.decode_worker import Job, WorkerSettings, run_job
from fairshot.server.limits import Limits
from fairshot.teaching import Store
from fairshot.teaching.photos import Preparation

SECRET = "canary-4711"
OPENED: list[str] = []  # every file that this process opens


def _record_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        OPENED.append(os.fspath(arguments[0]))


sys.addaudithook(_record_open)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "secret.txt"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "store", store_spec(network(channels=3), ["ant", "bee"])) as opened:
        yield opened


@pytest.fixture
def client(store: Store, secret: Path) -> Iterator[TestClient]:
    with TestClient(build_app(store), base_url="http://localhost", follow_redirects=True) as opened:
        OPENED.clear()
        assert secret.is_file()
        yield opened


def named_files(path: Path) -> Iterator[Any]:
    """Yield what stands for a file on the host in requests to pages of Gradio, and plainer forms of it."""
    for meta in ({}, {"meta": {"_type": "gradio.FileData"}}):
        item = {"path": str(path), "url": None, "orig_name": "x.png", **meta}
        yield [item]
        yield ["name", [{"image": item, "caption": None}]]
    yield {"images": str(path), "photos": [str(path)], "name": "x", "path": str(path)}


def test_a_request_that_names_a_file_of_the_host_does_not_get_it_read(
    client: TestClient, secret: Path
) -> None:
    answers = []
    for number in range(8):
        for data in named_files(secret):
            queued = {"fn_index": number, "data": data, "session_hash": "x"}
            joined = client.post("/page/gradio_api/queue/join", json=queued)
            answers.append(joined.text)
            if joined.status_code == 200:
                answers.append(client.get("/page/gradio_api/queue/data?session_hash=x").text)
            answers.append(client.post(f"/page/gradio_api/run/{number}", json=queued).text)
    for path in ("/api/predict", "/api/teach"):
        for data in named_files(secret):
            answers.append(client.post(path, json=data).text)
        answers.append(client.post(path, data={"name": "x", "photos": str(secret), "images": secret}).text)
        for field in ("photos", "images"):
            given = (str(secret), b"")
            answers.append(client.post(path, data={"name": "x"}, files={field: given}).text)
    assert str(secret) not in OPENED
    assert not any(SECRET in answer for answer in answers)


@pytest.mark.parametrize(
    "prefix",
    [
        "/page/gradio_api/file=",
        "/page/gradio_api/proxy=file://",
        "/page/gradio_api/deep_link?session_hash=",
        "/static/",
        "/static/" + "../" * 30,
        "/static/" + "%2e%2e/" * 30,
        "/static//",
        "/",
    ],
)
def test_no_path_leads_out_of_the_files_of_the_page(client: TestClient, secret: Path, prefix: str) -> None:
    for path in (str(secret), quote(str(secret), safe=""), str(secret).replace("/", "\\")):
        assert client.get(f"{prefix}{path}").status_code in (404, 405, 422)
    assert str(secret) not in OPENED


def test_the_page_has_no_other_routes(store: Store) -> None:
    """A route that comes with a library is served only if it stands here."""
    app: Any = build_app(store, token="a" * 16).app
    paths = [getattr(route, "path", None) for route in app.routes]
    assert paths.count(None) <= 1  # newer versions of FastAPI keep the API as one router
    others = {path for path in paths if path is not None and not path.startswith("/api/")}
    swagger = {"/swagger/swagger-ui-bundle.js", "/swagger/swagger-ui.css", "/swagger/favicon-32x32.png"}
    assert others == {"/", "/login", "/static", "/openapi.json", "/docs"} | swagger


def test_uploaded_photos_are_gone_after_the_request(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(uploads))
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (800, 800, 3), np.uint8)
    Image.fromarray(noise).save(file, "PNG")  # too large to be kept in memory
    assert len(file.getvalue()) > 2**20
    sent = [("images", (f"{number}.png", file.getvalue())) for number in range(3)]
    assert client.post("/api/predict", files=sent).status_code == 200
    assert list(uploads.iterdir()) == []


def test_requests_that_arrive_together_are_bounded_together(store: Store) -> None:
    app = build_app(store, limits=Limits(arriving_bytes=100_000))
    with TestClient(app, base_url="http://localhost") as client:
        for _ in range(3):  # what a request took of the bound is given back after it, refused or not
            large = client.post("/api/predict", files={"images": ("x.png", b"\0" * 120_000)})
            assert large.status_code == 503
            small = client.post("/api/predict", files={"images": ("x.png", b"\0" * 60_000)})
            assert small.status_code == 422


def test_a_decoder_reads_no_file_that_an_image_names(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders are other processes; here one of their jobs runs in this one, where opened files are known."""
    for limit in ("limit_time", "limit_memory"):  # which would hold for the process of the tests
        monkeypatch.setattr(f"fairshot.server.decode_worker.{limit}", lambda _: None)
    settings = WorkerSettings(Preparation(3, 32, None), Limits())
    OPENED.clear()
    for content in (
        str(secret).encode(),
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink"><image xlink:href="file://{secret}"/></svg>'.encode(),
        f"push graphic-context\nimage over 0,0 0,0 '{secret}'".encode(),
        f"%!PS\n({secret}) (r) file 99 string readline pop =".encode(),
    ):
        reply, picture = run_job(Job(str(secret), len(content), decode=True), content, settings)
        assert reply.refused
        assert picture is None
        assert SECRET not in reply.refused
    assert str(secret) not in OPENED


def test_refusals_do_not_say_where_the_store_lies(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged() -> None:
        raise UserError(f"{store.folder / 'store.sqlite'} is damaged; so is {store.folder.resolve()}")

    monkeypatch.setattr(store, "undo", damaged)
    asked = [
        client.post("/api/forget", json={"name": "yeti"}),
        client.post("/api/rename", json={"name": "yeti", "new_name": "yak"}),
        client.post("/api/merge", json={"name": "yeti", "into": "ant"}),
        client.post("/api/undo"),
    ]
    for answer in asked:
        assert answer.status_code == 422
        assert str(store.folder.parent) not in answer.text
