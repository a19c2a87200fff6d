"""Traces that others have recorded: read in their formats, scaled, and refused with the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.serving.tokenizer import ServiceApi
from armload.serving.traces import BLOCK_TOKENS, Replayed, RequestTrace, read_trace_file, replayed
from tests.stub_service import stub_service

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def read(folder: Path, text: str, **known: Any) -> RequestTrace:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    usual = {"time_scale": 1.0, "length_scale": 1.0, "duration_s": None, "requests": None}
    return read_trace_file(path, **{**usual, **known})


def columns(trace: RequestTrace) -> list[tuple[float, int, int]]:
    return list(zip(trace.times_s, trace.prompt_tokens, trace.answer_tokens, strict=True))


def mooncake(*rows: tuple[int, int, int, list[int]]) -> str:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


def test_each_format_is_known_by_its_own_columns(tmp_path: Path) -> None:
    expected = [(0.0, 100, 20), (0.25, 34, 1), (3.0, 5, 7)]
    lines = mooncake((27000, 100, 20, [1]), (27250, 34, 1, [2]), (30000, 5, 7, []))
    assert columns(read(tmp_path, lines)) == expected
    rows = "27,ChatGPT,100,20,120,API log\n27.25,GPT-4,34,0,34,API log\n30,GPT-4,5,7,12,x\n"
    assert columns(read(tmp_path, BURST + rows)) == expected
    rows = (
        "2023-11-16 18:17:03.9799600,100,20\n2023-11-16 18:17:04.2299600,34,1\n"
        "2023-11-16 18:17:06.9799600,5,7\n"
    )
    found = columns(read(tmp_path, AZURE + rows))
    assert [row[1:] for row in found] == [row[1:] for row in expected]
    assert [row[0] for row in found] == pytest.approx([0.0, 0.25, 3.0])
    rows = "2024-05-10 00:00:00.009930+00:00,100,20\n2024-05-10 00:00:01.009930+00:00,1,2\n"
    assert columns(read(tmp_path, AZURE + rows))[1][0] == pytest.approx(1.0)


def test_times_and_lengths_are_scaled_and_nothing_becomes_shorter_than_a_token(
    tmp_path: Path,
) -> None:
    lines = mooncake((0, 1000, 3, []), (500, 4, 400, []))
    trace = read(tmp_path, lines, time_scale=10.0, length_scale=0.1)
    assert columns(trace) == [(0.0, 100, 1), (5.0, 1, 40)]
    assert trace.described.endswith("trace (Mooncake), times scaled by 10, lengths scaled by 0.1")
    assert trace.stage.mean_per_s == pytest.approx(2 / 5)


def test_only_the_beginning_that_is_replayed_is_read(tmp_path: Path) -> None:
    lines = mooncake(*((1000 * number, 9, 9, []) for number in range(50))) + "garbage\n"
    assert len(read(tmp_path, lines, requests=7).times_s) == 7
    timed = read(tmp_path, lines, duration_s=20.0, time_scale=2.0)
    assert list(timed.times_s) == [2.0 * number for number in range(10)]
    assert timed.length_s == 20.0
    with pytest.raises(DataError, match="line 51: not JSON"):
        read(tmp_path, lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (mooncake((5, 1, 1, []), (9, 1, 1, []), (7, 1, 1, [])), "line 3: its time is 0.002 s"),
        (BURST + "5,x,1,1,2,y\n3,x,1,1,2,y\n", "line 3: its time is 2 s"),
        (
            AZURE + "2023-11-16 18:17:04,1,1\n2023-11-16 18:17:03.5,1,1\n",
            "line 3: its time is 0.5 s",
        ),
        (mooncake((5, -1, 1, [])), "line 1: must have a time"),
        (BURST + "nan,x,1,1,2,y\n", "line 2: must have a time"),
        (BURST + "5,x,inf,1,2,y\n", "line 2: must have a time"),
        (AZURE + "yesterday,1,1\n", "line 2: must have a time"),
        (AZURE + "2023-11-16 18:17:04,1\n", "line 2: must have a time"),
        ('{"timestamp": 1, "input_length": 2}\n', "line 1: has no output_length"),
        ('{"timestamp": 1}\n[1]\n', "line 1: has no"),
        (BURST, "has no requests"),
        ("", "not a trace"),
        ("<html></html>", "not a trace"),
    ],
)
def test_a_file_that_is_no_trace_says_where_it_is_wrong(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)


def test_a_trace_that_is_not_there_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trace"):
        read_trace_file(
            tmp_path / "none", time_scale=1.0, length_scale=1.0, duration_s=None, requests=None
        )


def made(trace: RequestTrace, *, seed: int = 1) -> Replayed:
    with stub_service() as service:
        api = ServiceApi(service.url, "")
        return replayed(trace, api, stops_at_end=False, seed=seed, progress=Silent())


def test_prompts_with_the_same_blocks_begin_alike_and_have_the_traces_lengths(
    tmp_path: Path,
) -> None:
    lines = mooncake((0, 1200, 4, [0, 1, 2]), (0, 1100, 5, [0, 1, 7]), (0, 600, 6, [8, 1]))
    work = made(read(tmp_path, lines, length_scale=0.5))
    one, two, other = (work.request(number).prompt.split() for number in range(3))
    assert [len(each) for each in (one, two, other)] == [600, 550, 300]
    shared = 2 * BLOCK_TOKENS // 2
    assert one[:shared] == two[:shared]
    assert one[shared : shared + 20] != two[shared : shared + 20]
    assert one[:20] != other[:20]
    assert (work.request(1).max_tokens, work.request(1).ignores_end) == (2, True)
    again = work.request(4)
    assert (again.max_tokens, again.prompt.split()[:shared]) == (2, two[:shared])


def test_a_trace_without_blocks_has_prompts_that_differ(tmp_path: Path) -> None:
    work = made(read(tmp_path, BURST + "1,x,30,3,33,y\n1,x,30,3,33,y\n"))
    assert work.request(0).prompt != work.request(1).prompt
    assert len(work.request(0).prompt.split()) == 30
