"""Checkpoints of both hubs, fetched from a local server that answers as they do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from armload.conversion.checkpoints.checkpoint import (
    NEEDED_PATTERNS,
    Checkpoint,
    read_checkpoint,
    read_checkpoint_outline,
)
from armload.conversion.checkpoints.forms import check_known_to_mnn
from armload.core.errors import DiskError, UsageError
from armload.core.progress import Silent
from armload.models.hub import fetch_checkpoint
from armload.models.packaged import word_problems_model
from tests.checkpoints import checkpoint_of
from tests.faults import small_disk
from tests.hubs import TOKEN, HubStandIn

PREFIXES = ("hf:", "ms:")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    for name in os.environ:
        if name.startswith(("HF_", "HUGGING", "MODELSCOPE_")):
            monkeypatch.delenv(name)
    model = word_problems_model("word-problems:Q8_0")
    folder = checkpoint_of(model, tmp_path / "published", shards=2)
    (folder / "modeling_sums.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    with HubStandIn().running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        monkeypatch.setenv("MODELSCOPE_DOMAIN", running.address)
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        running.repositories["armload/sums"] = files
        yield running


def fetched(reference: str, known: str = "llama") -> Checkpoint:
    def check(folder: Path) -> None:
        check_known_to_mnn(read_checkpoint_outline(folder), known.split(","))

    return read_checkpoint(fetch_checkpoint(reference, NEEDED_PATTERNS, check, Silent()))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_data_files_arrive_once_and_code_and_pickles_do_not(
    hub: HubStandIn, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = hub.repositories["armload/sums"]
    files |= {"1_Pooling/config.json": b"{}", "onnx/config.json": b"{}"}
    found = fetched(f"{prefix}armload/sums")
    assert (found.architecture, found.parameters) == ("LlamaForCausalLM", 2_520_576)
    here = {
        path.relative_to(found.folder).as_posix()
        for path in found.folder.rglob("*")
        if path.is_file()
    }
    assert here == set(files) - {"modeling_sums.py", "pytorch_model.bin", "onnx/config.json"}
    hub.starts.clear()
    assert fetched(f"{prefix}armload/sums") == found
    assert hub.starts == []
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("MODELSCOPE_DOMAIN", "http://127.0.0.1:9")
    assert fetched(f"{prefix}armload/sums") == found


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_does_not_fit_on_the_disk_is_not_begun(
    hub: HubStandIn, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "small", 1) as folder:
        for name in ("HF_HOME", "ARMLOAD_CACHE"):
            monkeypatch.setenv(name, str(folder))
        with pytest.raises(DiskError) as refused:
            fetched(f"{prefix}armload/sums")
    weights = [name for name in hub.repositories["armload/sums"] if name.endswith(".safetensors")]
    assert weights
    assert not [path for path in hub.asked if any(name in path for name in weights)]
    assert refused.value.remedy


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_unknown_architecture_is_refused_before_its_weights_are_sent(
    hub: HubStandIn, prefix: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"It knows: qwen2, qwen3\."):
        fetched(f"{prefix}armload/sums", known="qwen2,qwen3")
    assert list(tmp_path.rglob("snapshots/*/config.json"))
    assert not list(tmp_path.rglob("snapshots/*/*.safetensors"))


@pytest.mark.parametrize(
    ("prefix", "variable"), [("hf:", "HF_TOKEN"), ("ms:", "MODELSCOPE_API_TOKEN")]
)
def test_a_gated_repository_needs_a_token(
    hub: HubStandIn, prefix: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add("armload/sums")
    with pytest.raises(UsageError, match=r"Access to armload/sums on .* is restricted") as caught:
        fetched(f"{prefix}armload/sums")
    assert variable in caught.value.remedy
    monkeypatch.setenv(variable, TOKEN)
    assert fetched(f"{prefix}armload/sums").architecture == "LlamaForCausalLM"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_repository_that_is_not_there_is_named(hub: HubStandIn, prefix: str) -> None:
    with pytest.raises(UsageError, match="no repository armload/nothing"):
        fetched(f"{prefix}armload/nothing")
