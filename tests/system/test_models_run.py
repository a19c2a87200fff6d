"""Models of random weights in the real engine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from armload.core.progress import Silent
from armload.models.blocks import TYPES
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.models.vocabulary import english_words
from tests.system.engines import command, engine

pytestmark = pytest.mark.build

SHAPE = Shape(
    layers=2,
    width=256,
    feed_forward=512,
    heads=4,
    kv_heads=2,
    vocabulary=2048,
    context_length=256,
)
PROMPT = "I believe: 1 + 1 = 2, naïve 🙂\n"


@pytest.mark.parametrize("quantisation", TYPES)
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
