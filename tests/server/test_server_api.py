"""The API in this process: what it answers, what it refuses, and that refusals leave no trace."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import select
import signal
import socket
import struct
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from support.servers import decoders, png, serving
from support.stores import drawings, make_store

pytest.importorskip("fastapi", reason="the extra serve is not installed")
import httpx
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from fairshot.errors import UserError
from fairshot.server import guard
from fairshot.server.app import build_app
from fairshot.server.batching import Batcher
from fairshot.server.decoding import Turns
from fairshot.server.errors import Refused
from fairshot.server.limits import Limits
from fairshot.server.serving import choose_token
from fairshot.teaching import Store

TOKEN = "a1b2c3d4e5f6a7b8c9d0"
LIMITS = Limits(request_bytes=400_000, file_bytes=150_000, pixels=1_000_000, side=3000)


def files(word: str, count: int, field: str = "photos") -> list:
    return [(field, (f"{index}.png", png(image))) for index, image in enumerate(drawings(word, count))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(build_app(store, limits=LIMITS), base_url="http://localhost") as opened:
        yield opened


@pytest.fixture(scope="module")
def attacked_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that no refused request may change, so that many tests may share it."""
    with make_store(tmp_path_factory.mktemp("attacked") / "store") as opened:
        yield opened


@pytest.fixture(scope="module")
def attacked(attacked_store: Store) -> Iterator[TestClient]:
    with TestClient(build_app(attacked_store, limits=LIMITS), base_url="http://localhost") as opened:
        yield opened


def test_teach_ask_and_undo(client: TestClient, store: Store) -> None:
    assert client.get("/api/health").json()["status"] == "ok"
    dry = client.post("/api/teach", data={"name": "yak", "dry_run": "true"}, files=files("yak", 3)).json()
    assert dry["dry_run"]
    assert "yak" not in store.snapshot().names
    report = client.post("/api/teach", data={"name": " yak "}, files=files("yak", 3)).json()
    assert report == dry | {"dry_run": False}
    assert report["sentence"].startswith("yak: 3 photos, closest to ")
    assert report["photos"] == 3
    answers = client.post("/api/predict?top=2", files=files("yak", 2, "images")).json()
    expected = store.predict(drawings("yak", 2), top=2)
    assert [each["top"][0]["name"] for each in answers] == [each.top[0].name for each in expected]
    assert all(len(each["top"]) == 2 for each in answers)
    assert [each["sentence"] for each in answers] == [each.sentence() for each in expected]
    assert [each["remark"] for each in answers] == [each.remark() for each in expected]
    assert len(client.get("/api/thumbnails", params={"name": "yak", "limit": 2}).json()) == 2
    assert client.get("/api/thumbnails?name=nobody").json() == []
    client.post("/api/rename", json={"name": "yak", "new_name": "ox"}).raise_for_status()
    client.post("/api/merge", json={"name": "ox", "into": "bee"}).raise_for_status()
    client.post("/api/forget", json={"name": "bee"}).raise_for_status()
    assert [each["name"] for each in client.get("/api/classes").json()] == ["ant", "cow"]
    undone = [client.post("/api/undo").json()["sentence"] for _ in range(4)]
    assert undone == ["forget bee", "merge ox into bee", "rename yak to ox", "teach yak, 3 photos"]
    assert client.post("/api/undo").status_code == 422
    assert len(client.get("/api/history?limit=3").json()) == 3
    assert client.get("/api/balance").json()["base_images"] == 12
    metrics = client.get("/api/metrics").text
    assert "fairshot_classes 3.0" in metrics
    assert 'fairshot_requests_total{path="/api/undo",status="422"} 1.0' in metrics
    assert "fairshot_teachings_total 1.0" in metrics


