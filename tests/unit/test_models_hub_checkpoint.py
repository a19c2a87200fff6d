"""Checkpoints of the hub, fetched from a local server that answers as the hub does."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from armload.models.find import word_problems_model
from tests.checkpoints import checkpoint_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None,
    reason="the extra `hub` is not installed",
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_somebody"

PROGRAM = """
import json, sys
from armload.conversion.checkpoints.checkpoint import NEEDED_PATTERNS, read_checkpoint, read_outline
from armload.conversion.checkpoints.forms import check_known_to_mnn
from armload.core.errors import ArmloadError
from armload.core.progress import Silent
from armload.models.hub import fetch_checkpoint

def check(folder):
    check_known_to_mnn(read_outline(folder), sys.argv[2].split(","))

try:
    folder = fetch_checkpoint(sys.argv[1], NEEDED_PATTERNS, check, Silent())
    print(json.dumps({"found": read_checkpoint(folder).model_dump(mode="json")}))
except ArmloadError as error:
    print(json.dumps({"kind": type(error).__name__, "said": str(error)}))
"""


class _Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        server = cast("_Server", self.server)
        repo, _, rest = (
            self.path.removeprefix("/api/models").partition("?")[0].partition("/resolve")
        )
        is_gated = repo == "/armload/gated"
        if repo not in {"/armload/sums", "/armload/gated"}:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif is_gated and self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._send(403, b"", {"X-Error-Code": "GatedRepo"})
        elif not rest:
            names = [path.name for path in sorted(server.folder.iterdir())]
            sizes = {name: (server.folder / name).stat().st_size for name in names}
            files = [{"rfilename": name, "size": sizes[name]} for name in names]
            self._send(200, json.dumps({"id": repo[1:], "sha": COMMIT, "siblings": files}).encode())
        else:
            content = (server.folder / rest.rpartition("/")[2]).read_bytes()
            if with_body:
                server.sent.append(rest.rpartition("/")[2])
            etag = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
            self._send(200, content, etag, with_body=with_body)

    def _send(
        self,
        status: int,
        content: bytes,
        headers: dict[str, str] | None = None,
        *,
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        for name, value in ((headers or {}) | {"X-Repo-Commit": COMMIT}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body and self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        pass


class _Server(ThreadingHTTPServer):
    folder = Path()
    sent: list[str]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Hub) as server:
        model = word_problems_model("word-problems:Q8_0")
        server.folder = checkpoint_of(model, tmp_path / "published", shards=2)
        (server.folder / "modeling_sums.py").write_text("raise SystemExit")
        (server.folder / "pytorch_model.bin").write_bytes(b"pickle")
        server.sent = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetched(
    hub: _Server, home: Path, repo: str, known: str = "llama", **environment: str
) -> dict[str, Any]:
    """Fetch in a process of its own: the hub library reads its settings when it is imported."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    endpoint = {"HF_HOME": str(home), "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"hf:armload/{repo}", known],
        env=clean | endpoint | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_data_files_arrive_once_and_code_and_pickles_do_not(hub: _Server, tmp_path: Path) -> None:
    found = fetched(hub, tmp_path / "home", "sums")["found"]
    assert (found["architecture"], found["parameters"]) == ("LlamaForCausalLM", 2_520_576)
    wanted = {path.name for path in hub.folder.iterdir()}
    assert set(hub.sent) == wanted - {"modeling_sums.py", "pytorch_model.bin"}
    hub.sent.clear()
    assert fetched(hub, tmp_path / "home", "sums")["found"] == found
    offline = fetched(hub, tmp_path / "home", "sums", HF_HUB_OFFLINE="1")
    assert offline["found"] == found
    assert hub.sent == []


def test_an_unknown_architecture_is_refused_before_its_weights_are_sent(
    hub: _Server, tmp_path: Path
) -> None:
    answer = fetched(hub, tmp_path / "home", "sums", known="qwen2,qwen3")
    assert answer["kind"] == "UsageError"
    assert "It knows: qwen2, qwen3." in answer["said"]
    assert not any(name.endswith(".safetensors") and "model-" in name for name in hub.sent)
    assert "config.json" in hub.sent


def test_a_gated_repository_needs_a_token(hub: _Server, tmp_path: Path) -> None:
    answer = fetched(hub, tmp_path / "home", "gated")
    assert answer["kind"] == "UsageError"
    assert "Access to armload/gated is restricted" in answer["said"]
    assert "HF_TOKEN" in answer["said"]
    answer = fetched(hub, tmp_path / "home", "gated", HF_TOKEN=TOKEN)
    assert answer["found"]["architecture"] == "LlamaForCausalLM"


def test_a_repository_that_is_not_there_is_named(hub: _Server, tmp_path: Path) -> None:
    answer = fetched(hub, tmp_path / "home", "nothing")
    assert answer["kind"] == "UsageError"
    assert "no repository armload/nothing" in answer["said"]
