"""The engine and the scorer under sanitizers: any report that no file explains fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from armload.core.progress import Silent
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.models.vocabulary import english_words
from tests.system.sanitized import Sanitized, engines
from tests.system.streaming import streamed

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(
        covers=[
            "toolchains/board",
            "toolchains/native",
            "toolchains/overlay",
            "toolchains/sources",
            "tests/system/sanitized.py",
            "tests/system/sanitizers",
        ]
    ),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")

SMALL = Shape(
    layers=3,
    width=512,
    feed_forward=1024,
    heads=8,
    kv_heads=8,
    vocabulary=2048,
    context_length=1024,
)
MIXTURE = Shape(
    architecture="qwen3moe",
    layers=3,
    width=256,
    feed_forward=512,
    heads=4,
    kv_heads=2,
    head_width=64,
    vocabulary=2048,
    context_length=1024,
    experts=16,
    experts_used=2,
    expert_feed_forward=96,
)
"""An expert's matrix is no whole pages."""

WORDS = ("--no-warmup", "--no-repack", "--poll", "0", "-t", "2", "-c", "1024", "--ignore-eos")


class Models(NamedTuple):
    """Files of models with random weights."""

    small: Path
    mixture: Path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    found = Models(*(folder / f"{name}.gguf" for name in Models._fields))
    for path, shape in ((found.small, SMALL), (found.mixture, MIXTURE)):
        synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())
    return found


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return engines(request.param, tmp_path_factory.mktemp("sanitized"))


def completion(built: Sanitized, model: Path, count: int, *more: object) -> list[str]:
    words = ("-m", model, "-n", count, *WORDS, "--temp", 0, "-no-cnv")
    prompt = () if {"-f", "-p"} & set(more) else ("-p", "one two three")
    return built.words("llama-completion", *words, *prompt, *more)


@pytest.mark.parametrize("tokens", [1, 64, 600])
@pytest.mark.parametrize("model", ["small", "mixture"])
def test_prompts_of_any_length(
    built: Sanitized, models: Models, tmp_path: Path, tokens: int, model: str
) -> None:
    path: Path = getattr(models, model)
    prompt = tmp_path / "prompt"
    prompt.write_text(" ".join(english_words()[:tokens]))
    words = completion(built, path, 4, "-f", prompt, "-b", 256, "-ub", 128)
    expected = built.runs(words)
    for resident_bytes, reads in ((0, "direct"), (6 << 20, "buffered"), (60 << 20, "")):
        variables = streamed(resident_bytes) | {"ARMLOAD_READS": reads}
        found = built.runs(words, variables)
        assert (found.status, found.out) == (0, expected.out), found.log


@pytest.mark.parametrize("items", [".", "missing", "/proc/self/mem", "/dev/zero"])
def test_items_that_cannot_be_read(
    built: Sanitized, models: Models, tmp_path: Path, items: str
) -> None:
    words = built.words("armload-score", "-m", models.small, "--items", items, "-c", 64)
    done = built.runs(words, folder=tmp_path)
    assert (done.status, done.out) == (1, ""), done.log
    assert f"armload-score: {items}" in done.log
