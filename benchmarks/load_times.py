"""Whether the times and tokens that a load's client records are those of llama-server itself.

    python benchmarks/load_times.py [--board this-machine] [--requests 20] [--slots 1,4]

Serves the model of word problems with each number of slots, to as many clients, and adds up over
all requests: the tokens of the answers and the time from the first token to the last, and the
prompts' tokens and their time, as the client saw them and as the server says. llama-server sends
the header of an answer when a slot takes the request, and the prompt's time ends with the first
token.

With the defaults it takes two minutes once llama-server is compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from armload.analysis.load.records import RequestRecord, ServerTimings

ARMLOAD = str(Path(sys.executable).parent / "armload")
SHAPE = ["--prompt-tokens", "100", "--n-predict", "100", "--context", "256"]


def main() -> None:
    """Load a service with each number of slots and print a line for each kind of time."""
    parser = argparse.ArgumentParser(description="Compare the client's times with the server's.")
    parser.add_argument("--board", default="this-machine")
    parser.add_argument("--model", default="word-problems:Q8_0")
    parser.add_argument("--requests", default="20")
    parser.add_argument("--slots", default="1,4")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        words = [ARMLOAD, "load", "--board", chosen.board, "--model", chosen.model, *SHAPE]
        words += ["--requests", chosen.requests]
        print("slots  of         tokens: client, server  time: client, server  difference  largest")
        for slots in chosen.slots.split(","):
            records = loaded([*words, "--slots", slots, "--concurrency", slots])
            for row in (answers(records), prompts(records)):
                print(f"{slots:>5}  {row}")


def loaded(words: list[str]) -> list[tuple[RequestRecord, ServerTimings]]:
    """Run a load and return its requests with the server's timings.

    Raises:
        RuntimeError: a request failed, or the server did not say how long it took.
    """
    before = set(Path("loads").glob("*/requests-*.jsonl"))
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (path,) = set(Path("loads").glob("*/requests-*.jsonl")) - before
    records = [RequestRecord.model_validate_json(line) for line in path.read_text().splitlines()]
    if any(record.outcome != "ok" or record.timings is None for record in records):
        raise RuntimeError(f"{path}: not every request has been answered with the server's timings")
    return [(record, record.timings) for record in records if record.timings]


def answers(records: list[tuple[RequestRecord, ServerTimings]]) -> str:
    """Return the row of the generated tokens."""
    return row_of(
        "answers",
        sum(record.chunks[-1][1] or 0 for record, _ in records),
        sum(timings.generated_tokens or 0 for _, timings in records),
        [
            (record.chunks[-1][0] - record.chunks[0][0], (timings.generated_ms or 0) / 1e3)
            for record, timings in records
        ],
    )


def prompts(records: list[tuple[RequestRecord, ServerTimings]]) -> str:
    """Return the row of the prompts."""
    return row_of(
        "prompts",
        sum(record.prompt_tokens or 0 for record, _ in records),
        sum(timings.prompt_tokens or 0 for _, timings in records),
        [
            (record.chunks[0][0] - (record.header_s or 0), (timings.prompt_ms or 0) / 1e3)
            for record, timings in records
        ],
    )


def row_of(of: str, ours: int, theirs: int, times_s: list[tuple[float, float]]) -> str:
    """Return a row of the table; its last column is the largest difference of one request."""
    client_s, server_s = (sum(column) for column in zip(*times_s, strict=True))
    largest = max(abs(ours_s - theirs_s) / theirs_s for ours_s, theirs_s in times_s)
    return (
        f"{of:9}  {ours:14,}, {theirs:6,}  {client_s:11.3f}, {server_s:.3f} s  "
        f"{client_s / server_s - 1:+9.2%}  {largest:7.2%}"
    )


if __name__ == "__main__":
    main()
