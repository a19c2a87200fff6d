"""Models and data sets from the hub, fetched from a local server that answers as the hub does."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest

from armload.core.progress import Silent
from armload.models.gguf import read_model, read_outline
from armload.models.shape import load_shape
from armload.models.synth import DEMO_SHAPE, header_like, synthesise
from tests.split import in_two_parts

CONTENT = b"GGUF" + bytes(range(256)) * 1024
LARGE_BYTES = 8_000_000_000
REPOSITORY = "/armload/tiny/resolve/main/"
DATA_FILE = "/datasets/armload/tiny/resolve/main/data/test.jsonl"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

needs_extra = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None,
    reason="the extra `hub` is not installed",
)


class _Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        if self.path == f"{REPOSITORY}q/large.gguf":
            self._answer_large(with_body=with_body)
            return
        content = cast("_Server", self.server).files.get(self.path)
        if content is None:
            known = self.path.startswith(REPOSITORY)
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if known else "RepoNotFound")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _answer_large(self, *, with_body: bool) -> None:
        server = cast("_Server", self.server)
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", '"large"')
        self.send_header("Content-Length", str(LARGE_BYTES))
        self.end_headers()
        with suppress(ConnectionError):
            for part in (server.header, *[bytes(1 << 20)] * 7000) if with_body else ():
                self.wfile.write(part)
                server.sent_bytes += len(part)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        pass


class _Server(ThreadingHTTPServer):
    header = b""
    sent_bytes = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hub)
        self.files = {f"{REPOSITORY}q/model.gguf": CONTENT, DATA_FILE: CONTENT}


@pytest.fixture
def hub() -> Iterator[_Server]:
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def endpoint(hub: _Server) -> str:
    return f"http://127.0.0.1:{hub.server_port}"


PROGRAM = """
import json, sys
from contextlib import contextmanager
from armload.core.errors import ArmloadError
from armload.models.hub import fetch, fetch_data, fetch_header

seen = []

class Step:
    def update(self, completed, *, total=None, note=""):
        seen.append(completed)

class Recorder:
    @contextmanager
    def step(self, label, *, total=None, unit=""):
        yield Step()
    def say(self, text):
        pass

try:
    get = {"header": fetch_header, "data": fetch_data}.get(sys.argv[-1], fetch)
    print(json.dumps({"path": str(get(sys.argv[1], Recorder())), "seen": seen}))
except ArmloadError as error:
    print(json.dumps({"kind": type(error).__name__, "message": error.message}))
