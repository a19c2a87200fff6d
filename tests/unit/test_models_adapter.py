"""Adapters are checked against their model by the headers of both."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

from armload.analysis.compute import Compute
from armload.analysis.compute import with_adapters as longer
from armload.core.errors import ArmloadError
from armload.core.progress import Silent
from armload.engines.completion import memory_need
from armload.engines.plan import Plan
from armload.engines.prediction import Expected
from armload.models.adapter import AdapterChoice, choices_in
from armload.models.adapter_file import with_adapters
from armload.models.gguf import read_model
from armload.models.model import Model
from tests.adapters import ALPHA, RANK, write_adapter
from tests.outside_data import shared


@pytest.fixture
def base() -> Path:
    return shared("stories260K.gguf")


def adapted(base: Path, *files: Path, scale: float = 1.0) -> Model:
    choices = [AdapterChoice(file=str(each), scale=scale) for each in files]
    return with_adapters(read_model(base), choices, Silent())


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("a.gguf", [("a.gguf", 1.0)]),
        ("a.gguf:0.5,b.gguf", [("a.gguf", 0.5), ("b.gguf", 1.0)]),
        ("a:b.gguf:0", [("a:b.gguf", 0.0)]),
        ("a:b.gguf", [("a:b.gguf", 1.0)]),
        ("a:b/c.lora", [("a:b/c.lora", 1.0)]),
    ],
)
def test_adapters_are_listed_with_their_scales(typed: str, found: list[tuple[str, float]]) -> None:
    assert [(each.file, each.scale) for each in choices_in(typed)] == found


@pytest.mark.parametrize(
    "typed",
    ["", "a.gguf,", ":0.5", "a.gguf:nan", "a.gguf:-1", "a.gguf:inf", "a.gguf:1e9", "x:abc"],
)
def test_a_scale_is_a_number_and_a_file_is_named(typed: str) -> None:
    with pytest.raises(ValueError, match=r"adapter is missing|is not a number"):
        choices_in(typed)


def test_without_adapters_a_plan_says_none() -> None:
    assert Plan(lora="none") == Plan()
    assert Plan().adapters == ()


def test_an_adapter_is_counted_in_memory_and_time(base: Path, tmp_path: Path) -> None:
    model = adapted(base, write_adapter(tmp_path / "a.gguf", base), scale=0.5)
    (adapter,) = model.adapters
    assert (adapter.rank, adapter.alpha, adapter.scale) == (RANK, ALPHA, 0.5)
    assert adapter.weights_bytes == 4 * adapter.parameters
    plain, plan = read_model(base), Plan()
    assert model.identity != plain.identity == plain.sha256
    more = memory_need(plan, model).program_bytes - memory_need(plan, plain).program_bytes
    assert more == adapter.weights_bytes
    second = Expected.within(1.0, 0.1)
    compute = Compute(token_s=second, prompt_token_s=second, load_s=second, source="roofline")
    share = adapter.weights_bytes / model.bytes_per_token
    assert longer(compute, model).token_s.value == pytest.approx(1 + share)
    assert longer(compute, plain) == compute


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "model"}, "is not an adapter"),
        ({"architecture": "qwen2"}, "is for the architecture 'qwen2'"),
        ({"adapter_type": "control"}, "adapter of type 'control'"),
        ({"only_a": True}, "lacks .lora_b"),
        ({"wide": 8}, "do not fit the model's 64×64"),
        ({"rank": 0}, "do not fit"),
        ({"renamed": "x."}, "which stories260K.gguf does not have"),
        ({"alpha": float("nan")}, "not a finite 32-bit float"),
    ],
)
def test_an_adapter_of_another_model_is_refused(
    base: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = write_adapter(tmp_path / "a.gguf", base, **change)
    with pytest.raises(ArmloadError, match=words) as refused:
        adapted(base, path)
    assert refused.value.remedy


def test_an_adapter_without_tensors_is_refused(base: Path, tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ArmloadError, match="has no tensors"):
        adapted(base, tmp_path / "a.gguf")


def test_damaged_files_are_refused(base: Path, tmp_path: Path) -> None:
    whole = write_adapter(tmp_path / "a.gguf", base).read_bytes()
    huge = bytearray(whole)
    struct.pack_into("<Q", huge, 8, 1 << 60)
    for content, words in ((bytes(huge), "tensors"), (whole[:-64], "truncated"), (b"PK", "GGUF")):
        (tmp_path / "damaged.gguf").write_bytes(content)
        with pytest.raises(ArmloadError, match=words):
            adapted(base, tmp_path / "damaged.gguf")


def test_the_same_adapter_twice_and_names_that_llama_cpp_would_split_are_refused(
    base: Path, tmp_path: Path
) -> None:
    one = write_adapter(tmp_path / "a.gguf", base)
    with pytest.raises(ArmloadError, match="are the same file"):
        adapted(base, one, one)
    named = one.rename(tmp_path / "a:b.gguf")
    with pytest.raises(ArmloadError, match="cannot take an adapter whose file name"):
        adapted(base, named)


def test_a_checkpoint_and_a_missing_file_say_what_to_do(base: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ArmloadError, match="PEFT checkpoint") as refused:
        adapted(base, tmp_path)
    assert f"armload model.convert {tmp_path}" in refused.value.remedy
    with pytest.raises(ArmloadError, match="no adapter"):
        adapted(base, tmp_path / "none.gguf")
