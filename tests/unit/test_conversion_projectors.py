"""Which checkpoints become two files, and what the second one is called."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path

import pytest

from armload.build.source import pinned_source
from armload.conversion.checkpoints.forms import gguf_projectors
from armload.conversion.checkpoints.projectors import (
    has_projector,
    projector_path,
    projector_type,
)
from armload.core.places import data_path
from armload.core.progress import Silent
from armload.models.projector_choice import by_likelihood

VISION = {"image_size": 64}


@pytest.mark.parametrize(
    ("architecture", "more", "has"),
    [
        ("Idefics3ForConditionalGeneration", {"vision_config": VISION}, True),
        ("Qwen2AudioForConditionalGeneration", {"audio_config": {}}, True),
        ("Idefics3ForConditionalGeneration", {}, False),
        ("LlamaForCausalLM", {"vision_config": VISION}, False),
    ],
)
def test_a_checkpoint_with_an_encoder_that_the_converter_knows_becomes_two_files(
    tmp_path: Path, architecture: str, more: dict[str, object], *, has: bool
) -> None:
    config = {"architectures": [architecture], **more}
    (tmp_path / "config.json").write_text(json.dumps(config))
    source = pinned_source().provide(Silent())
    assert len(gguf_projectors(source)) > 20
    assert has_projector(tmp_path, source) == has


def test_the_second_file_is_found_beside_the_first_and_has_a_type_of_its_own() -> None:
    path = Path("models/Seeing-Q8_0.gguf")
    second = projector_path(path)
    assert by_likelihood(["mmproj-aaa-Q8_0.gguf", second.name], path.name)[0] == second.name
    assert [projector_type(each) for each in ("BF16", "Q8_0", "TQ1_0")] == ["BF16", "Q8_0", "F16"]


@pytest.mark.parametrize(
    ("model", "normalizer", "splits", "name"),
    [
        (
            "WordPiece",
            {"type": "BertNormalizer", "lowercase": True},
            "BertPreTokenizer",
            "bert-bge",
        ),
        ("WordPiece", {"type": "BertNormalizer", "lowercase": False}, "BertPreTokenizer", ""),
        ("WordPiece", {"type": "Lowercase"}, "Whitespace", ""),
        ("BPE", {"type": "BertNormalizer", "lowercase": True}, "BertPreTokenizer", ""),
    ],
)
def test_a_vocabulary_of_word_pieces_is_recognised_by_its_rules(
    model: str, normalizer: dict[str, object], splits: str, name: str
) -> None:
    wrapper = run_path(str(data_path("toolchains", "converters", "convert_gguf.py")))
    stated = {
        "model": {"type": model},
        "normalizer": normalizer,
        "pre_tokenizer": {"type": splits},
    }
    assert wrapper["word_pieces_of"](stated) == name
