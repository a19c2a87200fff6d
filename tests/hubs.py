"""A server that answers as the Hugging Face Hub and ModelScope do, and their delivery network."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN, EXPIRED = "hf_of_somebody", "hf_of_last_year"
SMALL_BYTES = 20_000
"""What is no larger lies in git, and is sent by the hub itself."""


def is_large(content: bytes) -> bool:
    return len(content) > SMALL_BYTES


def git_name(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast("_Server", self.server)
        server.asked.append(self.path)
        if server.hub is not None:
            self._deliver(server.hub)
        else:
            self._answer(cast("HubStandIn", server))

    def _answer(self, hub: HubStandIn) -> None:
        if hub.busy:
            self._send(hub.busy.pop(0), b"", {"Retry-After": hub.retry_after})
            return
        if hub.filtered:
            filtered = {"Server": "squid/6.6", "Content-Type": "text/html"}
            self._send(hub.filtered, b"<html>Blocked by policy</html>", filtered)
            return
        if any(EXPIRED in (self.headers[name] or "") for name in ("Authorization", "Cookie")):
            error = {"Code": 10010101002, "Message": "invalid token", "Success": False}
            said = {"X-Error-Message": "Invalid credentials in Authorization header"}
            said |= {"Content-Type": "application/json"}
            self._send(401, json.dumps(error).encode(), said)
            return
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path.startswith("/api/v1/models/"):
            self._answer_as_modelscope(hub, path.removeprefix("/api/v1/models/"), query)
        else:
            self._answer_as_hugging_face(hub, path)

    def _answer_as_hugging_face(self, hub: HubStandIn, path: str) -> None:
        allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        lists = path.startswith("/api/")
        path = path.removeprefix("/api/models/").removeprefix("/api/datasets/")
        repo, _, rest = (
            path.removeprefix("/")
            .removeprefix("datasets/")
            .partition("/revision/" if lists else "/resolve/")
        )
        revision, _, name = rest.partition("/")
        files = hub.repositories.get(repo)
        if files is None:
            self._send(404 if allowed else 401, b"", {"X-Error-Code": "RepoNotFound"})
        elif repo in hub.disabled:
            told = {"X-Error-Code": "DisabledRepo", "X-Error-Message": "Disabled by its owner."}
            self._send(403, b"", told)
        elif revision not in {"main", "v2", COMMIT}:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif lists:
            self._send(200, hub.listing or self._listing(files), {})
        elif repo in hub.gated and not allowed:
            status = 403 if self.headers["Authorization"] else 401
            self._send(status, b"", {"X-Error-Code": "GatedRepo"})
        elif unquote(name) not in files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self._redirect(hub, files[unquote(name)])

    def _listing(self, files: dict[str, bytes]) -> bytes:
        entries = []
        for name, content in files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            large = {"sha256": sha256, "size": len(content), "pointerSize": 130}
            entry = {"rfilename": name, "size": len(content), "blobId": git_name(content)}
            entries.append(entry | ({"lfs": large} if is_large(content) else {}))
        return json.dumps({"id": "a/b", "sha": COMMIT, "siblings": entries}).encode()

    def _answer_as_modelscope(
        self, hub: HubStandIn, path: str, query: dict[str, list[str]]
    ) -> None:
        repo, _, rest = path.partition("/repo")
        files = hub.repositories.get(repo)
        error = {"Code": 10010205001, "Message": "not found", "Success": False}
        if files is None or query["Revision"] not in (["master"], ["v2"]):
            self._send(404, json.dumps(error).encode(), {})
        elif repo in hub.gated and self.headers["Cookie"] != f"m_session_id={TOKEN}":
            self._send(403, json.dumps(error).encode(), {})
        elif rest == "/files":
            entries: list[dict[str, object]] = [{"Path": "q", "Type": "tree", "Size": 0}]
            for name, content in files.items():
                sha256 = hashlib.sha256(content).hexdigest()
                entry = {"Path": name, "Name": name.rpartition("/")[2], "Type": "blob"}
                entries.append(entry | {"Size": len(content), "Sha256": sha256})
            found = {"Code": 200, "Success": True, "Data": {"Files": entries}}
            self._send(200, hub.listing or json.dumps(found).encode(), {})
        elif query["FilePath"][0] not in files:
            self._send(404, json.dumps(error).encode(), {})
        else:
            self._redirect(hub, files[query["FilePath"][0]])

    def _redirect(self, hub: HubStandIn, content: bytes) -> None:
        name = hashlib.sha256(content).hexdigest()
        if not is_large(content):
            etag = {"ETag": f'"{git_name(content)}"', "X-Repo-Commit": COMMIT}
            self._send(200, content, etag)
            return
        hub.large[name] = content
        said = {"X-Linked-ETag": f'"{name}"', "X-Linked-Size": str(len(content))}
        where = {"Location": f"{hub.network}/{name}", "X-Repo-Commit": COMMIT}
        self._send(302, b"", said | where)

    def _deliver(self, hub: HubStandIn) -> None:
        content = hub.large[self.path.removeprefix("/")]
        hub.leaked += [
            self.headers[name] for name in ("Authorization", "Cookie") if self.headers[name]
        ]
        start = int((self.headers["Range"] or "bytes=0-")[len("bytes=") :].partition("-")[0])
        hub.starts.append(start)
        fault = hub.faults.pop(0) if hub.faults else ""
        if fault == "html":
            self._send(200, b"<html>Please log in</html>", {"Content-Type": "text/html"})
        elif fault == "short":
            self._send(200, content[: len(content) // 2], {})
        elif fault == "damaged":
            self._send(200, bytes([content[0] ^ 1]) + content[1:], {})
        elif fault == "whole":
            self._send(200, content, {})
        elif fault == "cut":
            self._send_part(content, start, to=start + (len(content) - start) // 2)
        elif start >= len(content):
            refused = {"Content-Range": f"bytes */{len(content)}", "Content-Type": "text/html"}
            self._send(416, b"<html>Not satisfiable</html>", refused)
        else:
            self._send_part(content, start, to=len(content))

    def _send_part(self, content: bytes, start: int, *, to: int) -> None:
        """Promise all of the rest, and send it up to a byte."""
        self.send_response(206 if self.headers["Range"] else 200)
        if self.headers["Range"]:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:to])
        self.close_connection = True

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # who asked has heard enough
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        pass


class _Server(ThreadingHTTPServer):
    def __init__(self, hub: HubStandIn | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def served(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class HubStandIn(_Server):
    """Both hubs.

    Attributes:
        repositories: files by path, by ``ORG/REPO``.
        gated: repositories that want ``TOKEN``.
        disabled: repositories of which the hub says that they are.
        filtered: the status that a proxy on the way answers with instead; 0 without one.
        busy: statuses of the next answers; and for how long they say to wait.
        listing: instead of the list of files.
        faults: of the next deliveries: ``html``, ``short``, ``damaged``, ``cut``, or ``whole``,
            which takes no notice of the range.
        starts: the byte that each delivery was to begin at.
        leaked: logins that the delivery network was sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.disabled: set[str] = set()
        self.filtered = 0
        self.busy: list[int] = []
        self.retry_after = "0"
        self.listing = b""
        self.faults: list[str] = []
        self.starts: list[int] = []
        self.leaked: list[str] = []
        self.large: dict[str, bytes] = {}
        self._network = _Server(self)
        # Another host in the eyes of HTTP clients.
        self.network = f"http://localhost:{self._network.server_port}"

    @contextmanager
    def running(self) -> Iterator[HubStandIn]:
        with self.served(), self._network.served():
            yield self
