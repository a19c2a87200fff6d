"""Whether armload's rates agree with llama-bench's, of the same build, model and threads.

    python benchmarks/llama_bench.py [--pairs 12] [--tokens 128] [--prompt 256] [--threads 1]

Builds the pinned engine for this machine's own CPU (minutes, the first time) and makes a random
model. llama-bench and llama-completion with the trace run in turn, in random order within each
pair, all on the same cores, one for each thread. Prints the medians of both, and the ratio of
times with its interval of 95% confidence.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

from small_model import SHAPE

from armload.analysis.statistics import ratio_of_runs
from armload.analysis.summary import Summary, summarise
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.engines.trace import read_trace
from armload.models.synth import synthesise
from armload.models.tokens import prompt_of

Rates = tuple[float, float]
"""Prefill and decode, in tokens per second."""


def ours(program: Path, model: Path, chosen: argparse.Namespace, folder: Path) -> Rates:
    """Return the rates from the traces of two runs of llama-completion.

    llama-bench begins both of its tests with an empty context, so decoding is not measured after
    the long prompt, where each token has more to attend to.
    """
    prefill = _traced(program, model, chosen, folder, prompt=chosen.prompt, tokens=2)
    decode = _traced(program, model, chosen, folder, prompt=2, tokens=chosen.tokens)
    return prefill.prefill_tps or 0.0, decode.decode_tps or 0.0


def _traced(
    program: Path,
    model: Path,
    chosen: argparse.Namespace,
    folder: Path,
    *,
    prompt: int,
    tokens: int,
) -> Summary:
    trace = folder / "trace.jsonl"
    subprocess.run(
        [
            *(str(program), "-m", str(model), "-p", prompt_of(model, prompt)),
            *("-n", str(tokens), "-t", str(chosen.threads), "--temp", "0", "-no-cnv"),
            *("--ignore-eos", "-fa", "on", "-c", "1024"),
        ],
        env=os.environ | {"ARMLOAD_TRACE": str(trace)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    summary = summarise(*read_trace(trace))
    if summary.prefill_tokens != prompt or summary.decode_tokens != tokens - 1:
        raise SystemExit("The engine did not do what both should do.")
    return summary


def theirs(program: Path, model: Path, chosen: argparse.Namespace) -> Rates:
    """Return the rates that one run of llama-bench says."""
    done = subprocess.run(
        [
            *(str(program), "-m", str(model), "-p", str(chosen.prompt), "-n", str(chosen.tokens)),
            *("-t", str(chosen.threads), "-r", "1", "-fa", "on", "-o", "json"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
    )
    by_test = {bool(test["n_gen"]): float(test["avg_ts"]) for test in json.loads(done.stdout)}
    return by_test[False], by_test[True]


def main() -> None:
    """Run the pairs and print how the rates agree."""
    parser = argparse.ArgumentParser(description="Compare armload's rates with llama-bench's.")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    built = build(load_target("host"), programs=("llama-completion", "llama-bench"))
    bench, completion = sorted(built, key=lambda binary: binary.program)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-chosen.threads :]))
    chance = random.Random(3)
    mine: list[Rates] = []
    its: list[Rates] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.gguf"
        synthesise(SHAPE, model, quantisation="Q8_0", seed=1, progress=Silent())
        theirs(bench.path, model, chosen)  # the file is in memory from here on
        for _ in range(chosen.pairs):
            for is_mine in chance.sample((True, False), k=2):
                if is_mine:
                    mine.append(ours(completion.path, model, chosen, folder))
                else:
                    its.append(theirs(bench.path, model, chosen))
    for index, phase in enumerate(("prefill", "decode")):
        rates = [[each[index] for each in side] for side in (its, mine)]
        found = ratio_of_runs(*([1 / rate for rate in side] for side in rates))
        print(
            f"{phase:8} llama-bench {statistics.median(rates[0]):8.2f} tok/s, "
            f"armload {statistics.median(rates[1]):8.2f} tok/s, ratio of times "
            f"{found.ratio:.4f} ({found.low:.4f} to {found.high:.4f})"
        )


if __name__ == "__main__":
    main()
