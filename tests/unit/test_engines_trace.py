"""Traces are read whole, and summaries are computed from their steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.analysis.summary import quantile, summarise
from armload.core.errors import DataError
from armload.engines.trace import read_trace
from tests.unit.samples import step, steps_with_prompt, trace


def lines(count: int) -> list[str]:
    header = trace().model_dump_json()
    return [header, *(step(number).model_dump_json() for number in range(count))]


def test_a_whole_trace_gives_its_header_and_every_step(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines(3)) + "\n")
    header, steps = read_trace(path)
    assert header == trace()
    assert steps == tuple(step(number) for number in range(3))


def test_a_last_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    text = "\n".join(lines(3)) + "\n"
    for cut in range(1, len(lines(3)[-1])):
        path.write_text(text[: -cut - 1])
        assert len(read_trace(path)[1]) == 2


def test_no_trace_is_no_error(tmp_path: Path) -> None:
    assert read_trace(tmp_path / "none") == (None, ())


@pytest.mark.parametrize("number", [1, 2])
def test_a_line_that_no_trace_library_wrote_is_named(tmp_path: Path, number: int) -> None:
    path = tmp_path / "trace.jsonl"
    content = lines(2)
    content[number - 1] = json.dumps({"something": "else"})
    path.write_text("\n".join(content) + "\n")
    with pytest.raises(DataError, match=f"line {number}: "):
        read_trace(path)


@pytest.mark.parametrize(
    "change",
    [
        '"accepted_tokens":-1',
        f'"rss_bytes":{"9" * 5000}',
        f'"rss_bytes":{2**63}',
        '"tokens":1000000000000',
        '"celsius":NaN',
        '"celsius":1e999',
        '"end_ns":0',
        f'"celsius":{"[" * 10_000}{"]" * 10_000}',
        f'"celsius":{"[" * 10_000}',
    ],
)
def test_a_value_that_makes_no_sense_is_named_by_its_line(tmp_path: Path, change: str) -> None:
    path = tmp_path / "trace.jsonl"
    header, first, second = lines(2)
    path.write_text(f"{header}\n{first}\n{second[:-1]},{change}}}\n")
    with pytest.raises(DataError, match="line 3: "):
        read_trace(path)


def test_a_header_without_pages_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    header, *steps = lines(2)
    path.write_text("\n".join([f'{header[:-1]},"page_bytes":0}}', *steps]) + "\n")
    with pytest.raises(DataError, match="line 1: "):
        read_trace(path)


def test_a_field_that_no_step_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    content = json.loads(step(0).model_dump_json()) | {"phase": "write"}
    path.write_text(f"{lines(0)[0]}\n{json.dumps(content)}\n")
    with pytest.raises(DataError, match="line 2: "):
        read_trace(path)


def test_accepted_drafts_are_output_and_those_of_the_last_step_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    drafts = {"tokens": 5, "generated_tokens": 1, "speculated_tokens": 4}
    first = step(0, duration_s=0.5).model_copy(update=drafts)
    second = step(1, duration_s=0.5).model_copy(update=drafts | {"accepted_tokens": 3})
    last = json.dumps({"model": 0, "accepted_tokens": 2})
    both = [first.model_dump_json(), second.model_dump_json()]
    path.write_text("\n".join([*lines(0), *both, last]) + "\n")
    header, steps = read_trace(path)
    summary = summarise(header, steps)
    assert header is not None
    assert header.last_accepted_tokens == 2
    assert summary.decode_tokens == 1 + 1 + 3 + 2
    assert summary.decode_tps == pytest.approx(7.0)


def test_neither_a_draft_model_nor_a_mixed_step_enters_the_rates() -> None:
    plain = steps_with_prompt([0.1, 0.1])
    draft = step(9, duration_s=3.0).model_copy(update={"model": 1})
    mixed = step(10, tokens=8, duration_s=3.0).model_copy(
        update={"generated_tokens": 3, "prompt_tokens": 5, "sequences": 4}
    )
    both, alone = summarise(trace(), (*plain, draft, mixed)), summarise(trace(), plain)
    assert (both.prefill_tps, both.decode_tps) == (alone.prefill_tps, alone.decode_tps)


def test_rates_and_quantiles_follow_from_the_steps() -> None:
    summary = summarise(trace(), steps_with_prompt([0.1, 0.1, 0.1, 0.5]))
    assert summary.prefill_tps == pytest.approx(8 / 0.4)
    assert summary.decode_tps == pytest.approx(4 / 0.8)
    assert summary.ttft_s == pytest.approx(1.4)
    assert summary.wall_s == pytest.approx(5.5)
    assert summary.token_s is not None
    assert summary.token_s.p50 == pytest.approx(0.1)
    assert summary.token_s.max == pytest.approx(0.5)
    assert summary.token_s.p50_low is None
    assert (summary.prefill_tokens, summary.decode_tokens) == (8, 4)
    assert summary.prefill_s == pytest.approx(0.4)
    assert summary.decode_s == pytest.approx(0.8)


def test_the_first_token_follows_the_first_of_several_prompts() -> None:
    asked = [step(0, phase="prompt", tokens=4), step(1, phase="prompt", tokens=4), step(2)]
    again = [step(3, phase="prompt", tokens=4), step(4)]
    alone, both = summarise(trace(), asked), summarise(trace(), asked + again)
    assert alone.ttft_s == both.ttft_s is not None
    assert both.prefill_tokens == 12


def test_a_median_of_enough_tokens_has_its_interval() -> None:
    times = summarise(trace(), steps_with_prompt([0.1, 0.12] * 10)).token_s
    assert times is not None
    assert times.p50_low is not None
    assert times.p50_high is not None
    assert times.p50_low <= times.p50 / 1.05
    assert times.p50_high >= times.p50 * 1.05
    assert times.p50_low > 0.1 / 1.3
    assert times.p50_high < 0.12 * 1.3


def test_a_step_of_two_tokens_counts_as_two() -> None:
    summary = summarise(trace(), [step(0, tokens=2, duration_s=0.4)])
    assert summary.decode_tps == pytest.approx(5.0)
    assert summary.token_s is not None
    assert summary.token_s.p50 == pytest.approx(0.2)


def test_a_run_that_never_decoded_has_no_figures() -> None:
    summary = summarise(None, ())
    assert summary.model_dump() == dict.fromkeys(
        (
            "ttft_s",
            "prefill_tps",
            "decode_tps",
            "token_s",
            "wall_s",
            "prefill_s",
            "prefill_tokens",
            "decode_s",
            "decode_tokens",
            "speculation",
            "experts",
            "texts",
        )
    ) | {"stages": ()}


def test_quantiles_interpolate_between_the_closest_ranks() -> None:
    assert quantile([3.0], 90) == 3.0
    assert quantile([1.0, 2.0, 3.0], 50) == 2.0
    assert quantile([0.0, 10.0], 90) == pytest.approx(9.0)
