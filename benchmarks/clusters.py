"""What the forecast from facts says of published speeds of distributed-llama on several boards.

    python benchmarks/clusters.py FILE [--json]

FILE has the columns of ``published.csv``; its rows of several boards count, such as ``4 x Raspberry
Pi 5``. None takes part in any fit; of the source that README.md is, three rows of one board gave
``KERNELS``. Prints each row with its forecast and error; ``--json`` prints the summary.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
from pathlib import Path
from typing import NamedTuple

from armload.analysis.distributed_forecast import (
    LINK_BITS_PER_S,
    LINK_DOUBT,
    ROUND_TRIP_S,
    NodeTimes,
    node_times,
    node_work,
)
from armload.boards.hardware import load_hardware
from armload.core.progress import Silent
from armload.engines.prediction import Expected
from armload.models.distributed_llama import DistributedModel, distributed_model
from armload.models.find import header_of
from armload.models.gguf import read_outline

HARDWARE = {"5": "raspberry-pi-5-8gb", "4B": "raspberry-pi-4-8gb"}
THREADS = 4
USUAL_TOKENS = 64

OUTLINES = (
    (r"Llama 3(\.1)? 8B", "like:llama-3.1-8b:Q4_0"),
    (r"Qwen3-30B-A3B", "like:qwen3-30b-a3b:Q4_0"),
)


def _older(
    name: str, *, width: int, feed_forward: int, layers: int, heads: int, kv_heads: int
) -> DistributedModel:
    return DistributedModel(
        name=name,
        architecture="llama",
        matrices="Q4_0",
        output_type="Q4_0",
        width=width,
        feed_forward=feed_forward,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_width=width // heads,
        vocabulary=32000,
        context_length=2048,
        epsilon=1e-5,
        theta=10000,
        is_tied=False,
    )


OLDER = (
    _older("TinyLlama 1.1B 3T", width=2048, feed_forward=5632, layers=22, heads=32, kv_heads=4),
    _older("Llama 2 7B", width=4096, feed_forward=11008, layers=32, heads=32, kv_heads=32),
    _older("Llama 2 13B", width=5120, feed_forward=13824, layers=40, heads=40, kv_heads=40),
    _older("Llama 2 70B", width=8192, feed_forward=28672, layers=80, heads=64, kv_heads=8),
)
"""config.json of TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T and of meta-llama's models."""


class Forecast(NamedTuple):
    """A row, and what was forecast of it."""

    row: dict[str, str]
    token_s: Expected

    @property
    def published(self) -> float:
        """Tokens per second."""
        return float(self.row["decode_tps"])

    @property
    def error(self) -> float:
        """Of the speed, as a share of the published one."""
        return 1 / (self.token_s.value * self.published) - 1

    @property
    def holds(self) -> bool:
        return self.token_s.low <= 1 / self.published <= self.token_s.high


def forecasts(path: Path) -> list[Forecast]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if _nodes(row) > 1]
    return [Forecast(row, _token_s(row)) for row in rows]


_BOARDS = re.compile(r"(\d+) x Raspberry Pi (5|4B)\b")


def _nodes(row: dict[str, str]) -> int:
    match = _BOARDS.match(row["board"])
    return int(match[1]) if match and row["engine"].startswith("distributed-llama") else 0


def _token_s(row: dict[str, str]) -> Expected:
    match = _BOARDS.match(row["board"])
    assert match is not None
    depth = float(row["gen_tokens"] or USUAL_TOKENS) / 2
    times = node_times(
        *(_model(row["model"]), int(match[1]), load_hardware(HARDWARE[match[2]]).specs),
        depth=depth,
        threads=THREADS,
    )
    if times is None:
        raise ValueError(f"{row['id']}: nothing is known of this board")
    if row["engine_date"] >= MESHED_SINCE:
        return times.token_s
    return star_token_s(_model(row["model"]), int(match[1]), times, row["engine"])


