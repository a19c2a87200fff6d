"""Questions per hour with several items in each pass over streamed weights, on a virtual board.

    python benchmarks/parallel_items.py [--items 8] [--tokens 2] [--rate "10 MB"]

Boots a board with little memory and slow storage, puts a model of random weights on it that nearly
fills its memory, and lets the scorer generate the same items one after another, and all at a time,
with no part of the weights locked, so that every pass reads all of them; then it stops the board.
For both it prints, from the trace, the passes over the weights, and how long reading takes in a
pass (bytes read, at the storage's rate) and computing (the wall time without the wait for the
storage). With eight items at a time, at least four times as many answers per hour are expected
where, one at a time, reading takes at least eight times as long as computing.

- ``--items``: how many are answered, at a time in the second run. Passes of the first run are as
  many as items times tokens, and each takes as long as reading does.
- ``--tokens``: of each answer. The pass over the prompt gives the first one.
- ``--rate``: of the board's storage, per second. An emulated CPU computes slowly and this machine
  decides how slowly: lower the rate until the printed ratio is 8 or more.

With the defaults, a pass takes 22 s to read: 18 of them some seven minutes, beside what booting,
copying the model and, the first time, building take.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from armload.analysis.run import Run
from armload.boards.board import load_board
from armload.boards.connect import stop
from armload.core.progress import Silent
from armload.core.values import parse_bytes
from armload.evaluation.scorer_run import answer_items
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.gguf import read_model
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.runs import store
from armload.runs.request import Request

BOARD = """
extends: virtual-dayu200
reach: {{memory: 288 MiB, disk_read_bytes_per_s: {rate}}}
"""
LARGE = Shape(
    layers=26,
    width=768,
    feed_forward=3072,
    heads=12,
    kv_heads=12,
    vocabulary=2048,
    context_length=256,
)
"""Of 260 MB in Q8_0."""


def main() -> None:
    """Measure one item at a time and all at a time, and print both."""
    parser = argparse.ArgumentParser(description="Measure several items per pass.")
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--rate", default="10 MB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("boards").mkdir()
        Path("boards/small.yaml").write_text(BOARD.format(rate=options.rate))
        synthesise(LARGE, Path("large.gguf"), quantisation="Q8_0", seed=1, progress=Silent())
        model = read_model(Path("large.gguf"))
        items: list[dict[str, object]] = [
            {"id": str(n), "kind": "generate", "prompt": f"one {n}", "max_tokens": options.tokens}
            for n in range(options.items)
        ]
        try:
            per_hour = []
            rate = parse_bytes(options.rate)
            assert isinstance(rate, int)
            print(
                "items at once  passes  whole    reading/pass  computing/pass  "
                "reading / computing  items per hour"
            )
            for parallel in (1, options.items):
                way = ScorerSettings(
                    parallel=parallel, context_tokens=64, weights="streamed", resident_bytes=0
                )
                run_folder = answer_items(Request(board="small"), model, items, way, Silent())
                per_hour.append(told(store.load(run_folder), parallel, options.items, rate))
            print(f"{per_hour[1] / per_hour[0]:.1f} times as many")
        finally:
            stop(load_board("small"))


def told(run: Run, parallel: int, items: int, rate_bytes_per_s: int) -> float:
    """Print a line of the table; return the items per hour.

    Args:
        rate_bytes_per_s: of the board's storage.
    """
    wall_s = (run.steps[-1].end_ns - run.steps[0].start_ns) / 1e9
    read_bytes = sum(step.read_bytes or 0 for step in run.steps)
    waited_s = sum(step.storage_wait_ns or 0 for step in run.steps) / 1e9
    passes, reading_s = len(run.steps), read_bytes / rate_bytes_per_s
    computing_s = wall_s - waited_s
    per_hour = 3600 * items / wall_s
    print(
        f"{parallel:13}  {passes:6}  {wall_s:5.0f} s  {reading_s / passes:11.2f} s  "
        f"{computing_s / passes:13.2f} s  {reading_s / computing_s:19.1f}  {per_hour:14.0f}"
    )
    return per_hour


if __name__ == "__main__":
    main()