def bomb(width: int, height: int) -> bytes:
    """A small file that declares, and unpacks to, very many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1) * min(height, 2000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def slipping_zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("../../outside.png", png(drawings("slip", 1)[0]))
    return file.getvalue()


GOOD = png(drawings("good", 1)[0])
HOSTILE = {
    "bomb": [("x.png", bomb(60_000, 60_000))],
    "smaller bomb": [("x.png", bomb(2000, 2000))],
    "thin": [("x.png", png(np.zeros((1, 2000, 1), np.uint8)))],
    "long": [("x.png", png(np.zeros((3200, 300, 1), np.uint8)))],
    "truncated": [("x.png", GOOD[: len(GOOD) // 2])],
    "empty": [("x.png", b"")],
    "text": [("x.png", b"GIF89a but not really")],
    "wrong type": [("x.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>")],
    "script": [("x.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage")],
    "zip slip": [("x.zip", slipping_zip())],
    "one bad among good": [("1.png", GOOD), ("2.png", b"bad")],
    "climbing file name": [("../../x.png", GOOD)],
    "absolute file name": [("/etc/x.png", GOOD)],
    "large file": [("x.png", GOOD + b"\0" * 200_000)],
    "large request": [(f"{index}.png", GOOD + b"\0" * 100_000) for index in range(6)],
    "21 files": [(f"{index}.png", GOOD) for index in range(21)],
    "10,000 files": [("x", b"")] * 10_000,
    "no file": [],
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize(("path", "field"), [("/api/teach", "photos"), ("/api/predict", "images")])
def test_hostile_uploads_are_refused_without_a_trace(
    attacked: TestClient, attacked_store: Store, path: str, field: str, case: str
) -> None:
    before = state(attacked_store)
    sent = [(field, item) for item in HOSTILE[case]]
    response = attacked.post(path, data={"name": "evil"}, files=sent)
    assert 400 <= response.status_code < 500, response.text
    assert response.json()["detail"]
    assert state(attacked_store) == before
    assert attacked.post("/api/predict", files=files("yak", 1, "images")).status_code == 200


def test_a_file_that_is_no_image_is_called_by_its_name(client: TestClient) -> None:
    sent = [("photos", ("1.png", GOOD)), ("photos", ("my cat.jpg", b"bad"))]
    refused = client.post("/api/teach", data={"name": "cat"}, files=sent)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(
        "my cat.jpg: this file cannot be read as an image (it is damaged"
    )
    assert "BytesIO" not in refused.text


@pytest.mark.parametrize(
    "name", ["", "  ", "../../etc/passwd", "..\\x", "/root", "a\0b", "unknown", "n" * 101]
)
def test_hostile_names_are_refused_without_a_trace(
    attacked: TestClient, attacked_store: Store, name: str
) -> None:
    before = state(attacked_store)
    assert attacked.post("/api/teach", data={"name": name}, files=files("yak", 2)).status_code == 422
    assert attacked.post("/api/rename", json={"name": "ant", "new_name": name}).status_code == 422
    assert attacked.post("/api/forget", json={"name": name}).status_code == 422
    assert state(attacked_store) == before


def state(store: Store) -> tuple:
    """All that a request could leave behind."""
    around = sorted(
        path.name for path in store.folder.parent.rglob("*") if not path.name.endswith(("-wal", "-shm"))
    )
    return store.digest(), store.history(), around


def test_a_body_without_announced_length_is_cut_off(client: TestClient, store: Store) -> None:
    def endless() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="images"; filename="x"\r\n\r\n'
        for _ in range(100):
            yield b"\0" * 10_000

    response = client.post(
        "/api/predict", content=endless(), headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert response.status_code == 413
    assert client.post("/api/predict", content=b"", headers={"content-length": "-1"}).status_code >= 400


def test_slow_bodies_are_given_up(store: Store) -> None:
    app = build_app(store, limits=Limits(body_seconds=0.05))
    sent: list[dict] = []

    async def receive() -> dict:
        await asyncio.sleep(10)
        return {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"multipart/form-data; boundary=x")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/predict",
        "headers": headers,
        "query_string": b"",
    }
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 5))
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [408]


@pytest.fixture
def short_timeout(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Serve on a port of this machine, and give requests a moment to begin."""
    monkeypatch.setattr(Limits, "header_seconds", 1.5)
    with serving(store) as port:
        yield port


