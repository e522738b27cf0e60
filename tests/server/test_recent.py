"""Pictures asked lately: what the server keeps of them, for whom and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairshot.teaching import Store
from support.servers import png
from support.stores import SIDE, drawings, make_store

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from fastapi.testclient import TestClient

from fairshot.server.app import build_app
from fairshot.server.limits import Limits

TOKEN = "a1b2c3d4e5f6a7b8"
SIGNED = {"authorization": f"Bearer {TOKEN}"}


def ask(client: TestClient, word: str, count: int, **query: Any) -> list[dict[str, Any]]:
    sent = [("images", (f"{i}.png", png(image))) for i, image in enumerate(drawings(word, count))]
    return client.post("/api/predict", params=query, files=sent, headers=SIGNED).json()


def here(store: Store, **limits: int) -> TestClient:
    return TestClient(build_app(store, limits=Limits(**limits)), base_url="http://localhost")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "store")


def test_they_are_shown_to_those_who_have_the_token(store: Store) -> None:
    with TestClient(build_app(store, TOKEN), base_url="http://store.example") as client:
        ask(client, "yak", 1)
        assert len(client.get("/api/recent", headers=SIGNED).json()) == 1
        for path in ("/api/recent", "/api/photos?name=ant", "/api/learning-curves"):
            assert client.get(path).status_code == 401
        for path in ("/api/recent/teach", "/api/recent/dismiss", "/api/photos/drop", "/api/photos/move"):
            assert client.post(path, json={}).status_code == 401
            foreign = {**SIGNED, "origin": "http://evil.example"}
            assert client.post(path, json={}, headers=foreign).status_code == 403
            large = {"name": "ant", "ids": ["x" * 70_000]}
            assert client.post(path, json=large, headers=SIGNED).status_code == 413


def test_their_number_and_size_are_bounded_and_none_outlives_the_server(store: Store) -> None:
    with here(store, recent_pictures=4) as client:
        assert [each["id"] for each in ask(client, "frame", 2, remember=False)] == [None, None]
        first = ask(client, "yak", 3)
        ask(client, "emu", 2)
        ask(client, "emu", 2)  # the same pixels are one picture
        recent = client.get("/api/recent").json()
        assert len(recent) == 4  # the oldest gave way
        assert first[0]["id"] not in [each["id"] for each in recent]
        gone = {"name": "yak", "ids": [first[0]["id"]]}
        assert client.post("/api/recent/teach", json=gone).status_code == 422
    with here(store, recent_bytes=2 * SIDE * SIDE + 1) as client:
        assert client.get("/api/recent").json() == []
        ask(client, "emu", 5)
        assert len(client.get("/api/recent").json()) == 2
    with here(store, recent_pictures=0) as client:
        assert ask(client, "emu", 1)[0]["id"] is None
        assert client.get("/api/recent").json() == []


def test_they_are_ordered_by_doubt_and_taught_as_their_files_would_be(store: Store, tmp_path: Path) -> None:
    with here(store) as client:
        asked = ask(client, "yak", 3) + ask(client, "emu", 2)
        recent = client.get("/api/recent?top=2").json()
        assert sorted(each["id"] for each in recent) == sorted(each["id"] for each in asked)
        doubts = [each["doubt"] for each in recent]
        assert doubts == sorted(doubts, reverse=True)
        for each in recent:
            prediction = each["prediction"]
            assert each["doubt"] == pytest.approx(1 - prediction["confidence"])
            assert len(prediction["top"]) == 2
        hostile = {"name": "../x", "ids": [recent[0]["id"]]}
        assert client.post("/api/recent/teach", json=hostile).status_code == 422
        named = {"name": "yak", "ids": [each["id"] for each in asked[:3]]}
        dry = client.post("/api/recent/teach", json={**named, "dry_run": True}).json()
        assert len(client.get("/api/recent").json()) == 5
        report = client.post("/api/recent/teach", json=named).json()
        assert report == dry | {"dry_run": False}
        assert report["sentence"].startswith("yak: 3 photos")
        with make_store(tmp_path / "fresh") as fresh:
            fresh.teach("yak", drawings("yak", 3))
            assert store.digest() == fresh.digest()
        client.post("/api/undo").raise_for_status()
        assert len(client.get("/api/recent").json()) == 5  # they have no class again
        client.post("/api/recent/teach", json=named).raise_for_status()
        left = client.get("/api/recent").json()
        assert sorted(each["id"] for each in left) == sorted(each["id"] for each in asked[3:])
        assert {each["prediction"]["top"][0]["name"] for each in left} <= {"ant", "bee", "cow", "yak"}
        client.post("/api/recent/dismiss", json={"ids": [left[0]["id"], "nothing"]}).raise_for_status()
        assert [each["id"] for each in client.get("/api/recent").json()] == [left[1]["id"]]
        for name in ("ant", "bee", "cow", "yak"):
            client.post("/api/forget", json={"name": name}).raise_for_status()
        assert client.get("/api/recent").json() == []  # no class, no answer to doubt


def test_photos_of_a_class_are_listed_moved_and_dropped(store: Store) -> None:
    with here(store) as client:
        store.teach("yak", drawings("yak", 3))
        photos = client.get("/api/photos?name=yak").json()
        assert [each["taught"] for each in photos] == [True] * 3
        assert photos[0]["thumbnail"].startswith("data:image/png;base64,")
        assert client.get("/api/photos?name=yak&limit=1&skip=1").json() == photos[1:2]
        assert not any(each["taught"] for each in client.get("/api/photos?name=ant").json())
        ids = [each["id"] for each in photos]
        moved = {"name": "yak", "photos": ids[:1], "into": "gnu"}
        assert client.post("/api/photos/move", json=moved).status_code == 204
        assert client.post("/api/photos/move", json=moved).status_code == 422  # it is not there any more
        assert client.post("/api/photos/drop", json={"name": "yak", "photos": ids[1:]}).status_code == 204
        assert store.snapshot().names == ["ant", "bee", "cow", "gnu"]
        curves = client.get("/api/learning-curves").json()
        assert [(each["name"], each["photos"], each["verdict"]) for each in curves] == [("gnu", 1, "more")]
        assert client.post("/api/undo").json()["sentence"] == "drop 2 photos of yak"
        curves = {each["name"]: each for each in client.get("/api/learning-curves").json()}
        assert len(curves["yak"]["accuracy"]) == 1
