from __future__ import annotations

from armload.analysis.stages import notes_about_stages, stages_of
from armload.engines.job import BinaryRecord, MediaRecord, ModelRecord, ProjectorRecord, RunSpec
from armload.engines.trace import Stage, Step, Trace

HEADER = Trace(format=2, clock="CLOCK_MONOTONIC", page_bytes=4096, start_ns=0)
MS = 1_000_000


def _step(number: int, start: int, end: int, *, stage: Stage | None = None, **tokens: int) -> Step:
    return Step(
        step=number,
        sequences=1,
        tokens=tokens.get("prompt_tokens", 0) + tokens.get("generated_tokens", 0),
        start_ns=start * MS,
        end_ns=end * MS,
        major_faults=0,
        read_bytes=10,
        rss_bytes=1000 + number,
        cpu_ns=(end - start) * MS,
        stage=stage,
        **tokens,
    )


STEPS = (
    _step(0, 100, 110, stage="preprocessing"),
    _step(1, 110, 120, prompt_tokens=5),
    _step(2, 120, 820, stage="encoder"),
    _step(3, 820, 920, prompt_tokens=1024, media_tokens=1024),
    _step(4, 920, 950, prompt_tokens=7),
    _step(5, 950, 960, generated_tokens=1),
)


def _spec(*, limits: bool) -> RunSpec:
    return RunSpec(
        binary=BinaryRecord(program="llama-mtmd-cli", sha256=""),
        model=ModelRecord(name="m", sha256="", size_bytes=1),
        projector=ProjectorRecord(kind="lfm2", sha256="", size_bytes=1, limits_tokens=limits),
        images=(MediaRecord(name="a.png", sha256="", size_bytes=1),),
    )


def test_each_part_has_its_time_and_together_they_are_the_whole() -> None:
    found = {each.name: each for each in stages_of(HEADER, STEPS)}
    seconds = {name: round(each.seconds, 3) for name, each in found.items()}
    assert seconds == {
        "loading": 0.1,
        "preprocessing": 0.01,
        "encoder": 0.7,
        "media tokens": 0.1,
        "prompt": 0.04,
        "output": 0.01,
    }
    assert found["media tokens"].tokens == 1024
    assert found["prompt"].tokens == 12
    assert found["encoder"].read_bytes == 10
    assert found["encoder"].rss_bytes == 1002


def test_a_run_of_texts_has_no_stages() -> None:
    assert stages_of(HEADER, [step for step in STEPS if step.stage is None]) == ()


def test_a_run_of_several_prompts_has_no_time_to_the_first_token() -> None:
    assert stages_of(HEADER, (*STEPS, *STEPS)) == ()


def test_a_slow_encoder_is_told_with_a_limit_where_there_is_one() -> None:
    stages = stages_of(HEADER, STEPS)
    (with_limit,) = notes_about_stages(_spec(limits=True), stages, 0.95)
    assert "The encoder took 700 ms of the 950 ms to the first token" in with_limit
    assert "--image-max-tokens 256 it would take about 175 ms" in with_limit
    (without,) = notes_about_stages(_spec(limits=False), stages, 0.95)
    assert "--image-max-tokens" not in without
    assert "for 1,024 image tokens." in without


def test_an_encoder_that_takes_little_of_the_time_is_not_mentioned() -> None:
    assert not list(notes_about_stages(_spec(limits=True), stages_of(HEADER, STEPS), 7.0))
