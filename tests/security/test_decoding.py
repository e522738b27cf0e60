"""No image file stops the server: decoding has limits on time and memory, and can be ended at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support.hostile_images import encoded, flat, photo, progressive
from support.stores import network, store_spec

pytest.importorskip("fastapi", reason="the extra serve is not installed")
import httpx
from fastapi.testclient import TestClient

from fairshot.benchmarks.images import SCAN_LIMIT, read_header, read_image
from fairshot.errors import BadImage
from fairshot.server.app import build_app
from fairshot.server.limits import Limits
from fairshot.teaching import Store
from fairshot.teaching.photos import ASPECT, INK_SIDE, Preparation, as_drawing
from support.servers import Served, decoders

LARGE = 8000, 5000  # the most pixels that are allowed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "store", store_spec(network(channels=3), ["ant", "bee"])) as opened:
        yield opened


def predict(client: TestClient, content: bytes, name: str = "my cat.jpg") -> httpx.Response:
    return client.post("/api/predict", files={"images": (name, content)})


def test_scans_are_counted_before_an_image_is_decoded(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(2**20)
    assert noise.count(b"\xff\xda") > 5
    ordinary = {1: encoded(Image.new("RGB", (50, 40)), "JPEG"), 10: photo_with_scans()}
    for scans, content in ordinary.items():
        assert read_header(content, "x").scans == scans
        assert read_header(content + noise, "x").scans == scans  # phones append films
        comment = b"\xff\xfe" + (1002).to_bytes(2) + b"\xff\xda" * 500
        assert read_header(content[:2] + comment + content[2:], "x").scans == scans
    assert read_header(progressive(SCAN_LIMIT), "x").scans == SCAN_LIMIT
    path = tmp_path / "scans.jpg"
    path.write_bytes(progressive(SCAN_LIMIT + 1))
    with pytest.raises(BadImage, match=r"scans\.jpg: .* scans"):
        read_image(path)


def photo_with_scans() -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    return encoded(Image.fromarray(noise), "JPEG", progressive=True)


@pytest.mark.parametrize("attack", ["scans", "markers", "chunks"])
def test_files_that_take_minutes_are_refused_at_once(store: Store, attack: str) -> None:
    content = {
        "scans": lambda: progressive(190_000),
        "markers": lambda: b"\xff\xd8" + b"\xff\xfe\0\2" * 3_000_000,
        "chunks": lambda: flat(9, 9, "PNG")[:33] + b"\0\0\0\0abCd\0\0\0\0" * 1_000_000,
    }[attack]()
    assert len(content) < Limits.file_bytes
    with TestClient(build_app(store), base_url="http://localhost") as client:
        assert predict(client, photo()).status_code == 200
        refused = predict(client, content)
        assert refused.status_code == 422
        assert refused.json()["detail"].startswith("my cat.jpg: ")
        assert f"{Limits.decoder_seconds:g} s" not in refused.json()["detail"]  # its header was enough
        assert predict(client, photo()).status_code == 200


@pytest.mark.parametrize(
    "limits", [Limits(decoder_seconds=0.1), Limits(large_decoder_bytes=60 * 2**20)], ids=["time", "memory"]
)
def test_an_image_over_a_limit_is_named_and_others_go_on(store: Store, limits: Limits) -> None:
    with TestClient(build_app(store, limits=limits), base_url="http://localhost") as client:
        for content in (flat(*LARGE, "PNG"), flat(*LARGE, "JPEG", progressive=True)):
            refused = predict(client, content)
            assert refused.status_code == 422
            assert refused.json()["detail"].startswith("my cat.jpg: ")
            assert predict(client, photo(80, 60)).status_code == 200


def test_a_decoder_does_not_know_the_token(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRSHOT_TOKEN", "canary-4711")
    with TestClient(build_app(store), base_url="http://localhost") as client:
        assert predict(client, photo(80, 60)).status_code == 200
        (process,) = decoders(os.getpid())
        for file in ("environ", "cmdline"):
            assert b"canary-4711" not in Path(f"/proc/{process}/{file}").read_bytes()


def test_a_decoder_that_hangs_or_dies_is_replaced(store: Store) -> None:
    limits = Limits(decoder_header_seconds=0.2)  # of computing; a hanging process gets some times as much
    with TestClient(build_app(store, limits=limits), base_url="http://localhost") as client:
        for ending in (signal.SIGSTOP, signal.SIGKILL, signal.SIGSEGV):
            assert predict(client, photo(80, 60)).status_code == 200
            (process,) = decoders(os.getpid())
            os.kill(process, ending)
            refused = predict(client, photo(80, 60))
            assert refused.status_code == 422
            assert refused.json()["detail"].startswith("my cat.jpg: ")
        assert predict(client, photo(80, 60)).status_code == 200
    assert decoders(os.getpid()) == []


def test_ctrl_c_ends_a_server_in_time_while_images_are_decoded(store: Store) -> None:
    served = Served.start(store.folder).wait()
    images = [("images", ("x", flat(*LARGE, "PNG", "RGBA")))] * 20
    scans = [("images", ("x", progressive(190_000)))]

    def attack(files: list) -> None:
        with suppress(httpx.HTTPError):  # until the server is gone
            while True:
                httpx.post(f"{served.url}/api/predict", files=files, timeout=60)

    with ThreadPoolExecutor(4) as attackers:
        try:
            for files in (images, images, scans, scans):
                attackers.submit(attack, files)
            while not (workers := decoders(served.process.pid)):
                assert served.process.poll() is None
                time.sleep(0.1)
            served.process.send_signal(signal.SIGINT)
            assert served.process.wait(120) == 0
        finally:
            served.process.kill()
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_decoder_is_small_and_starts_soon() -> None:
    """Without torch, whose import takes seconds and hundreds of megabytes."""
    program = """
        import sys
        import fairshot.server.decode_worker
        assert "torch" not in sys.modules
        print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
    """
    done = subprocess.run(
        [sys.executable, "-c", "if True:" + program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 100_000  # kilobytes


def test_long_photos_and_drawings_are_bounded_before_they_fill_memory() -> None:
    preparation = Preparation(3, 32, drawing_side=None)
    for shape in ((70, 560_000, 3), (560_000, 70, 3), (40, 9_999, 3), (47, 9_999, 3)):
        picture = preparation.picture(np.zeros(shape, np.uint8))
        assert picture.nbytes <= preparation.most_bytes
        assert max(picture.shape[:2]) <= ASPECT * min(picture.shape[:2]) + 1
    line = np.full((3, 300_000, 1), 255, np.uint8)
    line[:, 100:-100] = 0  # the square of its length would have 90 GB
    assert as_drawing(line, 28).shape == (28, 28, 1)
    long = np.zeros((INK_SIDE + 1000, 300, 1), np.uint8)
    long[10:-10, 10:-10] = 255
    drawing = as_drawing(long, 28)
    assert drawing[:, 0].all()
    assert not drawing[:, 3:].any()


def test_a_long_photo_is_embedded_by_its_centre(store: Store) -> None:
    whole = np.random.default_rng(0).integers(0, 256, (20, 301, 3), np.uint8)
    (cut,) = store.read([whole]).pictures
    assert cut.shape[1] == ASPECT * 20 + 1
    before, after = (
        store.network.embed(store.read([image]).pictures)["g"] for image in (whole, whole[:, 60:-60])
    )
    np.testing.assert_array_equal(before, after)
