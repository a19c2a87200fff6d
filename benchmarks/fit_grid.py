"""What ``fit`` predicts beside what runs then take: memory, storage rate, quantisation, weights.

    python benchmarks/fit_grid.py [--only TEXT] [--tokens 8] [--runs 3] [--real-time]

Cells named ``group`` run on this machine in control groups of version 1 that limit memory and
storage; they need root. Cells named ``virtual`` run on virtual boards of their own. Each cell times
its operations first, then runs the model. The prediction is that in the first run's ``run.json``;
what was measured is the median of the runs. With ``--real-time``, the programs of groups and the
machines get their cores before all others, so that times count beside other work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamed_weights import Limits, limited, sized
from typed import armload

from armload.core.values import format_bytes


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A board, and a model on it.

    Attributes:
        kind: ``group`` or ``virtual``.
        rate: of the storage.
    """

    kind: str
    memory: str
    rate: str
    model: str
    weights: str = "auto"

    @property
    def name(self) -> str:
        """As it is selected by ``--only``."""
        return f"{self.kind} {self.memory} {self.rate}/s {self.model} {self.weights}"


CELLS = (
    Cell(kind="group", memory="600MB", rate="100MB", model="like:tinyllama-1.1b:Q8_0"),
    Cell(kind="group", memory="800MB", rate="165MB", model="like:tinyllama-1.1b:Q8_0"),
    Cell(kind="group", memory="1GB", rate="400MB", model="like:tinyllama-1.1b:Q8_0"),
    Cell(
        kind="group",
        memory="800MB",
        rate="165MB",
        model="like:tinyllama-1.1b:Q8_0",
        weights="mapped",
    ),
    Cell(
        kind="group",
        memory="1.2GB",
        rate="400MB",
        model="like:llama-3.2-3b:Q8_0",
        weights="mapped",
    ),
    Cell(kind="group", memory="1.2GB", rate="400MB", model="like:llama-3.2-3b:Q8_0"),
    Cell(kind="group", memory="2GB", rate="165MB", model="like:tinyllama-1.1b:Q8_0"),
    Cell(kind="group", memory="500MB", rate="60MB", model="like:tinyllama-1.1b:Q4_0"),
    Cell(
        kind="group",
        memory="500MB",
        rate="100MB",
        model="like:tinyllama-1.1b:Q4_0",
        weights="mapped",
    ),
    Cell(kind="group", memory="1GB", rate="100MB", model="like:tinyllama-1.1b:Q4_0"),
    Cell(kind="group", memory="400MB", rate="40MB", model="like:tinyllama-1.1b:Q2_K"),
    Cell(kind="group", memory="1GB", rate="40MB", model="like:tinyllama-1.1b:Q2_K"),
    Cell(kind="virtual", memory="256MB", rate="20MB", model="like:qwen2.5-0.5b:Q2_K"),
    Cell(kind="virtual", memory="384MB", rate="60MB", model="like:qwen2.5-0.5b:Q8_0"),
    Cell(
        kind="virtual",
        memory="384MB",
        rate="60MB",
        model="like:qwen2.5-0.5b:Q4_0",
        weights="mapped",
    ),
    Cell(
        kind="virtual",
        memory="192MB",
        rate="60MB",
        model="like:qwen2.5-0.5b:Q8_0",
        weights="mapped",
    ),
    Cell(kind="virtual", memory="192MB", rate="60MB", model="like:qwen2.5-0.5b:Q8_0"),
    Cell(kind="virtual", memory="1GB", rate="60MB", model="like:qwen2.5-0.5b:Q4_0"),
    Cell(kind="virtual", memory="224MB", rate="40MB", model="like:qwen2.5-0.5b:Q4_0"),
    Cell(kind="virtual", memory="320MB", rate="40MB", model="like:qwen2.5-0.5b:Q8_0"),
    Cell(kind="virtual", memory="288MB", rate="80MB", model="like:qwen2.5-0.5b:Q4_K_M"),
    Cell(kind="virtual", memory="512MB", rate="60MB", model="like:qwen3-0.6b:Q8_0"),
)