"""


def _fetch(
    reference: str,
    home: Path,
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    **environment: str,
) -> dict[str, object]:
    """Fetch in a process of its own: the hub library reads its settings when it is imported."""
    completed = subprocess.run(
        [*before, sys.executable, "-c", PROGRAM, reference, *after],
        env={**os.environ, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Retry" not in completed.stderr
    answer: dict[str, object] = json.loads(completed.stdout)
    return answer


@needs_extra
def test_a_file_arrives_whole_and_its_progress_is_seen(endpoint: str, tmp_path: Path) -> None:
    answer = _fetch("hf:armload/tiny/q/model.gguf", tmp_path, HF_ENDPOINT=endpoint)
    assert Path(str(answer["path"])).read_bytes() == CONTENT
    seen = answer["seen"]
    assert isinstance(seen, list)
    assert seen[-1] == len(CONTENT)


@needs_extra
def test_a_file_of_a_data_set_arrives_whole(endpoint: str, tmp_path: Path) -> None:
    reference = "hf:armload/tiny/data/test.jsonl"
    answer = _fetch(reference, tmp_path, after=["data"], HF_ENDPOINT=endpoint)
    assert Path(str(answer["path"])).read_bytes() == CONTENT
    again = _fetch(reference, tmp_path, after=["data"], HF_HUB_OFFLINE="1")
    assert again["path"] == answer["path"]


@needs_extra
def test_a_fetched_file_needs_no_network_the_second_time(endpoint: str, tmp_path: Path) -> None:
    first = _fetch("hf:armload/tiny/q/model.gguf", tmp_path, HF_ENDPOINT=endpoint)
    again = _fetch("hf:armload/tiny/q/model.gguf", tmp_path, HF_HUB_OFFLINE="1")
    assert again["path"] == first["path"]


@needs_extra
def test_only_the_header_of_a_large_model_is_downloaded(
    hub: _Server, endpoint: str, tmp_path: Path
) -> None:
    header = tmp_path / "header.gguf"
    header_like(load_shape("llama-3.1-8b"), header, file_type="Q2_K")
    hub.header = header.read_bytes()
    around = {"HF_ENDPOINT": endpoint, "ARMLOAD_CACHE": str(tmp_path / "cache")}
    reference = "hf:armload/tiny/q/large.gguf"
    answer = _fetch(reference, tmp_path, after=["header"], **around)
    model, _ = read_outline(Path(str(answer["path"])))
    assert model.size_bytes > 3_000_000_000
    assert len(hub.header) < hub.sent_bytes < 64_000_000
    sent_bytes = hub.sent_bytes
    assert _fetch(reference, tmp_path, after=["header"], **around)["path"] == answer["path"]
    assert hub.sent_bytes == sent_bytes


@needs_extra
def test_all_parts_of_a_model_in_several_files_arrive(
    hub: _Server, endpoint: str, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.gguf"
    synthesise(DEMO_SHAPE, whole, quantisation="Q8_0", seed=1, progress=Silent())
    first = in_two_parts(whole, tmp_path)
    parts = sorted(tmp_path.glob("parts-*.gguf"))
    hub.files |= {f"{REPOSITORY}q/{part.name}": part.read_bytes() for part in parts}
    reference = f"hf:armload/tiny/q/{first.name}"
    around = {"HF_ENDPOINT": endpoint, "ARMLOAD_CACHE": str(tmp_path / "cache")}
    answer = _fetch(reference, tmp_path, after=["header"], **around)
    foreseen, _ = read_outline(Path(str(answer["path"])))
    answer = _fetch(reference, tmp_path, **around)
    model = read_model(Path(str(answer["path"])))
    assert [part.path.name for part in model.parts] == [part.name for part in parts]
    assert model.sha256 == read_model(first).sha256
    assert foreseen.size_bytes == model.size_bytes
    assert foreseen.bytes_per_token == model.bytes_per_token


@needs_extra
@pytest.mark.parametrize(
    ("reference", "part"),
    [
        ("hf:armload/tiny/absent.gguf", "has no file absent.gguf"),
        ("hf:armload/nothing/model.gguf", "has no repository armload/nothing"),
    ],
)
def test_what_the_hub_lacks_is_a_usage_error(
    reference: str, part: str, endpoint: str, tmp_path: Path
) -> None:
    answer = _fetch(reference, tmp_path, HF_ENDPOINT=endpoint)
    assert answer["kind"] == "UsageError"
    assert part in str(answer["message"])


@needs_extra
@pytest.mark.parametrize(
    "environment",
    [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}],
    ids=["offline", "refused"],
)
def test_an_unreachable_hub_is_a_connect_error(environment: dict[str, str], tmp_path: Path) -> None:
    answer = _fetch("hf:armload/tiny/q/model.gguf", tmp_path, **environment)
    assert answer["kind"] == "ConnectError"
    assert "Cannot reach" in str(answer["message"])


ON_A_FULL_DISK = 'mount -t tmpfs -o size=100k none "$HF_HOME" && exec "$@"'


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    asked = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


@needs_extra
@pytest.mark.skipif(not _may_mount(), reason="no disk of its own can be mounted for the test")
def test_a_full_disk_is_named_and_not_taken_for_a_hub_out_of_reach(
    endpoint: str, tmp_path: Path
) -> None:
    mounted = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", ON_A_FULL_DISK, "-")
    answer = _fetch("hf:armload/tiny/q/model.gguf", tmp_path, before=mounted, HF_ENDPOINT=endpoint)
    assert answer["kind"] == "DiskError"
    assert f"{tmp_path}/hub: No space left on device" in str(answer["message"])
