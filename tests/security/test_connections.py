"""Nobody can occupy the server by connections that they open, or by sending or reading slowly."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.stores import make_store

pytest.importorskip("fastapi", reason="the extra serve is not installed")
import httpx

from fairshot.server.limits import Limits
from fairshot.teaching import Store
from support.servers import serving

TOKEN = "a1b2c3d4e5f6a7b8c9d0"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make_store(tmp_path / "store") as opened:
        yield opened


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def is_open(client: socket.socket) -> bool:
    """Say whether the server keeps a connection on which nothing has been answered."""
    client.settimeout(0.05)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("bound", ["connections", "address_connections"])
def test_silent_connections_give_way_to_new_ones(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(Limits, bound, 8)
    begun = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode()
    with serving(store, TOKEN) as port:
        busy = connect(port)
        busy.sendall(
            begun + b"\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 9\r\n\r\n--x"
        )
        health = f"http://127.0.0.1:{port}/api/health"
        assert httpx.get(health, timeout=60).status_code == 200  # what was sent before has been read, too
        clients = [connect(port) for _ in range(40)]
        assert httpx.get(health, timeout=60).status_code == 200
        assert sum(map(is_open, clients)) <= 8
        assert not is_open(clients[0])
        assert is_open(clients[-1])  # the latest
        assert is_open(busy)  # in the midst of a request
        for client in (busy, *clients):
            client.close()


def test_slow_clients_without_a_token_are_closed_early(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "header_seconds", 1.0)
    limits = Limits(header_seconds=1.0)
    monkeypatch.setattr("fairshot.server.app.Limits", lambda: limits)
    head = b" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nContent-Type: "
    begun = [
        b"",
        b"GET /api/cla",
        b"POST /login" + head + b"application/x-www-form-urlencoded\r\n\r\ntoken=",
        b"POST /api/predict" + head + b"multipart/form-data; boundary=x\r\n\r\n--x",
    ]
    with serving(store, TOKEN) as port:
        clients = [connect(port) for _ in begun]
        for client, sent in zip(clients, begun, strict=True):
            client.sendall(sent)
        for client in clients:
            client.settimeout(Limits.body_seconds - 10)  # earlier than those with a token
            try:
                while client.recv(1000):  # what was answered, then the end
                    pass
            except ConnectionError:
                pass
            client.close()


def test_a_client_that_does_not_read_is_closed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "reading_seconds", 0.5, raising=False)
    script = b"GET /swagger/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(store) as port:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(script * 20)
        time.sleep(4)
        client.settimeout(60)
        received = 0
        with suppress(ConnectionError):
            while chunk := client.recv(2**16):
                received += len(chunk)
        assert received < 20 * 2**20
        client.close()


@pytest.mark.parametrize(
    "kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_only_images_may_be_large(store: Store, kind: str) -> None:
    """Parsed, a body of many small values takes many times its size."""
    with serving(store) as port:
        for path in ("teach", "predict", "rename") if kind != "multipart/form-data" else ("rename",):
            url, body = f"http://127.0.0.1:{port}/api/{path}", b"a=&" * 100_000
            refused = httpx.post(url, content=body, headers={"content-type": kind}, timeout=60)
            assert refused.status_code == 413
