"""The trace of a server with four slots, and of speculative decoding: its sums are the server's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from armload.build.builder import build
from armload.build.source import Source
from armload.build.target import load_target
from armload.engines.trace import Step, read_trace
from tests.outside_data import shared
from tests.recurrent import recurrent_model
from tests.system.engines import LAST_WITH_DECODE
from tests.system.llama_servers import Server, serving

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(covers=["armload/engines/trace.py", "toolchains"]),
]

PROMPTS = ["Once upon a time", "The dog", "One day, a girl named Lily", "Tom and Mia"]
REPEATED = "One day Tom saw a cat. " * 4


@pytest.fixture(scope="module", params=["llama_process", "llama_decode"])
def source(request: pytest.FixtureRequest) -> Source | None:
    return None if request.param == "llama_process" else LAST_WITH_DECODE


@pytest.fixture(scope="module")
def program(source: Source | None) -> Path:
    (binary,) = build(load_target("host"), programs=["llama-server"], source=source)
    return binary.path


def drafts() -> list[str]:
    model = str(shared("stories260K.gguf"))
    return ["-md", model, "--spec-type", "draft-simple", "--spec-draft-n-max", "4"]


def steps_of(folder: Path, *, model: int = 0) -> list[Step]:
    _, steps = read_trace(folder / "trace.jsonl")
    for step in steps:
        parts = (step.prompt_tokens, step.generated_tokens, step.speculated_tokens)
        assert step.tokens == sum(parts)
    return [step for step in steps if step.model == model]


def accepted(folder: Path, steps: Sequence[Step]) -> int:
    header, _ = read_trace(folder / "trace.jsonl")
    assert header is not None
    return sum(step.accepted_tokens for step in steps) + header.last_accepted_tokens


def assert_sums_agree(server: Server, folder: Path, *, again: int = 0) -> None:
    steps = steps_of(folder)
    generated = sum(step.generated_tokens for step in steps)
    # Each answer's first token comes out of its prompt; its last is sampled and never decoded.
    decoded = server.sum("predicted_n") - len(server.timings)
    assert sum(step.prompt_tokens for step in steps) == server.sum("prompt_n") + again
    assert sum(step.speculated_tokens for step in steps) == server.sum("draft_n")
    assert accepted(folder, steps) == server.sum("draft_n_accepted")
    assert generated + accepted(folder, steps) == decoded


def test_four_slots(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path, "-np", "4", "-c", "2048") as server:
        # On a busy machine one answer may be there before the next request arrives.
        for _ in range(20):
            server.complete_all(PROMPTS, [140, 125, 160, 133])
            steps = steps_of(tmp_path)
            if any(step.generated_tokens == step.sequences == 4 for step in steps):
                break
        else:
            pytest.fail("the four slots never worked together")
    assert_sums_agree(server, tmp_path)


def test_a_prompt_in_small_batches(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path, "-np", "4", "-c", "2048", "-b", "8") as server:
        for _ in range(20):
            server.complete_all([REPEATED, *PROMPTS[1:]], [30] * 4)
            if any(step.prompt_tokens and step.generated_tokens for step in steps_of(tmp_path)):
                break
        else:
            pytest.fail("no step processed a prompt and generated")
    assert_sums_agree(server, tmp_path)


def test_a_prompt_that_adds_one_token_to_an_answer_is_a_prompt(
    program: Path, tmp_path: Path
) -> None:
    with serving(program, tmp_path, "-np", "1", "-c", "512") as server:
        text = "Once upon a time there was a dog"
        words = server.ask("tokenize", content=text, add_special=True)["tokens"]
        for count in range(3, len(words)):
            server.complete(words[:count], 1)
    assert server.timings[-1]["prompt_n"] == 1
    assert_sums_agree(server, tmp_path)


def test_drafts_of_a_model_that_guesses_right(
    program: Path, source: Source | None, tmp_path: Path
) -> None:
    options = drafts() if source is None else ["-md", str(shared("stories260K.gguf"))]
    with serving(program, tmp_path, "-np", "1", "-c", "512", *options) as server:
        server.complete(PROMPTS[0], 60)
        server.complete(PROMPTS[1], 60)
    assert_sums_agree(server, tmp_path)
    assert server.sum("draft_n") > 20
    assert server.sum("draft_n_accepted") >= 0.9 * server.sum("draft_n")
    drafting = steps_of(tmp_path, model=1)
    assert drafting
    assert not any(step.speculated_tokens for step in drafting)


@pytest.fixture
def only_newer(source: Source | None) -> None:
    if source is not None:
        pytest.skip("this llama.cpp has no such option")


@pytest.mark.usefixtures("only_newer")
@pytest.mark.parametrize("slots", [1, 4])
def test_drafts_of_which_some_are_refused(program: Path, tmp_path: Path, slots: int) -> None:
    options = [*drafts(), "--spec-synth-rates", "0.8,0.6,0.4,0.2"]
    with serving(program, tmp_path, "-np", str(slots), "-c", "2048", *options) as server:
        server.complete_all(PROMPTS, [60] * 4)
    assert_sums_agree(server, tmp_path)
    assert 0 < server.sum("draft_n_accepted") < server.sum("draft_n")


@pytest.mark.usefixtures("only_newer")
def test_drafts_for_a_model_that_cannot_take_tokens_back(program: Path, tmp_path: Path) -> None:
    model = recurrent_model(shared("stories260K.gguf"), tmp_path / "recurrent.gguf")
    options = ["-np", "4", "-c", "2048", *drafts(), "--spec-synth-rates", "0.8,0.6,0.4,0.2"]
    with serving(program, tmp_path, *options, model=model) as server:
        server.complete_all(PROMPTS, [60] * 4)
    again = sum(step.prompt_tokens for step in steps_of(tmp_path)) - server.sum("prompt_n")
    assert again > 0
    assert_sums_agree(server, tmp_path, again=again)


@pytest.mark.usefixtures("only_newer")
@pytest.mark.parametrize("slots", [1, 4])
def test_drafts_from_the_text_itself(program: Path, tmp_path: Path, slots: int) -> None:
    options = ["--spec-type", "ngram-simple"]
    with serving(program, tmp_path, "-np", str(slots), "-c", "2048", *options) as server:
        server.complete_all([REPEATED, *PROMPTS[1:]], [120] * 4)
    assert_sums_agree(server, tmp_path)
    assert server.sum("draft_n") > 0
    assert {step.model for step in steps_of(tmp_path)} == {0}


@pytest.mark.usefixtures("only_newer")
def test_tokens_that_the_engine_samples_itself(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path, "-np", "4", "-c", "2048", "--backend-sampling") as server:
        server.complete_all(PROMPTS, [30] * 4)
    assert_sums_agree(server, tmp_path)


@pytest.mark.usefixtures("only_newer")
def test_several_answers_to_one_prompt(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path, "-np", "4", "-c", "2048") as server:
        answer = server.ask(
            "v1/completions", prompt=PROMPTS[0], n=3, max_tokens=20, ignore_eos=True
        )
    usage, steps = answer["usage"], steps_of(tmp_path)
    assert len(answer["choices"]) == 3
    assert sum(step.prompt_tokens for step in steps) == usage["prompt_tokens"]
    assert sum(step.generated_tokens for step in steps) == 3 * 19
