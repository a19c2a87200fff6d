"""The trace: one line for each step, from engines before and after the change of their API."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from armload.analysis.summary import generating, prompting
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.cpu_sets import cpu_numbers
from armload.core.progress import Silent
from armload.models.shape import Shape
from armload.models.synth import synthesise
from tests.outside_data import shared
from tests.system.engines import (
    LAST_WITH_DECODE,
    Ran,
    command,
    engine,
    read_trace,
    run,
)

pytestmark = pytest.mark.build

PROMPT = "Once upon a time"
PROMPT_TOKENS = 5


older = pytest.mark.exhaustive(
    covers=["armload/build", "armload/engines/completion.py", "toolchains"]
)


@pytest.fixture(scope="module", params=["llama_process", pytest.param("llama_decode", marks=older)])
def binary(request: pytest.FixtureRequest) -> Binary:
    return engine(None if request.param == "llama_process" else LAST_WITH_DECODE)


def test_the_program_is_the_one_that_continues_a_prompt(binary: Binary) -> None:
    is_old = LAST_WITH_DECODE.version in binary.source
    assert binary.program == ("llama-cli" if is_old else "llama-completion")


def test_text_is_the_model_authors_and_each_token_has_its_step(
    binary: Binary, stories: Path, tmp_path: Path
) -> None:
    ran = run(binary, stories, tmp_path, PROMPT, "-n", "252")
    expected = shared("stories260K.expected.txt").read_text()
    assert ran.text.strip().removeprefix(PROMPT).rstrip() == expected.rstrip()
    assert ran.prompts == [PROMPT_TOKENS]
    assert ran.generated == [1] * 251
    assert [step.step for step in ran.steps] == list(range(252))
    assert {(step.model, step.sequences) for step in ran.steps} == {(0, 1)}
    assert {(step.speculated_tokens, step.accepted_tokens) for step in ran.steps} == {(0, 0)}
    counts = {phase: count for phase, (_, count) in ran.engine_sums().items()}
    assert counts == {"prompt": PROMPT_TOKENS, "generate": 251}


@older
def test_steps_follow_each_other_on_one_clock(
    binary: Binary, stories: Path, tmp_path: Path
) -> None:
    ran = run(binary, stories, tmp_path, PROMPT, "-n", "20")
    times = [ran.header.start_ns]
    for step in ran.steps:
        times += [step.start_ns, step.end_ns]
        assert step.cpu_ns > 0
        assert step.rss_bytes > stories.stat().st_size
        assert step.major_faults >= 0
        assert step.involuntary_switches is not None
        assert step.involuntary_switches >= 0
    assert times == sorted(times)


def test_the_header_says_what_ran(binary: Binary, stories: Path, tmp_path: Path) -> None:
    header = run(binary, stories, tmp_path, PROMPT, "-n", "2", "-t", "3").header
    assert header.format == 2
    assert header.clock == "CLOCK_MONOTONIC"
    assert header.threads == 3
    assert header.page_bytes in {4096, 16384, 65536}
    assert header.engine_commit == binary.engine_commit
    assert header.khz_cores is not None
    assert header.allowed_cores is not None
    assert set(cpu_numbers(header.allowed_cores)) == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("extra", "prompt_steps"),
    [
        (["--no-warmup"], [5]),
        pytest.param([], [5], marks=older),
        pytest.param(["--no-warmup", "-b", "3"], [3, 2], marks=older),
        pytest.param(["-b", "4"], [4, 1], marks=older),
        pytest.param(["-b", "1"], [1, 1, 1, 1, 1], marks=older),
        (["--no-warmup", "-b", "2"], [2, 2, 1]),
    ],
)
def test_a_prompt_is_told_from_generated_tokens_however_it_is_cut(
    binary: Binary, stories: Path, tmp_path: Path, extra: list[str], prompt_steps: list[int]
) -> None:
    ran = run(binary, stories, tmp_path, PROMPT, "-n", "6", *extra)
    assert ran.prompts == prompt_steps
    assert ran.generated == [1] * 5


@older
@pytest.mark.parametrize("extra", [[], ["--no-warmup"]])
def test_a_prompt_of_one_token_is_a_prompt(
    binary: Binary, stories: Path, tmp_path: Path, extra: list[str]
) -> None:
    ran = run(binary, stories, tmp_path, "", "-n", "3", *extra)
    assert (ran.prompts, ran.generated) == ([1], [1, 1])


@older
def test_one_generated_token_needs_the_prompts_step_alone(
    binary: Binary, stories: Path, tmp_path: Path
) -> None:
    ran = run(binary, stories, tmp_path, PROMPT, "-n", "1")
    assert (ran.prompts, len(ran.steps)) == ([PROMPT_TOKENS], 1)


def test_the_traces_sums_are_the_engines_within_one_percent(binary: Binary, tmp_path: Path) -> None:
    shape = Shape(
        layers=4,
        width=512,
        feed_forward=1536,
        heads=8,
        kv_heads=4,
        vocabulary=2048,
        context_length=256,
    )
    model = tmp_path / "model.gguf"
    synthesise(shape, model, quantisation="Q8_0", seed=1, progress=Silent())
    # A machine with other work can only drive the two apart, for a moment: one of some runs agrees.
    assert any(
        agree(run(binary, model, tmp_path, "Once upon a time there was", "-n", "40"))
        for _ in "12345"
    )


def agree(ran: Ran) -> bool:
    sums = ran.engine_sums()
    assert set(sums) == {"prompt", "generate"}
    steps = {"prompt": prompting(ran.steps), "generate": generating(ran.steps)}
    return all(
        1000 * sum(step.duration_s for step in steps[phase]) == pytest.approx(engine_ms, rel=0.01)
        for phase, (engine_ms, _) in sums.items()
    )


@older
def test_a_programs_last_words_are_never_lost(
    binary: Binary, stories: Path, tmp_path: Path
) -> None:
    for _ in range(20):
        ran = run(binary, stories, tmp_path, PROMPT, "-n", "4")
        assert set(ran.engine_sums()) == {"prompt", "generate"}
        assert ran.text.endswith("\n\n")


@older
def test_the_text_is_the_same_without_a_trace_and_none_is_written(
    binary: Binary, stories: Path, tmp_path: Path
) -> None:
    traced = run(binary, stories, tmp_path, PROMPT, "-n", "40")
    (tmp_path / "trace.jsonl").unlink()
    untraced = subprocess.run(
        command(binary, stories, PROMPT, ["-n", "40"]),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != "ARMLOAD_TRACE"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert untraced.stdout == traced.text
    assert list(tmp_path.iterdir()) == []


@older
def test_a_trace_that_cannot_be_written_is_said_and_the_run_goes_on(
    binary: Binary, stories: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        command(binary, stories, PROMPT, ["-n", "2"]),
        stdin=subprocess.DEVNULL,
        env=os.environ | {"ARMLOAD_TRACE": str(tmp_path / "absent" / "trace.jsonl")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cannot be opened: No such file or directory" in done.stderr
    assert PROMPT in done.stdout


def test_a_killed_program_leaves_whole_lines(binary: Binary, stories: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with subprocess.Popen(
        command(binary, stories, PROMPT, ["-n", "400", "-c", "512"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"ARMLOAD_TRACE": str(trace)},
    ) as process:
        while process.poll() is None and (
            not trace.exists() or trace.read_bytes().count(b"\n") < 10
        ):
            time.sleep(0.01)
        process.kill()
    lines = trace.read_text().splitlines(keepends=True)
    assert len(lines) >= 10
    assert all(line.endswith("\n") and json.loads(line) for line in lines[:-1])


def test_a_trace_with_a_limit_keeps_its_newest_steps_in_two_files(
    binary: Binary, stories: Path, tmp_path: Path
) -> None:
    trace, limit_bytes = tmp_path / "trace.jsonl", 20_000
    subprocess.run(
        command(binary, stories, PROMPT, ["-n", "252"]),
        stdin=subprocess.DEVNULL,
        env=os.environ | {"ARMLOAD_TRACE": str(trace), "ARMLOAD_TRACE_BYTES": str(limit_bytes)},
        capture_output=True,
        check=True,
    )
    files = [tmp_path / "trace.jsonl.1", trace]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    longest_bytes = 2000
    assert limit_bytes <= files[0].stat().st_size <= limit_bytes + longest_bytes
    assert trace.stat().st_size <= limit_bytes + longest_bytes
    (first, older_steps), (second, newer_steps) = map(read_trace, files)
    assert first == second
    numbers = [step.step for step in (*older_steps, *newer_steps)]
    assert numbers == list(range(numbers[0], 252))
    assert numbers[0] > 0


@older
def test_the_chat_client_is_traced_too(stories: Path, tmp_path: Path) -> None:
    (client,) = build(load_target("rk3568"), programs=["llama-cli"])
    ran = run(client, stories, tmp_path, PROMPT, "--single-turn", "-n", "20")
    (prompt_tokens,) = ran.prompts
    assert prompt_tokens > PROMPT_TOKENS  # the chat template's words are around it
    assert ran.generated == [1] * 19