BOARDS = {
    "group": "target: host\nreach:\n  kind: local\n  launcher: {launcher}\nworkdir: {work}\n",
    "virtual": "extends: virtual\nreach:\n  memory: {memory}\n  disk_read_bytes_per_s: {rate}\n",
}


REAL_TIME = ("chrt", "-f", "1")


def dropped_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def read(run: dict[str, Any]) -> str:
    """Return what a token read from storage, the median of all but the first."""
    sizes = [step["read_bytes"] or 0 for step in run["steps"] if step["generated_tokens"]]
    return format_bytes(statistics.median(sizes[1:]))


def measure(cell: Cell, number: int, folder: Path, given: argparse.Namespace) -> float | None:
    """Predict and run a cell, print both, and return the prediction's relative error."""
    board = f"cell-{number}"
    work = folder / "work"
    launcher = json.dumps([*REAL_TIME] if given.real_time else [])
    text = BOARDS[cell.kind].format(
        work=work, memory=cell.memory, rate=cell.rate, launcher=launcher
    )
    (folder / "boards" / f"{board}.yaml").write_text(text)
    on_board = ("--board", board, "--model", cell.model)
    limits = (
        limited(folder, Limits(memory_bytes=sized(cell.memory), bytes_per_s=sized(cell.rate)))
        if cell.kind == "group"
        else nullcontext(":")
    )
    if cell.kind == "group":  # the copy is not what is measured
        armload(folder, "deploy", *on_board)
        for rates in work.glob(".rates.*"):  # of another cell
            rates.unlink()
    if cell.kind == "virtual" and given.real_time:
        armload(folder, "board.up", "--board", board, before=REAL_TIME)
    with limits as enter:
        dropped_cache()
        armload(folder, "fit", *on_board, "--threads", "2", "--json", enter=enter)
        length = ("-n", str(given.tokens), "--threads", "2", "--prompt-tokens", "16")
        options = ("--context", "256", "--weights", cell.weights, "--repeats", "1", "--new")
        words = ("bench", *on_board, *length, *options, "--json")
        runs = []
        for _ in range(given.runs):
            dropped_cache()
            runs.append(json.loads(armload(folder, *words, enter=enter)))
    if cell.kind == "virtual":
        armload(folder, "board.down", "--board", board)
    run, predicted = runs[0], runs[0]["prediction"]
    measured = [each["summary"]["token_s"] for each in runs]
    if predicted["token_s"] is None or None in measured:
        print(f"{cell.name}: {predicted['verdict']}, exit {run['exit']['status']}", flush=True)
        return None
    expected, value = predicted["token_s"], statistics.median(each["p50"] for each in measured)
    error = expected["value"] / value - 1
    print(
        f"| {cell.kind} | {cell.memory} | {cell.rate}/s | {cell.model} "
        f"({format_bytes(run['model']['size_bytes'])}) | {cell.weights} | {predicted['verdict']} | "
        f"{expected['value']:.3g} ({expected['low']:.3g} to {expected['high']:.3g}) s | "
        f"{value:.3g} s | {error:+.1%} | {predicted['bottleneck']} | "
        f"{format_bytes(predicted['storage_bytes_per_token'])} | {read(run)} |",
        flush=True,
    )
    return float(abs(error))


def main() -> None:
    """Measure the cells, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--real-time", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        (folder / "boards").mkdir()
        errors = [
            measure(cell, number, folder, given)
            for number, cell in enumerate(CELLS)
            if given.only in cell.name
        ]
    known = [error for error in errors if error is not None]
    if known:
        print(f"error: median {statistics.median(known):.1%}, worst {max(known):.1%}")


if __name__ == "__main__":
    main()
