"""Models of which only the header is known: what published configurations say of them."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.core.workspace import data_file, data_names
from armload.models.find import header_of, resolve, shown_name
from armload.models.gguf import read_model_summary, read_outline
from armload.models.metadata import Metadata
from armload.models.outline import (
    OUTLINES,
    Outline,
    listed_models,
    load_outline,
    outline_of_shape,
    outlined,
    outlined_projector,
)
from armload.models.projector_choice import check_belongs
from armload.models.shape import load_shape
from armload.models.whole_header import encoded, whole_header
from armload.report.model_summary import summary_table

NAMES = data_names(OUTLINES)

PUBLISHED_PARAMETERS = {
    "falcon-h1-0.5b": 0.52e9,
    "gemma-2-2b": 2.61e9,
    "gemma-3-1b": 1.00e9,
    "gemma-3-4b": 3.88e9,
    "gemma-4-26b-a4b": 25.2e9,
    "gpt-oss-20b": 20.9e9,
    "granite-4.0-h-350m": 340e6,
    "lfm2-350m": 354e6,
    "lfm2-8b-a1b": 8.34e9,
    "lfm2-vl-1.6b": 1.17e9,
    "lfm2-vl-450m": 354e6,
    "nemotron-3-nano-30b-a3b": 31.6e9,
    "olmo-3-7b": 7.3e9,
    "olmoe-1b-7b": 6.92e9,
    "phi-4-mini": 3.84e9,
    "smollm2-1.7b": 1.71e9,
    "smollm2-135m": 135e6,
    "smollm2-360m": 362e6,
}
"""Of the text models, as their makers give them."""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_embeddings_for_each_layer_are_counted_as_read_by_row() -> None:
    for name in ("gemma-4-e2b", "gemma-3-4b"):
        found, header = outlined(load_outline(name), "Q8_0")
        tables = [each for each in header.tensors if each.name.startswith("per_layer_token_embd")]
        assert found.row_table_bytes == sum(each.size_bytes for each in tables), name
        assert bool(tables) == (name == "gemma-4-e2b")


def test_current_models_of_every_kind_are_listed_with_their_sources() -> None:
    assert len(NAMES) >= 20
    for name in NAMES:
        comment = re.match(r"(?:#.*\n)+", data_file(OUTLINES, name).read_text(encoding="utf-8"))
        assert comment is not None, name
        assert re.search(r"config\.json of [\w.-]+/[\w.-]+, as stored in", comment[0]), name
        exact = re.search(r"# [\w.-]+/[\w.-]+ at [0-9a-f]{40},\n# \S+\.", comment[0])
        assert exact or "\n# public repositories" in comment[0], name
    models = [outlined(load_outline(name), "Q8_0")[0] for name in NAMES]
    assert sum(bool(model.experts) for model in models) >= 6
    assert sum(bool(model.context_memory.recurrent_layers) for model in models) >= 6
    assert sum(bool(model.context_memory.window_layers) for model in models) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_an_outline_has_the_published_size_and_a_header_that_is_read_back(
    name: str, tmp_path: Path
) -> None:
    outline = load_outline(name)
    sizes = []
    for file_type in outline.file_types:
        model, header = outlined(outline, file_type)
        path = tmp_path / "m.gguf"
        path.write_bytes(encoded(header).content)
        again, found = read_outline(path)
        described = [
            (each.name, each.shape, each.type_name, each.size_bytes) for each in header.tensors
        ]
        assert described == [
            (each.name, each.shape, each.type_name, each.size_bytes) for each in found.tensors
        ]
        assert whole_header(path) == encoded(header)
        for fact in ("bytes_per_token", "context_memory", "parameters", "vocabulary", "experts"):
            assert getattr(model, fact) == getattr(again, fact), fact
        assert model.parameters == pytest.approx(
            PUBLISHED_PARAMETERS.get(name, model.parameters), rel=0.01
        )
        assert model.active_parameters <= model.parameters
        sizes.append(model.size_bytes)
    assert sizes == sorted(set(sizes))


PUBLISHED_PROJECTORS = {
    "gemma-3-4b": 0.42e9,
    "lfm2-vl-1.6b": 0.43e9,
    "qwen2.5-vl-3b": 0.67e9,
    "qwen3-vl-2b": 2.1275e9 - 1.7206e9,
    "smolvlm2-256m": 0.2565e9 - 0.163e9,
    "smolvlm2-500m": 0.507e9 - 0.409e9,
    "ultravox-v0.5-8b": 0.69e9,
}
"""Parameters, as their makers give them, or what remains of the whole model's."""


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("qwen3-vl-2b", 2_127_532_032),
        ("qwen3-vl-4b", 4_437_815_808),
        ("smolvlm2-256m", 256_484_928),
        ("smolvlm2-500m", 507_482_304),
    ],
)
def test_a_model_with_its_projector_has_the_weights_of_the_published_checkpoint(
    name: str, weights: int
) -> None:
    outline = load_outline(name)
    projector = outlined_projector(outline)
    assert projector is not None
    model, _ = outlined(outline, "Q8_0")
    assert model.parameters + sum(each.elements for each in projector[1].tensors) == weights