@pytest.mark.parametrize("earlier", [0, 2])
def test_every_request_of_a_connection_must_begin_in_time(short_timeout: int, earlier: int) -> None:
    request = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", short_timeout), timeout=30) as client:
        for _ in range(earlier):
            client.sendall(request + b"\r\n")
            received = b""
            while not received.endswith(b"}"):
                received += client.recv(1000) or pytest.fail("closed before the answer")
        client.sendall(request + b"X: ")
        for _ in range(200):  # a byte now and then, for ten seconds at least
            try:
                client.sendall(b"x")
                if select.select([client], [], [], 0.05)[0] and client.recv(1) == b"":
                    break
            except ConnectionError:
                break
        else:
            pytest.fail("the head of a request may take for ever")


def test_clients_without_the_token_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = guard.hmac.compare_digest
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    with TestClient(build_app(store, TOKEN), base_url="http://store.example") as client:
        assert client.get("/api/health").status_code == 200
        assert client.get("/api/classes").status_code == 401
        for wrong in ("", TOKEN[:-1], TOKEN + "0", "ü" * 20):
            given = {"authorization": f"Bearer {wrong}".encode()}
            assert client.get("/api/classes", headers=given).status_code == 401
        assert client.get("/api/classes", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/api/classes", headers={"cookie": 'fairshot_token="; x'}).status_code == 401
        assert client.get("/", follow_redirects=False).headers["location"] == "/login"
        assert client.get("/static/page.css").status_code == 200
        for path in ("/static", "/static/../api/classes", "//api/classes", "/docs", "/openapi.json"):
            assert client.get(path).status_code in (401, 404)
        assert "token" in client.get("/login").text
        assert client.post("/login", data={"token": "wrong"}).status_code == 401
        assert client.post("/login", data={"token": "wrong" * 1000}).status_code == 413
        entered = client.post("/login", data={"token": TOKEN}, follow_redirects=False)
        assert entered.status_code == 303
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert "samesite=strict" in entered.headers["set-cookie"].lower()
        assert client.get("/api/classes").status_code == 200  # by the cookie
    assert len(compared) >= 5  # every comparison takes the same time
    assert all(token == TOKEN.encode() for _, token in compared)


def test_other_web_sites_do_not_come_in(client: TestClient, store: Store) -> None:
    before = state(store)
    assert client.get("/api/classes", headers={"host": "evil.example"}).status_code == 421
    assert client.post("/api/undo", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/api/undo", headers={"origin": "null"}).status_code == 403
    assert state(store) == before
    response = client.get("/api/classes", headers={"origin": "http://localhost"})
    assert "default-src 'self'" in response.headers["content-security-policy"]
    assert "unsafe" not in response.headers["content-security-policy"]
    assert "access-control-allow-origin" not in response.headers


def test_made_up_paths_are_not_counted_apart(store: Store) -> None:
    """Whoever is not let in, or asks for what is not there, must not fill the memory with counters."""
    with TestClient(build_app(store, TOKEN), base_url="http://store.example") as client:
        known = {"authorization": f"Bearer {TOKEN}"}
        for number in range(20):
            assert client.get(f"/api/{number}").status_code == 401
            assert client.get(f"/api/{number}", headers=known).status_code == 404
        assert client.put("/api/classes", headers=known).status_code == 405
        counted = client.get("/api/metrics", headers=known).text
    paths = {
        line.split('"')[1] for line in counted.splitlines() if line.startswith("fairshot_requests_total")
    }
    assert paths == {"refused", "page", "/api/classes"}


def test_addresses_and_tokens() -> None:
    assert choose_token("127.0.0.1", None) is None
    assert choose_token("::1", None) is None
    assert choose_token("localhost", TOKEN) == TOKEN
    assert len(choose_token("0.0.0.0", None) or "") == 64
    assert choose_token("0.0.0.0", None) != choose_token("0.0.0.0", None)
    for wrong in ("short", "with a blank in it, and long"):
        with pytest.raises(UserError, match="token"):
            choose_token("0.0.0.0", wrong)


def test_images_are_computed_together() -> None:
    sizes = []

    async def compute(items: list[int]) -> list[int]:
        sizes.append(len(items))
        await asyncio.sleep(0.01)
        if 13 in items:
            raise UserError("thirteen")
        return [2 * item for item in items]

    async def submit_all() -> None:
        batcher = Batcher(compute, batch=4, waiting=10)
        assert await asyncio.gather(*(batcher.submit(number) for number in range(10))) == list(
            range(0, 20, 2)
        )
        assert sizes == [4, 4, 2]
        outcomes = await asyncio.gather(
            *(batcher.submit(number) for number in range(100, 112)), return_exceptions=True
        )
        assert [type(each) for each in outcomes[10:]] == [Refused, Refused]  # at once, not after a while
        with pytest.raises(UserError, match="thirteen"):
            await batcher.submit(13)
        gone = asyncio.create_task(batcher.submit(1))
        await asyncio.sleep(0)
        gone.cancel()
        assert await batcher.submit(2) == 4
        order: list[int] = []
        many = [batcher.submit(number, rank) for rank, number in enumerate(range(20, 28))]
        one = batcher.submit(30)  # whoever has one image does not wait for all of those who have many
        for task in [asyncio.create_task(each) for each in (*many, one)]:
            task.add_done_callback(lambda done: order.append(done.result() // 2))
        while len(order) < 9:
            await asyncio.sleep(0.01)
        assert order.index(30) < 4
        await batcher.close()

    asyncio.run(submit_all())


def test_the_cheapest_image_is_decoded_first_and_large_ones_leave_room() -> None:
    order: list[int] = []

    async def decode(turns: Turns, cost: int, seconds: float = 0.01, wait: float = 5) -> None:
        async with turns.turn(cost, wait):
            order.append(cost)
            await asyncio.sleep(seconds)

    async def decode_all() -> None:
        turns = Turns(2, large=100)
        large = [asyncio.create_task(decode(turns, 1000 - number, 0.1)) for number in range(3)]
        await asyncio.sleep(0)
        assert order == [1000]  # one of two places stays free
        await asyncio.gather(*(decode(turns, cost) for cost in (50, 70, 30, 60)))
        assert order == [1000, 50, 30, 60, 70]
        with pytest.raises(Refused) as refused:
            await decode(turns, 2000, wait=0.01)
        assert refused.value.status == 503
        given_up = asyncio.create_task(decode(turns, 500))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(*large)
        assert order[5:] == [998, 999]
        await asyncio.gather(decode(turns, 1), decode(turns, 2))  # every place was given back

    asyncio.run(decode_all())


def test_slow_images_keep_nobody_from_reading(store: Store) -> None:
    with serving(store) as port, ThreadPoolExecutor(4) as clients:
        url = f"http://127.0.0.1:{port}/api"

        def predict(number: int) -> int:
            return httpx.post(f"{url}/predict", files=files("yak", 1, "images"), timeout=60).status_code

        assert list(clients.map(predict, range(2))) == [200, 200]
        for process in decoders(os.getpid()):
            os.kill(process, signal.SIGSTOP)
        try:
            slow = [clients.submit(predict, number) for number in range(4)]
            for path in ("classes", "history"):
                assert httpx.get(f"{url}/{path}", timeout=60).status_code == 200
            assert not any(each.done() for each in slow)
        finally:
            for process in decoders(os.getpid()):
                os.kill(process, signal.SIGCONT)
        assert [each.result() for each in slow] == [200] * 4


def test_the_api_keeps_to_its_description(store: Store) -> None:
    """Whatever is asked of any operation, the response is one that the description announces."""
    with serving(store) as port:
        description = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        operations = [result.ok() for result in description.get_all_operations()]
        assert len(operations) == 19
        for operation, mode in itertools.product(operations, schemathesis.GenerationMode):
            if mode is schemathesis.GenerationMode.NEGATIVE and not (operation.body or operation.query):
                continue  # there is nothing to get wrong

            @settings(
                max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def holds(case: schemathesis.Case) -> None:
                response = case.call()
                excluded = [positive_data_acceptance]  # random bytes are no images
                if response.status_code == 413:  # too large to look at: rejected too
                    excluded.append(negative_data_rejection)
                case.validate_response(response, excluded_checks=excluded)

            holds()