MESHED_SINCE = "2024-11-21"
"""Date of release 0.11.0."""

HALVED = ("0.6.0", "0.7.0")
"""Releases whose nodes exchanged what is between the feed-forward matrices, too."""

GATHERED = {"0.1.0": 8, "0.3.1": 10}
"""Releases whose root alone computed attention, from queries, keys and values of all nodes; with
the rounds of a layer. What it sent and received per token is in their README.md."""


def star_token_s(model: DistributedModel, nodes: int, times: NodeTimes, release: str) -> Expected:
    """Return a token's time before release 0.11.0, as its sources have it.

    The root alone computes the output matrix, for which the others wait, and every message passes
    it: it sends to one worker after the other, then receives. ``llama2-tasks.cpp`` of the release;
    bytes as upstream counted them (pull request 64).
    """
    *_, output = model.computed_tensors()
    computed_bytes = node_work(model, nodes, 0).size_bytes
    alone_bytes = output.size_bytes * (1 - 1 / nodes)
    width, inner = (model.exchanged_bytes * each for each in (model.width, model.feed_forward))
    rounds, layer_bytes = 4, 4 * width
    if any(each in release for each in HALVED):
        rounds, layer_bytes = 6, (3 + 1 / nodes) * width + inner
    for each in GATHERED.keys() & set(release.split()):
        gathered = 3 * width + 2 * model.exchanged_bytes * model.kv_width
        rounds, layer_bytes = GATHERED[each], 3 * width + inner + gathered / nodes
    message_s = model.layers * rounds * ROUND_TRIP_S / 2
    bytes_s = 8 * model.layers * layer_bytes * (nodes - 1) / LINK_BITS_PER_S
    exchanging = Expected.within(message_s + bytes_s, LINK_DOUBT)
    return times.computing * (1 + alone_bytes / computed_bytes) + exchanging


def _model(name: str) -> DistributedModel:
    older = next((each for each in OLDER if each.name == name), None)
    if older is not None:
        return older
    path = header_of(next(its for words, its in OUTLINES if re.match(words, name)), Silent())
    found = distributed_model(path, read_outline(path)[1], ())
    # Its own converter writes every matrix in Q4_0.
    return found.model_copy(update={"output_type": "Q4_0"})


def summary(found: list[Forecast]) -> dict[str, float | str]:
    by_source: dict[str, list[float]] = {}
    for each in found:
        by_source.setdefault(each.row["source"], []).append(abs(each.error))
    worst = max(found, key=lambda each: abs(each.error))
    recent = [abs(each.error) for each in found if each.row["engine_date"] >= "2025"]
    return {
        "rows": len(found),
        "sources": len(by_source),
        "median_error": statistics.median(abs(each.error) for each in found),
        "median_of_sources": statistics.median(map(statistics.median, by_source.values())),
        "recent_rows": len(recent),
        "recent_median_error": statistics.median(recent) if recent else "no rows",
        "in_interval": statistics.fmean(each.holds for each in found),
        "worst": worst.row["id"],
        "worst_error": worst.error,
    }


def main() -> None:
    """Print the forecasts of the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = forecasts(chosen.rows)
    if chosen.json:
        print(json.dumps(summary(found), indent=1))
        return
    print("| boards | model | program | published tokens/s | predicted (interval) | error |")
    print("|---|---|---|---|---|---|")
    for each in found:
        row, time = each.row, each.token_s
        speeds = f"{1 / time.value:.3g} ({1 / time.high:.3g} to {1 / time.low:.3g})"
        program = f"{row['engine']}, {row['engine_date'][:7]}"
        print(
            f"| {row['board']} | {row['model']} | {program} | {each.published:g} | {speeds} "
            f"| {each.error:+.0%} |"
        )
    for key, value in summary(found).items():
        print(f"{key}: {value if isinstance(value, str) else f'{value:.3g}'}")


if __name__ == "__main__":
    main()
