"""No request is parsed for long: others are answered by the same thread."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hostile_images import photo
from support.stores import network, store_spec

pytest.importorskip("fastapi", reason="the extra serve is not installed")
import socket

import httpx
from fastapi.testclient import TestClient

from fairshot.server.app import build_app
from fairshot.server.limits import Limits
from fairshot.teaching import Store
from support.servers import serving

MULTIPART = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="images"; filename="%s"\r\n\r\n%s\r\n'
CHUNKED = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: %s\r\n\r\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "store", store_spec(network(channels=3), ["ant", "bee"])) as opened:
        yield opened


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(build_app(store), base_url="http://localhost") as opened:
        yield opened


def send(client: TestClient, content: bytes, kind: str = MULTIPART) -> int:
    return client.post("/api/predict", content=content, headers={"content-type": kind}).status_code


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "utf-7", "utf-16", '"UTF-7"'])
def test_forms_are_read_as_utf_8_alone(client: TestClient, charset: str) -> None:
    """A megabyte of Punycode takes a minute; names in UTF-7 may be no text that can be answered with."""
    assert send(client, PART % (b"+2AA-", b"no image") + b"--x--", f"{MULTIPART}; charset={charset}") == 400
    plain = PART % ("naïve.jpg".encode(), photo(80, 60)) + b"--x--"
    for usual in ("", "; charset=utf-8", "; charset=UTF-8"):
        assert send(client, plain, MULTIPART + usual) == 200


def test_boundaries_between_parts_are_counted(client: TestClient) -> None:
    """Also those that turn out to be none, each of which the parser looks at byte by byte."""
    parts = (PART % (b"x.jpg", photo(80, 60))) * Limits.files
    assert send(client, parts + b"--x--") == 200
    assert send(client, PART % (b"x.jpg", b"\r\n--x?" * (Limits.parts + 1)) + b"--x--") == 413
    assert send(client, (PART % (b"x.jpg", b"")) * (Limits.parts + 2) + b"--x--") == 413


def talk(port: int, *messages: bytes) -> bytes:
    """Send messages, each after something was answered to the one before, and return all answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        answers = b""
        for message in messages:
            client.sendall(message)
            answers += client.recv(2**16)
        return answers


def test_a_body_of_tiny_chunks_is_refused(store: Store) -> None:
    tiny = b"1\r\nA\r\n" * (Limits.tiny_chunks + 1)
    with serving(store) as port:
        assert talk(port, CHUNKED % (b"/api/predict", MULTIPART.encode()) + tiny).startswith(b"HTTP/1.1 400 ")
        body = PART % (b"x.jpg", photo(800, 600)) + b"--x--"
        size = Limits.chunk_bytes
        for chunk in (size, size * 16):
            chunks = (body[start : start + chunk] for start in range(0, len(body), chunk))
            url, kind = f"http://127.0.0.1:{port}/api/predict", {"content-type": MULTIPART}
            assert httpx.post(url, content=chunks, headers=kind, timeout=60).status_code == 200


def test_nonsense_after_an_answer_is_no_error_of_the_server(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    begun = CHUNKED % (b"/nothing", b"text/plain") + b"1\r\nA\r\n"
    with serving(store) as port:
        assert talk(port, begun, b"no chunk\r\n").startswith(b"HTTP/1.1 404 ")
        assert talk(port, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
