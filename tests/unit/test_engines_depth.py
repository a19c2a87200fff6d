"""A run at a depth restores a context that another run has filled, and counts what it restored."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.analysis.output_doubts import ContextDepth, doubts_about_output
from armload.analysis.summary import summarise
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.deploy.layout import STDERR_FILE, TRACE_FILE, Layout
from armload.engines.completion import BATCH_TOKENS, Completion
from armload.engines.contradictions import check_consistent
from armload.engines.llama_cpp import (
    context_tokens,
    restored_tokens,
    text_after_depth,
    whole_plan,
)
from armload.engines.plan import Plan
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.operations import mid_depth
from armload.runs.spreading import check_split
from tests.unit.runs import planned, quick_run
from tests.unit.samples import binary, trace

LAYOUT = Layout(workdir=PurePosixPath("/w"))
MATCHES = "I llama_completion: session file matches 600 / 607 tokens of prompt\n"
IS_SHORTER = "W main: session file has low similarity to prompt (64 / 607 tokens); will mostly"


@pytest.fixture(scope="module")
def model() -> Model:
    return model_called("word-problems:Q8_0", Silent())


def engine(model: Model, program: Path, **changes: object) -> Completion:
    program.write_bytes(b"\x7fELF\0--perf\0")
    plan = whole_plan(Plan.model_validate({"prompt_tokens": 8, "n_predict": 4} | changes), model)
    return Completion(plan, binary().model_copy(update={"path": program}), model)


def test_the_program_s_own_count_is_read() -> None:
    assert restored_tokens(MATCHES) == 600
    assert restored_tokens(IS_SHORTER) == 64
    assert restored_tokens("session file does not exist, will create.") == 0


def test_a_context_is_filled_with_the_text_that_runs_begin_with(
    model: Model, tmp_path: Path
) -> None:
    at = engine(model, tmp_path / "p", depth_tokens=100)
    filling = at.filling.plan
    assert (filling.prompt_tokens, filling.depth_tokens, filling.n_predict) == (100, 0, 1)
    assert filling.extra == ("--prompt-cache", "../context")
    for plan in (at.plan, Plan(prompt="What is this?", depth_tokens=100)):
        text = text_after_depth(plan, model)
        assert text.startswith(filling.prompt)
        assert text.endswith(plan.prompt.strip()) or plan.prompt_tokens


@pytest.mark.parametrize("depth", [BATCH_TOKENS + 1, 2 * BATCH_TOKENS + 1, 129])
@pytest.mark.parametrize("batch", [None, 1, 2, 128])
def test_the_last_token_that_fills_a_context_is_not_alone_in_its_batch(
    model: Model, tmp_path: Path, depth: int, batch: int | None
) -> None:
    large = model.model_copy(update={"context_length": 1 << 17})
    at = engine(model, tmp_path / "p", batch_tokens=batch, n_predict=1)
    plan = at.plan.model_copy(update={"depth_tokens": depth})
    chosen = Completion(plan, at.binary, large).filling.plan.batch_tokens
    assert chosen is not None
    assert chosen > 1
    assert depth % chosen != 1


def test_what_changes_the_state_has_a_context_of_its_own(model: Model, tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {},
        {"depth_tokens": 64},
        {"kv_type": "q8_0"},
        {"flash_attention": "on"},
        {"extra": ("--swa-full",)},
    ]
    places = [
        engine(model, tmp_path / "p", **{"depth_tokens": 100} | each).saved_context(LAYOUT)
        for each in changes
    ]
    assert len({*places}) == len(places)
    assert {place.parent.parent for place in places} == {LAYOUT.contexts}
    same = engine(model, tmp_path / "p", depth_tokens=100, threads=1, cpus="0", n_predict=9)
    assert same.saved_context(LAYOUT) == places[0]


def test_the_context_has_room_for_the_depth(model: Model) -> None:
    assert context_tokens(Plan(depth_tokens=300), model) >= 300 + Plan().n_predict
    with pytest.raises(UsageError, match="Depth, prompt and output"):
        context_tokens(Plan(depth_tokens=model.context_length), model)


def test_a_forecast_counts_what_is_in_the_context(model: Model) -> None:
    plan = Plan(prompt_tokens=8, n_predict=4)
    deep = plan.model_copy(update={"depth_tokens": 100})
    assert mid_depth(model, deep) == mid_depth(model, plan) + 100


LINE = (
    '{{"step":{step},"tokens":{tokens},"prompt_tokens":{prompt},"generated_tokens":{generated},'
    '"start_ns":{start},"end_ns":{end},"major_faults":0,"rss_bytes":1000,"cpu_ns":1}}\n'
)


def left(folder: Path, stderr: str) -> None:
    (folder / STDERR_FILE).write_text(stderr)
    kinds = [(1, 0), (8, 0), (0, 1), (0, 1)]
    lines = [
        LINE.format(
            step=number,
            tokens=prompt + generated,
            prompt=prompt,
            generated=generated,
            start=trace().start_ns + number * 1000,
            end=trace().start_ns + number * 1000 + 500,
        )
        for number, (prompt, generated) in enumerate(kinds)
    ]
    (folder / TRACE_FILE).write_text(trace().model_dump_json() + "\n" + "".join(lines))


def test_the_token_that_ends_the_restoring_is_no_prompt(tmp_path: Path) -> None:
    left(tmp_path, f"{MATCHES}I llama_completion: replayed last token from session\n")
    run = planned(quick_run(), depth_tokens=600, prompt_tokens=8, n_predict=3)
    output = Completion.read(run, tmp_path)
    assert output.restored_tokens == 600
    assert [each.prompt_tokens for each in output.steps] == [0, 8, 0, 0]
    assert summarise(output.header, output.steps).prefill_tokens == 8
    assert not [each for each in doubts_about_output(run, output) if each.name == "context depth"]


def test_a_context_that_was_not_restored_makes_a_run_invalid(tmp_path: Path) -> None:
    left(tmp_path, "session file does not exist, will create.\n")
    run = planned(quick_run(), depth_tokens=600, n_predict=3)
    found = doubts_about_output(run, Completion.read(run, tmp_path))
    assert ContextDepth(requested_tokens=600, restored_tokens=0) in found


def test_what_cannot_restore_a_context_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="--depth 9 with --speculate ngram"):
        check_consistent(Plan(depth_tokens=9, speculate="ngram"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "pair.yaml").write_text("members: [a, b]\n")
    with pytest.raises(UsageError, match="pair is a group"):
        check_split(["pair"], [Plan(depth_tokens=9)])
