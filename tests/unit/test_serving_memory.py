"""A load's memory does not grow with its records: they are written, and read one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from armload.analysis.load.records import (
    Load,
    LoadPoint,
    Objectives,
    RequestRecord,
    ServerTimings,
)
from armload.analysis.load.request_columns import MOST_GAPS, RequestColumns, failure, has_filled
from armload.report.load.loaded import LoadView
from armload.serving.loads import LoadFolder
from tests.stub_service import stub_service

TOKENS = 10
MOST_BYTES_A_REQUEST = 1500
"""Of memory; a whole record takes ten times as much."""


def record(number: int, **known: object) -> RequestRecord:
    begin_s = number / 10
    fields = {
        "number": number,
        "scheduled_s": begin_s,
        "begun_s": begin_s + 0.001,
        "sent_s": begin_s + 0.002,
        "header_s": begin_s + 0.01 + number % 7 / 100,
        "chunks": [(begin_s + 0.1 + place / 1000, place + 1) for place in range(TOKENS)],
        "end_s": begin_s + 0.3 + number % 11 / 50,
        "outcome": "ok",
        "status": 200,
        "prompt_tokens": 12,
        "generated_tokens": TOKENS,
        "limit_tokens": TOKENS,
        "finish_reason": "length",
        "timings": ServerTimings(prompt_tokens=12),
        "prompt": "Once upon a time",
        "text": "word " * 2500,
    }
    return RequestRecord.model_validate(fields | known)


def folder_of(count: int, under: Path) -> LoadFolder:
    """A load whose requests ended in another order than they came."""
    header = Load(
        id=f"20261126T000000Z-load-stub-{count}",
        started_utc="2026-11-26T00:00:00+00:00",
        armload="1",
        url="http://127.0.0.1:9",
        dialect="llama-server",
        arrivals="constant",
        seed=1,
        requests_from="stub",
        objectives=Objectives(e2e_s=0.4),
        service={"slots": 4},
    )
    kept = LoadFolder(under / header.id, header)
    kept.folder.mkdir()
    point = LoadPoint(
        rate=10.0,
        requests=count,
        started_utc=header.started_utc,
        began_client_s=1.0,
    )
    kept.add_point(point)
    with kept.entries_file(0).open("w") as file:
        for number in (*range(count // 2, count), *range(count // 2)):
            file.write(f"{record(number).model_dump_json()}\n")
    return kept


def figures_bytes(kept: LoadFolder) -> int:
    """What the figures of a load take of memory at most."""
    tracemalloc.start()
    try:
        (point,) = LoadView.of(kept).points
        assert point.assessed.metrics.ok == kept.load.points[0].requests
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_figures_take_a_small_part_of_what_the_records_would(tmp_path: Path) -> None:
    few, many = folder_of(100, tmp_path), folder_of(600, tmp_path)
    figures_bytes(few)  # imports
    growth_bytes = figures_bytes(many) - figures_bytes(few)
    assert growth_bytes / 500 < MOST_BYTES_A_REQUEST
    tracemalloc.start()
    whole = many.requests(0)
    whole_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(whole) == 600
    assert whole_bytes / 600 > 5 * MOST_BYTES_A_REQUEST


def test_columns_say_what_the_records_say() -> None:
    every = [
        record(3, is_warmup=True, held_s=0.5, cached_tokens=4),
        record(0, sent_s=None, begun_s=None, header_s=None, outcome="cancelled", chunks=()),
        record(2, outcome="http", status=503, error="busy", timings=None, prompt_tokens=None),
        record(1, conversation=7, turn=2, turns=3, generated_tokens=9, is_truncated=True),
        record(4, dimensions=8, chunks=(), ignored_lines=3, generated_tokens=None),
        record(5, outcome="abandoned", generated_tokens=None, prompt_tokens=10**30),
    ]
    names = (
        *("number", "is_warmup", "conversation", "turn", "turns", "scheduled_s", "begun_s"),
        *("held_s", "sent_s", "header_s", "first_chunk_s", "end_s", "outcome", "status"),
        *("generated_tokens", "cached_tokens", "new_prompt_tokens", "received_tokens"),
        *("dimensions", "ignored_lines", "is_timed", "is_cut_off", "is_truncated"),
    )
    columns = RequestColumns(every).sort()
    every.sort(key=lambda each: each.number)
    assert len(columns) == len(every)
    for one, whole in zip(columns, every, strict=True):
        assert {name: getattr(one, name) for name in names} == {
            name: getattr(whole, name) for name in names
        }
        assert failure(one) == failure(whole)
        for context_tokens in (20, None):
            assert has_filled(one, context_tokens) == has_filled(whole, context_tokens)
        expected = list(whole.gaps_s()) if whole.outcome == "ok" else []
        assert list(one.gaps_s()) == expected
    assert columns[1].number == columns[1:3][0].number == 1
    assert columns[-1].prompt_tokens == (1 << 63) - 1


def test_of_very_many_tokens_the_gaps_of_every_second_request_are_kept() -> None:
    columns = RequestColumns()
    gaps = 1000
    one = record(0, chunks=[(place / 100, place + 1) for place in range(gaps + 1)])
    count = MOST_GAPS // gaps + 2
    for number in range(count):
        columns.add(one.model_copy(update={"number": count - number}))
    assert len(columns.gaps_s) == gaps * -(-count // 2)
    kept = [sum(1 for _ in each.gaps_s()) for each in columns.sort()]
    assert set(kept) == {0, gaps}
    assert kept[-1] == gaps  # the first that was added
    assert list(columns[-1].gaps_s()) == list(one.gaps_s())


@pytest.mark.exhaustive(covers=["armload/serving", "armload/analysis/load"])
@pytest.mark.timeout(1800)
def test_twenty_five_thousand_requests_take_hardly_more_memory_than_five_thousand(
    tmp_path: Path,
) -> None:
    few, many = (peaks(count, tmp_path) for count in (5_000, 25_000))
    assert (few["ok"], many["ok"]) == (5_000, 25_000)
    assert many["sent_bytes"] - few["sent_bytes"] < 8 << 20
    assert many["figures_bytes"] - few["figures_bytes"] < 20_000 * MOST_BYTES_A_REQUEST
    assert many["figures_bytes"] < 250e6, (few, many)


def peaks(requests: int, folder: Path) -> dict[str, int]:
    with stub_service() as service:
        done = subprocess.run(
            [sys.executable, "-m", "tests.load_memory", service.url, str(requests)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, int] = json.loads(done.stdout)
    return found
