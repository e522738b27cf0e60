"""A hub of models for tests: the parts of its HTTP interface that huggingface_hub uses, kept in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_canary"
MUCH = 2**28  # bytes of a file that has no end, so that a test that fails still ends
LARGE = (".safetensors", ".zip")  # stored as large files


@dataclass
class Hub:
    """What the stand-in holds, and how it misbehaves."""

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)  # files by name
    private: dict[str, bool] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)  # large files by sha256
    failing: Counter[str] = field(default_factory=Counter)  # requests of a kind still to be answered by 503
    asked: Counter[str] = field(default_factory=Counter)  # requests of a kind
    damaged: str = ""  # a file that is sent with a wrong byte
    endless: str = ""  # a file that is sent as if it had no end: far longer than it is
    sent: int = 0  # bytes of it
    circling: str = ""  # a file whose address redirects to itself

    def commit(self, repo: str) -> str:
        names = json.dumps(sorted(self.repos[repo]))
        return hashlib.sha1(names.encode(), usedforsecurity=False).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve an empty hub on a port of this machine."""
    hub = Hub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route("GET")

    def do_HEAD(self) -> None:
        self._route("HEAD")

    def do_POST(self) -> None:
        self._route("POST")

    def do_PUT(self) -> None:
        self._route("PUT")

    def _route(self, method: str) -> None:
        body = self._body()
        path = self.path.partition("?")[0]
        matches = ((kind, re.fullmatch(pattern, f"{method} {path}")) for pattern, kind in _ROUTES.items())
        kind, found = next((each for each in matches if each[1]), ("", None))
        if found is None:
            return self._answer(404, {"error": f"no route {method} {path}"})
        self.hub.asked[kind] += 1
        if self.hub.failing[kind] > 0:
            self.hub.failing[kind] -= 1
            return self._answer(503, {"error": "busy"})
        if kind != "upload" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            message = {"X-Error-Message": "Invalid credentials in Authorization header"}
            return self._answer(401, {"error": "unauthorized"}, message)
        repo = found.groupdict().get("repo")
        if repo is not None and repo not in self.hub.repos:
            return self._answer(404, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})
        return getattr(self, f"_{kind}")(body, **found.groupdict())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().strip(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _create(self, body: bytes) -> None:
        asked = json.loads(body)
        repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
        there = repo in self.hub.repos
        if not there:
            self.hub.repos[repo] = {}
            self.hub.private[repo] = asked.get("visibility") == "private" or bool(asked.get("private"))
        self._answer(409 if there else 200, {"url": f"{self.hub.url}/{repo}"})

    def _validate(self, body: bytes) -> None:
        assert json.loads(body)["content"].startswith("---\n")
        self._answer(200, {"errors": [], "warnings": []})

    def _preupload(self, body: bytes, repo: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self._answer(200, {"files": files})

    def _batch(self, body: bytes, repo: str) -> None:
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.hub.url}/objects/{each['oid']}"}}}
            for each in json.loads(body)["objects"]
        ]
        self._answer(200, {"transfer": "basic", "objects": objects})

    def _upload(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self._answer(200, {})

    def _commit(self, body: bytes, repo: str) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.hub.repos[repo][value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.hub.repos[repo][value["path"]] = self.hub.objects[value["oid"]]
        commit = self.hub.commit(repo)
        address = f"{self.hub.url}/{repo}/commit/{commit}"
        self._answer(200, {"commitUrl": address, "commitOid": commit, "hookOutput": ""})

    def _info(self, body: bytes, repo: str) -> None:
        files = [{"rfilename": name} for name in self.hub.repos[repo]]
        self._answer(200, {"id": repo, "sha": self.hub.commit(repo), "siblings": files})

    def _resolve(self, body: bytes, repo: str, name: str) -> None:
        if (content := self.hub.repos[repo].get(name)) is None:
            return self._answer(404, {"error": "not found"}, {"X-Error-Code": "EntryNotFound"})
        if name == self.hub.circling:
            return self._send(302, b"", {"Location": self.path})
        if name == self.hub.endless and self.command == "GET":
            return self._send_long(content)
        if name == self.hub.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        tags = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": self.hub.commit(repo)}
        self._send(200, content, tags)

    def _send_long(self, content: bytes) -> None:
        """Send a file and much more, without its length, until the client has enough."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        block, self.hub.sent = content.ljust(2**20), 0
        with suppress(OSError):
            while self.hub.sent < MUCH:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
                self.hub.sent += len(block)
            self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, values: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._send(
            status, json.dumps(values).encode(), {"Content-Type": "application/json", **(headers or {})}
        )

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


_REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
_ROUTES = {
    r"POST /api/repos/create": "create",
    r"POST /api/validate-yaml": "validate",
    rf"POST /api/models/{_REPO}/preupload/[^/]+": "preupload",
    rf"POST /{_REPO}\.git/info/lfs/objects/batch": "batch",
    r"PUT /objects/(?P<oid>\w+)": "upload",
    rf"POST /api/models/{_REPO}/commit/[^/]+": "commit",
    rf"GET /api/models/{_REPO}(?:/revision/[^/]+)?": "info",
    rf"(?:GET|HEAD) /{_REPO}/resolve/[^/]+/(?P<name>.+)": "resolve",
}
