"""Requests about photos and classes that are not there: refused, and the store is as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.stores import drawings, make_store

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from fastapi.testclient import TestClient

from fairshot.server.app import build_app
from fairshot.teaching import Store
from support.servers import png

JSON = {"content-type": "application/json"}
IDS = [
    *("[-1]", "[0]", "[9223372036854775808]", "[1e400]", "[NaN]", f"[{'9' * 4000}]", f"[{'9' * 5000}]"),
    *('["x"]', "[1.5]", "[[]]", "{}", "null", "[]", '["\\ud800"]', '["\\u0000"]', "[" * 30_000),
    *(json.dumps(list(range(10**6, 10**6 + count))) for count in (1000, 1001)),
]
NAMES = ["", "nobody", "../yak", "\\ud800", "\\udfff x", "yak\\u0000", "\\u202e", "x" * 50_000, "unknown"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make_store(tmp_path / "store") as opened:
        opened.teach("yak", drawings("yak", 3))
        opened.teach("emu", drawings("emu", 3))
        yield opened


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(build_app(store), base_url="http://localhost") as opened:
        yield opened


def refused(client: TestClient, path: str, body: str) -> bool:
    """Send JSON as it is written here, and say whether it was refused; an error of the server is raised."""
    return 400 <= client.post(path, content=body, headers=JSON).status_code < 500


def test_ids_of_nothing_are_refused(client: TestClient, store: Store) -> None:
    before = store.digest()
    others = [photo.id for name in ("emu", "ant") for photo in store.photos(name)]
    for ids in (*IDS, json.dumps(others), json.dumps([store.photos("yak")[0].id, others[0]])):
        assert refused(client, "/api/photos/drop", f'{{"name": "yak", "photos": {ids}}}')
        for into in ("emu", "new"):
            assert refused(
                client, "/api/photos/move", f'{{"name": "yak", "photos": {ids}, "into": "{into}"}}'
            )
        assert refused(client, "/api/recent/teach", f'{{"name": "yak", "ids": {ids}}}')
    assert store.digest() == before


def test_names_of_nothing_are_refused(client: TestClient, store: Store) -> None:
    before = store.digest()
    photo = store.photos("yak")[0].id
    files = {"images": ("x.png", png(drawings("yak", 4)[3]))}
    asked = client.post("/api/predict", files=files).json()[0]["id"]
    for name in NAMES:
        given = f'"name": "{name}"'
        assert refused(client, "/api/forget", f"{{{given}}}")
        assert refused(client, "/api/rename", f'{{{given}, "new_name": "gnu"}}')
        assert refused(client, "/api/merge", f'{{{given}, "into": "yak"}}')
        assert refused(client, "/api/merge", f'{{"name": "yak", "into": "{name}"}}')
        assert refused(client, "/api/photos/drop", f'{{{given}, "photos": [{photo}]}}')
        assert refused(client, "/api/photos/move", f'{{{given}, "photos": [{photo}], "into": "yak"}}')
        if name != "nobody":  # a name that a class may have
            assert refused(client, "/api/rename", f'{{"name": "yak", "new_name": "{name}"}}')
            assert refused(client, "/api/recent/teach", f'{{{given}, "ids": ["{asked}"]}}')
            assert refused(
                client, "/api/photos/move", f'{{"name": "yak", "photos": [{photo}], "into": "{name}"}}'
            )
    assert store.digest() == before


def test_changes_at_once_are_undone_one_by_one(client: TestClient, store: Store, tmp_path: Path) -> None:
    """Moves, drops, renamings and undoes of many clients, while others ask for curves and for photos."""
    photos = {name: [photo.id for photo in store.photos(name)] for name in ("yak", "emu")}

    def work(number: int) -> set[int]:
        name, other = ("yak", "emu") if number % 2 else ("emu", "yak")
        answers = [
            client.post("/api/photos/move", json={"name": name, "photos": photos[name][:2], "into": other}),
            client.get("/api/learning-curves"),
            client.post("/api/photos/drop", json={"name": other, "photos": photos[name]}),
            client.post("/api/undo"),
            client.post("/api/rename", json={"name": name, "new_name": f"{name} {number}"}),
            client.get("/api/photos", params={"name": name}),
            client.post("/api/undo"),
        ]
        return {answer.status_code for answer in answers}

    with ThreadPoolExecutor(6) as clients:
        statuses = set[int]().union(*clients.map(work, range(12)))
    assert {200, 204} <= statuses <= {200, 204, 422}
    while client.post("/api/undo").status_code == 200:
        pass
    with make_store(tmp_path / "new") as new:
        assert store.digest() == new.digest()