@pytest.mark.parametrize("name", NAMES)
def test_a_projector_belongs_to_its_model_and_has_the_published_size(name: str) -> None:
    outline = load_outline(name)
    found = outlined_projector(outline)
    if found is None:
        assert name not in PUBLISHED_PROJECTORS
        return
    projector, _ = found
    model, header = outlined(outline, "Q8_0")
    check_belongs(projector, name, Metadata(model.path, header).input_width)
    parameters = sum(each.parameters for each in projector.encoders)
    assert parameters == pytest.approx(PUBLISHED_PROJECTORS.get(name, parameters), rel=0.02)


def test_a_mixture_uses_few_of_its_weights_for_a_token() -> None:
    model, _ = outlined(outline_of_shape("", load_shape("qwen3-30b-a3b")), "Q4_K_M")
    assert model.parameters == pytest.approx(30.5e9, rel=0.01)
    assert model.active_parameters == pytest.approx(3.04e9, rel=0.01)
    assert model.bytes_per_token < model.size_bytes / 8


def test_layers_that_predict_further_tokens_are_in_no_figure_of_a_token() -> None:
    outline = load_outline("qwen3.5-35b-a3b")
    with_mtp, _ = outlined(outline, "Q8_0")
    keys = {**outline.keys, "block_count": 40}
    del keys["nextn_predict_layers"]
    without, _ = outlined(outline.model_copy(update={"keys": keys}), "Q8_0")
    assert with_mtp.prediction_layers == 1
    assert with_mtp.parameters > without.parameters
    assert with_mtp.bytes_per_token == without.bytes_per_token
    assert with_mtp.active_parameters == without.active_parameters
    memory = with_mtp.context_memory
    assert memory.prediction_values == 2 * 2 * 256
    assert memory.model_copy(update={"prediction_values": 0}) == without.context_memory


def test_per_layer_embeddings_count_by_row() -> None:
    outline = load_outline("gemma-4-e2b")
    model, _ = outlined(outline, "Q8_0")
    table = dict(outline.shapes())["per_layer_token_embd.weight"]
    assert model.parameters - model.active_parameters == table[0] * (table[1] - 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "gemma-4-e2b",
            (
                "20 layers with the keys and values of earlier ones",
                "28 layers limited to the last 512 tokens",
                "2.28 B active for a token",
                "count one row of the per-layer embeddings",
            ),
        ),
        (
            "qwen3.5-35b-a3b",
            (
                "the last 1 layer, not used for plain decoding",
                "30 layers with a state of 65.9 MB for each sequence",
                "2.95 B active for a token",
                "leave out the layers that predict further tokens",
            ),
        ),
    ],
)
def test_an_inspection_says_what_a_token_s_figures_count(name: str, words: tuple[str, ...]) -> None:
    console = Console(width=200, file=StringIO())
    console.print(summary_table(read_model_summary(header_of(f"like:{name}:Q8_0", Silent()))))
    assert isinstance(console.file, StringIO)
    for each in words:
        assert each in console.file.getvalue()


def test_an_outline_is_a_header_for_fit_and_no_model_to_run() -> None:
    path = header_of("like:lfm2-350m:q4_0", Silent())
    assert shown_name(path) == "like:lfm2-350m:Q4_0"
    assert shown_name(Path("own/random-notes.gguf")) == "random-notes.gguf"
    assert read_outline(path)[0].architecture == "lfm2"
    assert header_of("like:lfm2-350m:Q4_0", Silent()) == path
    with pytest.raises(UsageError, match="only their header is known"):
        resolve("like:lfm2-350m:Q4_0", Silent())
    for reference, what in (("like:lfm2-350m", "no file type"), ("like:lfm2-350m:Q9", "'Q9'")):
        with pytest.raises(UsageError, match=what):
            header_of(reference, Silent())


def test_an_outline_of_one_s_own_extends_the_list_and_another() -> None:
    Path("outlines").mkdir()
    Path("outlines/mine.yaml").write_text(
        "extends: gemma-3-1b\nfile_types: [IQ4_XS]\nkeys:\n  block_count: 5\n"
    )
    Path("outlines/hidden.yaml").write_text("extends: mine\nis_listed: false\n")
    listed = {name: model for name, model, _ in listed_models()}
    assert listed["mine:IQ4_XS"].layers == 5
    assert "hidden:IQ4_XS" not in listed
    assert {"qwen3-8b:Q4_K_M", "gpt-oss-20b:MXFP4_MOE"} <= set(listed)


def test_an_outline_that_cannot_be_is_refused() -> None:
    outline = load_outline("gemma-3-1b")
    keys = {key: value for key, value in outline.keys.items() if key != "block_count"}
    with pytest.raises(DataError, match="block_count"):
        outlined(outline.model_copy(update={"keys": keys}), "Q8_0")
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Outline.model_validate({**outline.model_dump(), "tensors": {"token_embd.weight": [0, 5]}})


def test_a_mistyped_model_to_be_like_is_answered_with_models_of_both_kinds() -> None:
    with pytest.raises(UsageError, match="no model named 'qwen3-30b-a3'") as caught:
        header_of("like:qwen3-30b-a3:Q4_0", Silent())
    assert "Did you mean 'qwen3-30b-a3b'?" in caught.value.remedy
    assert re.search(r"To list all \d+: ls \S+/outlines \S+/shapes$", caught.value.remedy)
