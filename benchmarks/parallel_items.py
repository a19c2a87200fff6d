"""Questions per hour with several items in each pass over streamed weights, on a virtual board.

    python benchmarks/parallel_items.py [--items 8] [--tokens 2] [--rate "5 MB"]

Boots a board with little memory and slow storage, puts a model of random weights on it that is
larger than its memory, and lets the scorer generate the same items one after another, and all at
a time. It prints what a pass computes and waits, from the trace, and removes the board afterwards.
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
from armload.evaluation.answering import answer_items
from armload.evaluation.way import Way
from armload.models.gguf import read_model
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.runs import store
from armload.runs.pipeline import Request

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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--rate", default="5 MB")
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
            for parallel in (1, options.items):
                way = Way(parallel=parallel, context_tokens=64)
                run_folder = answer_items(Request(board="small"), model, items, way, Silent())
                per_hour.append(told(store.load(run_folder), parallel, options.items))
            print(f"{per_hour[1] / per_hour[0]:.1f} times as many")
        finally:
            stop(load_board("small"))


def told(run: Run, parallel: int, items: int) -> float:
    """Print what a run took; return its items per hour."""
    wall_s = (run.steps[-1].end_ns - run.steps[0].start_ns) / 1e9
    waited_s = sum(step.storage_wait_ns or 0 for step in run.steps) / 1e9
    per_hour = 3600 * items / wall_s
    print(
        f"{parallel} at a time: {len(run.steps)} passes in {wall_s:.1f} s, of which "
        f"{waited_s:.1f} s waiting for storage; {per_hour:.0f} items per hour"
    )
    return per_hour


if __name__ == "__main__":
    main()
