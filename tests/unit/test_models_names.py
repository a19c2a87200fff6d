"""Models are found whatever the case of their names, and any type of one can be predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.models.file_types import TENSOR_TYPES
from armload.models.find import header_of, is_listed, is_published, is_runnable, resolve, spelled
from armload.models.gguf import read_outline
from armload.models.hub_reference import choose_model, repository_named
from armload.models.hub_sites import HubFile
from armload.models.quant_mix import MIXTURES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Demo", "demo"),
        ("SmolLM2", "smollm2"),
        ("RANDOM", "random"),
        ("Qwen2.5-0.5B:Q4_0", "qwen2.5-0.5b:Q4_0"),
        ("QWEN3-1.7B:q8_0", "qwen3-1.7b:q8_0"),
        ("Like:LLAMA-3.1-8B:iq2_xxs", "like:llama-3.1-8b:iq2_xxs"),
        ("LIKE:Gemma-4-E2B:Q4_0", "like:gemma-4-e2b:Q4_0"),
        ("Word-Problems:q8_0", "word-problems:q8_0"),
        ("HF:Qwen/Qwen3-1.7B-GGUF:Q8_0", "hf:Qwen/Qwen3-1.7B-GGUF:Q8_0"),
        ("Ms:a/B/C.gguf", "ms:a/B/C.gguf"),
        ("Some/File.GGUF", "Some/File.GGUF"),
    ],
)
def test_known_names_are_spelled_as_armload_writes_them(typed: str, meant: str) -> None:
    assert spelled(typed) == meant
    assert spelled(meant) == meant


def test_a_file_comes_before_a_name_in_another_case(tmp_path: Path) -> None:
    for name in ("Demo", "SmolLM2", "Qwen3-1.7B:Q8_0"):
        (tmp_path / name).write_bytes(b"x")
        assert resolve(name, Silent()) == Path(name)
        assert not is_listed(name)


def test_a_downloaded_file_is_meant_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    place = tmp_path / "home/hub/models--acme--some-GGUF/snapshots/ab12/some-Q8_0.gguf"
    place.parent.mkdir(parents=True)
    place.touch()
    with pytest.raises(UsageError) as refused:
        resolve("sume-Q8_0.gguf", Silent())
    assert "'hf:acme/some-GGUF/some-Q8_0.gguf'" in refused.value.remedy


def test_every_question_about_a_name_is_answered_alike() -> None:
    for name in ("qwen3-1.7b:Q8_0", "Qwen3-1.7B:q8_0", "QWEN3-1.7B:Q8_0"):
        assert (is_listed(name), is_published(name), is_runnable(name)) == (True, True, True)
    assert not is_runnable("Qwen3-1.7B:Q2_K")
    assert resolve("WORD-PROBLEMS:q2_k", Silent()).name == "word-problems-Q2_K.gguf"


def test_a_file_on_a_hub_is_found_in_any_case_where_only_one_is_meant() -> None:
    files = [HubFile(path=name, size_bytes=1, digest="") for name in ("Q-Q8_0.gguf", "q/A.gguf")]
    for typed in ("q-q8_0.GGUF", "Q-Q8_0.gguf"):
        assert (
            choose_model(repository_named(f"hf:a/b/{typed}", "model"), files).path == files[0].path
        )
    twins = [HubFile(path=name, size_bytes=1, digest="") for name in ("M.gguf", "m.gguf")]
    assert choose_model(repository_named("hf:a/b/m.gguf", "model"), twins).path == "m.gguf"
    with pytest.raises(UsageError, match=r"no file MM\.gguf"):
        choose_model(repository_named("hf:a/b/MM.gguf", "model"), twins)


@pytest.mark.parametrize("file_type", ["Q4_0", *sorted(TENSOR_TYPES.keys() - set(MIXTURES))])
def test_the_header_of_any_type_of_a_known_model_can_be_had(file_type: str) -> None:
    path = header_of(f"like:Qwen2.5-0.5B:{file_type.lower()}", Silent())
    model, header = read_outline(path)
    assert model.layers == 24
    bits = 8 * model.size_bytes / model.parameters
    assert 2 < bits < 33, bits  # the rows of 896 fall back to blocks of 32 in the smallest types
    assert {tensor.type_name for tensor in header.tensors} >= {"F32"}


def test_types_are_ordered_by_their_sizes() -> None:
    sizes = [
        read_outline(header_of(f"like:llama-3.1-8b:{each}", Silent()))[0].size_bytes
        for each in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_M", "IQ3_XXS", "IQ3_M", "Q4_0", "Q8_0")
    ]
    assert sizes == sorted(sizes)
    assert sizes[2] == pytest.approx(2.40e9, rel=0.01), "IQ2_XXS as published"
    assert sizes[4] == pytest.approx(3.27e9, rel=0.01), "IQ3_XXS as published"


def test_a_type_that_cannot_be_generated_is_not_called_runnable() -> None:
    assert is_runnable("like:llama-3.1-8b:q4_k")
    assert not is_runnable("like:llama-3.1-8b:IQ2_XXS")
    with pytest.raises(UsageError, match="cannot be generated"):
        resolve("like:llama-3.1-8b:IQ2_XXS", Silent())
    with pytest.raises(UsageError, match="no file type 'Q9'"):
        header_of("like:llama-3.1-8b:Q9", Silent())
