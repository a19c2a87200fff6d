"""One model over several boards, measured beside its forecast.

    python benchmarks/groups.py links [--delays 0,0.2,1] [--rate 118MB] [--model smollm2]
    python benchmarks/groups.py memory [--memory 768MB] [--rate 20MB] [--members 2,3] [--rounds 1]

``links`` runs a model on two processes of this machine, each with one thread, with whole layers
and with a part of every layer. What passes between them is delayed by ``slow_link.c``, by so many
milliseconds for both ways together, at most at this rate. Round trip and rate are what
armload then measures on that way.

``memory`` makes a model of 1.5 times the memory that a virtual board has available, and runs it on
one board, mapped and streamed, and on groups of boards. Their storage is read at the given rate.
The speed of emulated boards changes with this machine's from one minute to the next: in each of
several rounds, operations are timed anew, and a run follows. Forecasts and measured times are means
over the rounds.

Run them while nothing else runs. Times are medians over the tokens of each run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from streamed_weights import sized
from typed import armload as run_armload

import armload.runs.session
from armload.bench.board import run_once
from armload.bench.fitting import fit
from armload.bench.sweeping import combinations
from armload.boards.board import Board
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.boards.local import LocalHost
from armload.core.progress import Progress, Silent
from armload.core.values import format_bytes
from armload.engines.plan import Plan
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.runs.request import Request

TIMES_MEMORY = 1.5

LAYER = Shape(
    layers=1, width=1024, feed_forward=2816, heads=16, kv_heads=4, vocabulary=8192,
    context_length=2048,
)  # fmt: skip
"""Of some 12 MB in Q8_0."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """What the proxy makes of a connection.

    Attributes:
        delay_s: that it adds to a round trip.
        bytes_per_s: that it lets through, each way.
    """

    delay_s: float
    bytes_per_s: float


@contextlib.contextmanager
def delayed(port: int, way: Way) -> Iterator[int]:
    """Pass the clients of a port on to another one of this machine, slowly."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "slow_link"
        source = Path(__file__).with_name("slow_link.c")
        compiler = (sys.executable, "-m", "ziglang", "cc", "-O2")
        subprocess.run([*compiler, "-o", program, source], check=True)
        words = [str(program), str(port), str(round(way.delay_s / 2 * 1e9)), str(way.bytes_per_s)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield int(process.stdout.readline())
            assert process.stdin is not None
            process.stdin.close()


class Port:
    """A port of this machine that is there."""

    def __init__(self, port: int) -> None:
        self.port = port

    def check(self) -> None:
        """Nothing can keep a client from it."""


class SlowlyReached(LocalHost):
    """This machine, whose ports are reached by way of the proxy."""

    def __init__(self, name: str, way: Way) -> None:
        super().__init__(name)
        self._way = way

    @contextlib.contextmanager
    def forwarded(self, port: int, local_port: int = 0) -> Iterator[Port]:
        """Give the port of a proxy before it."""
        del local_port
        with delayed(port, self._way) as proxy_port:
            yield Port(proxy_port)


def over_links(given: argparse.Namespace, folder: Path) -> None:
    """Print what whole layers and parts of every layer take, over ever slower links."""
    ways = {
        f"far-{number}": Way(delay_s=float(delay) / 1000, bytes_per_s=sized(given.rate))
        for number, delay in enumerate(given.delays.split(","))
    }

    def connected(board: Board, progress: Progress) -> Host:
        way = ways.get(board.name)
        return connect(board, progress) if way is None else SlowlyReached(board.name, way)

    armload.runs.session.connect = connected  # type: ignore[attr-defined]
    write_board(folder, "near", f"extends: this-machine\nworkdir: {folder}/near\n")
    print(
        f"{given.model}, {given.tokens} tokens, at most {given.rate}/s\n"
        "| added | round trip | to, from | split | forecast ms/token | measured | error "
        "| parts of the forecast | limit |"
    )
    print("|---" * 9 + "|")
    for name, way in ways.items():
        write_board(folder, name, f"extends: this-machine\nworkdir: {folder}/{name}\n")
        write_board(folder, f"group-{name}", f"members: [near, {name}]\n")
        request = Request(board=f"group-{name}", new=True)
        plan = Plan(prompt_tokens=16, n_predict=given.tokens, threads=1, context_tokens=256)
        fit(request, [given.model], plan, Silent())
        for split in ("layer", "tensor"):
            split_plan = plan.model_copy(update={"split": split})
            (one,) = combinations([given.model], [split_plan], Silent())
            run, _ = run_once(request, one, Silent())
            shown(f"{way.delay_s * 1000:g} ms", json.loads(run.model_dump_json()))


def shown(added: str, run: dict[str, Any]) -> None:
    """Print a row."""
    (link,) = run["spread"]["links"]
    expected, value = run["prediction"]["token_s"], run["summary"]["token_s"]["p50"]
    parts = ", ".join(
        f"{part['kind']} {part['board']} {part['token_s'] * 1000:.1f}"
        for part in run["prediction"]["group"]["parts"]
    )
    print(
        f"| {added} | {link['round_trip_s'] * 1000:.2f} ms | "
        f"{format_bytes(round(link['to_bytes_per_s']))}/s, "
        f"{format_bytes(round(link['from_bytes_per_s']))}/s | {run['spread']['split']} | "
        f"{milliseconds(expected)} | {value * 1000:.1f} | {expected['value'] / value - 1:+.0%} | "
        f"{parts} | {run['limit']['sentence']} |",
        flush=True,
    )


def milliseconds(expected: dict[str, float]) -> str:
    """Write an interval."""
    value, low, high = (expected[name] * 1000 for name in ("value", "low", "high"))
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def beyond_memory(given: argparse.Namespace, folder: Path) -> None:
    """Print what a model beyond one board's memory takes on one, and on several."""
    members = [int(word) for word in given.members.split(",")]
    names = [f"member-{number}" for number in range(max(members))]
    for name in names:
        write_board(
            folder,
            name,
            "extends: virtual\nreach:\n  cores: 1\n"
            f"  memory: {given.memory}\n  disk_read_bytes_per_s: {given.rate}\n"
            "facts:\n  clusters:\n    - {cores: 1, name: Cortex-A55}\n",
        )
    for count in members:
        write_board(folder, f"over-{count}", f"members: [{', '.join(names[:count])}]\n")
    probe = json.loads(run_armload(folder, "board.probe", "--board", names[0], "--json"))
    available = available_bytes(probe)
    model = folder / "model.gguf"
    make_model(model, round(TIMES_MEMORY * available))
    print(
        f"{format_bytes(model.stat().st_size)} of weights, {format_bytes(available)} available on "
        f"each board, storage at {given.rate}/s, {given.tokens} tokens\n"
        "| how | forecast s/token | measured | error | of each round | forecast s of loading "
        "| measured | limit |"
    )
    print("|---" * 8 + "|")
    cells = [(names[0], "mapped"), (names[0], "streamed")]
    cells += [(f"over-{count}", "") for count in members]
    for board, weights in cells:
        if given.only not in f"{board} {weights}":
            continue
        words = ("--board", board, "--model", str(model), "--prompt-tokens", "4")
        how = ("--weights", weights) if weights else ()
        runs = []
        for _ in range(given.rounds):
            run_armload(folder, "clean", "--what", "operations", "--yes")
            run_armload(folder, "fit", *words, *how, "--json")
            length = ("-n", str(given.tokens), "--context", "256", "--repeats", "1")
            runs.append(
                json.loads(run_armload(folder, "bench", *words, *how, *length, "--new", "--json"))
            )
        show_cell(f"{board} {weights}", runs)
    for name in names:
        run_armload(folder, "board.down", "--board", name)


def show_cell(name: str, runs: list[dict[str, Any]]) -> None:
    """Print the row of a board or a group."""
    expected = [run["prediction"]["token_s"] for run in runs]
    value, low, high = (mean(each[key] for each in expected) for key in ("value", "low", "high"))
    measured = [run["summary"]["token_s"]["p50"] for run in runs]
    load_s = mean(run["summary"]["ttft_s"] - run["summary"]["prefill_s"] for run in runs)
    rounds = ", ".join(
        f"{each['value']:.2f} {took_s:.2f}" for each, took_s in zip(expected, measured, strict=True)
    )
    print(
        f"| {name} | {value:.2f} ({low:.2f} to {high:.2f}) | {mean(measured):.2f} | "
        f"{value / mean(measured) - 1:+.0%} | {rounds} | "
        f"{mean(run['prediction']['load_s']['value'] for run in runs):.1f} | {load_s:.1f} | "
        f"{runs[-1]['limit']['sentence']} |",
        flush=True,
    )


def available_bytes(probe: Any) -> int:
    """Find what a board has available in what ``board.probe`` says of it."""
    if isinstance(probe, dict):
        if "memory_available_bytes" in probe:
            return int(probe["memory_available_bytes"])
        probe = list(probe.values())
    for each in probe if isinstance(probe, list) else ():
        if found := available_bytes(each):
            return found
    return 0


def make_model(path: Path, size_bytes: int) -> None:
    """Write a model of random weights of about that size."""
    sizes = []
    for layers in (1, 2):
        synthesise(
            LAYER.model_copy(update={"layers": layers}),
            path, quantisation="Q8_0", seed=1, progress=Silent(),
        )  # fmt: skip
        sizes.append(path.stat().st_size)
        path.unlink()
    layers = 1 + round((size_bytes - sizes[0]) / (sizes[1] - sizes[0]))
    shape = LAYER.model_copy(update={"layers": layers})
    synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())


def write_board(folder: Path, name: str, text: str) -> None:
    """Write a board's file."""
    (folder / "boards" / f"{name}.yaml").write_text(text)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("links", "memory"))
    parser.add_argument("--delays", default="0,0.2,1", help="milliseconds")
    parser.add_argument("--rate", default="", help="of the links, or of the storage")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--memory", default="768MB")
    parser.add_argument("--members", default="2,3")
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1, help="of memory: for each cell")
    parser.add_argument("--only", default="", help="of memory: cells whose name contains this")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    is_links = given.what == "links"
    given.rate = given.rate or ("118MB" if is_links else "20MB")
    given.tokens = given.tokens or (32 if is_links else 8)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        (folder / "boards").mkdir()
        os.chdir(folder)
        began_s = time.monotonic()
        (over_links if is_links else beyond_memory)(given, folder)
        print(f"took {(time.monotonic() - began_s) / 60:.1f} min", file=sys.stderr)


if __name__ == "__main__":
    main()
