"""Models of random weights in the real engine."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.local import LocalHost
from armload.core.progress import Silent
from armload.deploy.exit_reason import explain
from armload.models.blocks import TYPES
from armload.models.shape import load_shape
from armload.models.synth import synthesise, synthesise_like
from armload.models.vocabulary import english_words
from tests.contract.launching import run_to_end
from tests.outside_data import shared
from tests.system.engines import command, engine, run
from tests.unit.shapes import with_few_words
from tests.unit.test_models_gguf import written
from tests.unit.test_models_synth import SMALL

pytestmark = pytest.mark.build

SHAPE = SMALL.model_copy(update={"context_length": 256})
PROMPT = "I believe: 1 + 1 = 2, naïve 🙂\n"


USUAL = ("F16", "Q4_0", "Q8_0", "Q4_K")
similar = pytest.mark.exhaustive(covers=["armload/models", "toolchains"])


@pytest.mark.parametrize(
    "quantisation",
    [each if each in USUAL else pytest.param(each, marks=similar) for each in TYPES],
)
def test_the_engine_runs_a_made_model_which_answers_in_english_words(
    quantisation: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    synthesise(SHAPE, model, quantisation=quantisation, seed=1, progress=Silent())
    arguments = ["-n", "24", "-c", "256", "--ignore-eos", "--no-display-prompt", "--check-tensors"]
    completed = subprocess.run(
        command(engine(None), model, PROMPT, arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )
    said = completed.stdout.decode("utf-8").split()
    assert len(said) == 24
    assert set(said) <= set(english_words())
    assert len(set(said)) > 4


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "qwen3-30b-a3b"]
)
def test_the_engine_runs_a_model_of_each_family_which_answers_in_words_made_of_words(
    name: str, tmp_path: Path
) -> None:
    sizes = {"layers": 2, "width": 256, "feed_forward": 512, "heads": 4, "kv_heads": 2}
    shape = with_few_words(name, compounds=6000).model_copy(update=sizes)
    if shape.experts:
        shape = shape.model_copy(update={"experts": 16, "expert_feed_forward": 256})
    model = tmp_path / "model.gguf"
    synthesise_like(shape, model, file_type="Q3_K_M", seed=1, progress=Silent())
    arguments = ["-n", "24", "-c", "256", "--ignore-eos", "--no-display-prompt", "--check-tensors"]
    ran = run(engine(None), model, tmp_path, PROMPT, *arguments)
    said = ran.text.split()
    assert len(said) == 24
    assert len(set(said)) > 4
    known = {word.casefold() for word in english_words()}
    assert all(_is_made_of(word.casefold(), known) for word in said), said


def _is_made_of(word: str, known: set[str]) -> bool:
    return not word or any(
        word.startswith(part) and _is_made_of(word.removeprefix(part), known) for part in known
    )


def test_a_real_and_a_made_model_of_one_shape_take_the_same_steps(tmp_path: Path) -> None:
    made = tmp_path / "made.gguf"
    synthesise_like(load_shape("stories260k"), made, file_type="F32", seed=1, progress=Silent())
    arguments = ["-n", "20", "--ignore-eos"]
    steps = {}
    for model in (made, shared("stories260K.gguf")):
        ran = run(engine(None), model, tmp_path, "Once upon a time", *arguments)
        steps[model.name] = (len(ran.prompts), ran.generated)
    assert steps["made.gguf"] == steps["stories260K.gguf"] == (1, [1] * 19)


def test_an_abort_of_the_engine_is_told_by_its_assertion_without_a_debugger(
    tmp_path: Path,
) -> None:
    """A model that is refused before it is copied, put there all the same."""
    model = written(tmp_path / "m.gguf", experts=(0, 8))
    words = command(engine(None), model, "x", ["-n", "2"])
    here = tmp_path / "here"
    with closing(LocalHost("my-board")) as host:
        assert run_to_end(host, PurePosixPath(tmp_path / "work"), here, *words) == 134
    meaning = explain(here).meaning
    assert re.fullmatch(r"the program aborted \(SIGABRT\): \S+:\d+: GGML_ASSERT.* failed", meaning)
    assert "LWP" not in (here / "stderr").read_text()
