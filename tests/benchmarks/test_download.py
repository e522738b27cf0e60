"""Downloads from a small server of our own: continued, checked, and never half there."""

import hashlib
import http.server
import threading

import pytest

from fairshot.benchmarks.download import DownloadFailed, download
from fairshot.errors import FileRefused

CONTENT = bytes(range(256)) * 20_000
MD5 = hashlib.md5(CONTENT).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Serves the server's `content`; the first `drops` answers break off in the middle."""

    def do_GET(self):
        server = self.server
        start = 0
        wanted = self.headers.get("Range")
        server.asked.append(wanted)
        if wanted and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.drops > 0:
            server.drops -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.content, server.drops, server.ranges, server.asked = CONTENT, 0, True, []
    server.url = f"http://127.0.0.1:{server.server_port}/file.tgz"
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_is_checked_and_not_repeated(server, tmp_path):
    target = tmp_path / "new" / "file.tgz"
    download(server.url, target, MD5)
    assert target.read_bytes() == CONTENT
    download(server.url, target, MD5)
    assert len(server.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path, ranges):
    target = tmp_path / "file.tgz"
    server.drops, server.ranges = 1, ranges
    with pytest.raises(DownloadFailed, match="goes on"):
        download(server.url, target, MD5)
    assert not target.exists()
    part = (tmp_path / "file.tgz.part").stat().st_size
    assert part == len(CONTENT) // 2
    download(server.url, target, MD5)
    assert target.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={part}-"]


def test_a_part_of_another_file_is_thrown_away(server, tmp_path):
    target = tmp_path / "file.tgz"
    (tmp_path / "file.tgz.part").write_bytes(b"x" * 1000)
    download(server.url, target, MD5)
    assert target.read_bytes() == CONTENT


def test_a_complete_part_needs_no_more_bytes(server, tmp_path):
    (tmp_path / "file.tgz.part").write_bytes(CONTENT)
    download(server.url, tmp_path / "file.tgz", MD5)
    assert (tmp_path / "file.tgz").read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_not_kept(server, tmp_path):
    server.content = b"something else"
    with pytest.raises(DownloadFailed, match="md5"):
        download(server.url, tmp_path / "file.tgz", MD5)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
    (tmp_path / "file.tgz").write_bytes(b"mine")
    with pytest.raises(FileRefused) as refused:
        download(server.url, tmp_path / "file.tgz", MD5)
    assert refused.value.path == tmp_path / "file.tgz"
    assert (tmp_path / "file.tgz").read_bytes() == b"mine"


def test_no_server_is_one_error(tmp_path):
    with pytest.raises(DownloadFailed):
        download("http://127.0.0.1:9/file.tgz", tmp_path / "file.tgz", MD5)
