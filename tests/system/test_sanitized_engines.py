"""The engine and the scorer under sanitizers: any report that no file explains fails."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from armload.models.vocabulary import english_words
from tests.system.sanitized import Models, Sanitized, engines, random_models
from tests.system.streaming import streamed, traced
from tests.waiting import wait_until

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

PROGRAMS = ("llama-completion", "llama-speculative-simple", "armload-score")
WORDS = ("--no-repack", "--poll", "0", "-t", "2", "-c", "1024", "--ignore-eos", "--temp", "0")
REPEATED = "one two three four. " * 5 + "one two"
SMALL_DRAFTS = ("--spec-type", "draft-simple", "--spec-draft-n-max", "4", "-md")
NGRAMS = (
    *("--spec-type", "ngram-simple"),
    *("--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "4"),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return random_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return engines(request.param, tmp_path_factory, *PROGRAMS)


def completion(built: Sanitized, model: Path, count: int, *more: object) -> list[str]:
    words = ("-m", model, "-n", count, *WORDS, "--no-warmup", "-no-cnv")
    return built.words("llama-completion", *words, *more)


def long_prompt(folder: Path, tokens: int) -> Path:
    path = folder / "prompt"
    path.write_text(" ".join(english_words()[:tokens]))
    return path


@pytest.mark.parametrize("tokens", [1, 64, 600])
@pytest.mark.parametrize("model", ["small", "mixture"])
def test_prompts_of_any_length(
    built: Sanitized, models: Models, tmp_path: Path, tokens: int, model: str
) -> None:
    path: Path = getattr(models, model)
    prompt = long_prompt(tmp_path, tokens)
    words = completion(built, path, 4, "-f", prompt, "-b", 256, "-ub", 128)
    expected = built.runs(words)
    for resident_bytes, reads in ((0, "direct"), (6 << 20, "buffered"), (60 << 20, "")):
        variables = streamed(resident_bytes) | {"ARMLOAD_READS": reads}
        found = built.runs(words, variables)
        assert (found.status, found.out) == (0, expected.out), found.log


@pytest.mark.parametrize(
    ("model", "drafts"), [("small", "smaller"), ("mixture", "same"), ("mixture", "text")]
)
def test_speculation(
    built: Sanitized, models: Models, tmp_path: Path, model: str, drafts: str
) -> None:
    path: Path = getattr(models, model)
    drafting = {
        "smaller": (*SMALL_DRAFTS, models.draft),
        "same": (*SMALL_DRAFTS, path),
        "text": NGRAMS,
    }[drafts]
    plan = ("-m", path, "-p", REPEATED, "-n", 8, *WORDS, "-t", 1, *drafting)
    words = built.words("llama-speculative-simple", *plan)
    expected = built.runs(words)
    assert expected.status == 0, expected.log
    assert "n_drafted" in expected.log
    for resident_bytes in (0, 4 << 20):
        trace = tmp_path / str(resident_bytes)
        found = built.runs(words, streamed(resident_bytes) | {"ARMLOAD_TRACE": str(trace)})
        assert (found.status, found.out) == (0, expected.out), found.log
        header, steps = traced(trace)
        assert header.weights[0].weights == "streamed"
        assert sum(step.speculated_tokens for step in steps) > 0


def await_steps(trace: Path, phase: str, process: subprocess.Popen[str]) -> None:
    """Wait until two steps have processed a prompt, or generated."""

    def are_there() -> bool:
        lines = trace.read_text().splitlines() if trace.exists() else []
        return sum(f'"{phase}_tokens":{count}' in line for line in lines for count in (1, 16)) > 1

    wait_until(are_there, process, within_s=300)


def ends_by(
    built: Sanitized, process: subprocess.Popen[str], number: signal.Signals, trace: Path
) -> None:
    process.send_signal(number)
    done = built.ended(process)
    # llama-completion itself ends by SIGINT; the other one ends it.
    expected = 130 if number == signal.SIGINT else -number
    assert done.status == expected, done.log
    traced(trace)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("phase", ["prompt", "generated"])
@pytest.mark.parametrize("model", ["small", "mixture"])
def test_signals_while_it_computes(
    *, built: Sanitized, models: Models, tmp_path: Path, model: str, phase: str, number: int
) -> None:
    path: Path = getattr(models, model)
    prompt = long_prompt(tmp_path, 600 if phase == "prompt" else 3)
    words = completion(built, path, 900, "-f", prompt, "-b", 16, "-t", 1)
    pauses = random.Random(1)
    for resident_bytes in (0, 4 << 20):
        trace = tmp_path / f"{resident_bytes}.jsonl"
        variables = streamed(resident_bytes) | {"ARMLOAD_TRACE": str(trace)}
        process = built.starts(words, variables)
        await_steps(trace, phase, process)
        time.sleep(pauses.uniform(0, 0.1))
        ends_by(built, process, signal.Signals(number), trace)


@pytest.mark.parametrize("items", [".", "missing", "/proc/self/mem", "/dev/zero"])
def test_items_that_cannot_be_read(
    built: Sanitized, models: Models, tmp_path: Path, items: str
) -> None:
    words = built.words("armload-score", "-m", models.small, "--items", items, "-c", 64)
    done = built.runs(words, folder=tmp_path)
    assert (done.status, done.out) == (1, ""), done.log
    assert f"armload-score: {items}" in done.log
