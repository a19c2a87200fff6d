"""The trained model that is part of the package: its names, its files, its vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader

from armload.core.errors import UsageError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.engines.llama_cpp import whole_plan
from armload.engines.plan import Plan
from armload.models.find import model_called, resolve
from armload.models.packaged import QUANTISATIONS, WORD_PROBLEMS, packaged_name
from training.word_problems.examples import learned_vocabulary

LARGEST_BYTES = 6_000_000
BLOCK = 256


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def shipped(quantisation: str) -> Path:
    return resolve(WORD_PROBLEMS + quantisation, Silent())


def test_its_names_lead_to_whole_models_of_that_type() -> None:
    for name in ("word-problems:Q8_0", "word-problems:q8_0", "word-problems:Q2_K"):
        model = model_called(name, Silent())
        assert model.quantisation == name.partition(":")[2].upper()
        assert model.architecture == "llama"


@pytest.mark.parametrize("name", ["word-problems:", "word-problems:Q4_0"])
def test_another_type_is_refused_and_the_names_are_offered(name: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        resolve(name, Silent())
    assert "word-problems:Q8_0, word-problems:Q2_K" in str(caught.value.remedy)


def test_it_is_asked_a_problem_unless_a_prompt_is_given() -> None:
    model = model_called("word-problems:Q2_K", Silent())
    asked = whole_plan(Plan(n_predict=99), model)
    assert asked.prompt.startswith("Question: ")
    assert asked.prompt.endswith("\nAnswer:")
    assert asked.stop_at_end
    given = Plan(prompt="Once")
    assert whole_plan(given, model) == given
    of_words = whole_plan(Plan(prompt_tokens=8), model)
    assert not of_words.prompt.startswith("Question: ")
    assert not of_words.stop_at_end


def test_a_file_is_recognised_by_its_checksum_whatever_it_is_called() -> None:
    for quantisation in QUANTISATIONS:
        file = shipped(quantisation)
        assert packaged_name(sha256_of(file)) == file.name
    assert packaged_name("0" * 64) == ""


def test_the_files_are_small() -> None:
    assert sum(shipped(each).stat().st_size for each in QUANTISATIONS) <= LARGEST_BYTES


def test_every_row_takes_whole_blocks_of_k_quants() -> None:
    for tensor in GGUFReader(shipped("Q8_0")).tensors:
        assert tensor.shape[0] % BLOCK == 0


def test_the_matrices_have_the_types_that_the_names_say() -> None:
    for quantisation in QUANTISATIONS:
        tensors = GGUFReader(shipped(quantisation)).tensors
        types = {each.tensor_type.name for each in tensors if len(each.shape) > 1}
        assert types == {quantisation}


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_the_vocabulary_is_the_one_that_training_learns(quantisation: str) -> None:
    fields = GGUFReader(shipped(quantisation)).fields
    learned = learned_vocabulary()
    assert tuple(fields["tokenizer.ggml.tokens"].contents()) == learned.tokens
    assert tuple(fields["tokenizer.ggml.scores"].contents()) == learned.scores
    assert "Answer:" in fields["tokenizer.chat_template"].contents()
