"""Runs of watched programs, computed as real ones are, from made-up raw files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from armload.analysis.run import Run
from armload.engines.job import BinaryRecord, Job, ModelRecord, PutFile, Watched
from armload.engines.output import Memory
from armload.engines.watched.reader import load_reader
from armload.runs.assemble import assemble
from tests.unit.runs import BEFORE, BOARD

START_NS = 41_000_000_000
HEAD = b"config path is qwen/config.json\nprompt file is prompt.txt\n"
SUMMARY = """
#################################
prompt tokens num = 15
decode tokens num = {tokens}
 vision time = 0.00 s
prefill time = 0.50 s
 decode time = {decode_s:.2f} s
prefill speed = 30.00 tok/s
 decode speed = {speed:.2f} tok/s
##################################
"""
WORDS = [
    "The",
    "large",
    "house",
    "by",
    "the",
    "sea",
    "was",
    "empty",
    "when",
    "we",
    "came",
    "there",
    "on",
    "a",
    "cold",
    "day",
    "in",
    "late",
    "May",
]


def summary(tokens: int, decode_s: float) -> bytes:
    speed = tokens / decode_s
    return SUMMARY.format(tokens=tokens, decode_s=decode_s, speed=speed).encode()


def tokens_of(words: Sequence[str]) -> list[bytes]:
    return [f" {word}".encode() for word in words]


def write_raw(
    folder: Path,
    writes: Sequence[bytes],
    *,
    every_ns: int = 100_000_000,
    header: bool = True,
    end: dict[str, object] | None = None,
    whole_writes: bool = True,
) -> None:
    """Write what ``watch`` leaves of a program that wrote so, one write each tenth of a second."""
    first = {
        "format": 1,
        "clock": "CLOCK_MONOTONIC",
        "source": "watch",
        "page_bytes": 4096,
        "whole_writes": whole_writes,
        "start_ns": START_NS,
    }
    lines: list[dict[str, object]] = [first] if header else []
    lines.append({"look_ns": START_NS + 1, "rss_bytes": 60_000_000})
    now = START_NS
    for number, content in enumerate(writes):
        lines.append(
            {
                "step": number,
                "phase": "write",
                "bytes": len(content),
                "start_ns": now,
                "end_ns": now + every_ns,
                "major_faults": 0,
                "read_bytes": 0,
                "rss_bytes": 50_000_000,
                "cpu_ns": 2 * every_ns,
                "involuntary_switches": None,
                "cpu_khz": [],
                "celsius": None,
            }
        )
        now += every_ns
    usual = {
        "end_ns": now,
        "status": 0,
        "writes_left_out": 0,
        "max_rss_bytes": 70_000_000,
        "max_vms_bytes": 90_000_000,
        "major_faults": 3,
        "read_bytes": 4096,
        "cpu_ns": 5_000_000,
        "involuntary_switches": 7,
        "watch_cpu_ns": 1_000_000,
    }
    lines.append(usual | (end or {}))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "stdout").write_bytes(b"".join(writes))


def watched_job(reads: str = "mnn", *, model: ModelRecord | None = None) -> Job:
    return Job(
        id=f"20261121T021500Z-{BOARD.name}-qwen-1f2e",
        fingerprint="0" * 16,
        started_utc="2026-11-21T02:15:00+00:00",
        armload="0.1.0",
        engine_name="watch",
        plan=None,
        watched=Watched(
            words=("llm_demo", "qwen/config.json", "prompt.txt"),
            reader=load_reader(reads),
            files=(PutFile(name="qwen/config.json", sha256="c" * 64, size_bytes=8),),
            time_limit_s=60.0,
        ),
        command=("/data/bin/aaaaaaaaaaaa/watch", "--", "/data/bin/bbbbbbbbbbbb/llm_demo"),
        board=BOARD,
        binary=BinaryRecord(program="llm_demo", sha256="b" * 64, size_bytes=1_000_000),
        model=model or ModelRecord(name="qwen", sha256="d" * 64, size_bytes=900_000_000),
        before=BEFORE,
    )


def watched_run(
    folder: Path,
    writes: Sequence[bytes],
    *,
    reads: str = "mnn",
    status: int = 0,
    seen: Memory | None = None,
    model: ModelRecord | None = None,
    end: dict[str, object] | None = None,
    whole_writes: bool = True,
) -> Run:
    write_raw(folder, writes, end=end, whole_writes=whole_writes)
    (folder / "exit").write_text(f"{status}\n")
    if seen is not None:
        kib = (seen.max_vms_bytes // 1024, seen.max_rss_bytes // 1024)
        (folder / "memory").write_text(f"{kib[0]} {kib[1]} 1000\n")
    return assemble(watched_job(reads, model=model), folder)


def demo_run(folder: Path) -> Run:
    """Return a run of llm_demo whose every token was one write."""
    tokens = tokens_of(WORDS)
    return watched_run(folder, [HEAD, *tokens, b"\n", summary(len(tokens), 0.1 * len(tokens))])
