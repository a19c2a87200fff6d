"""How much the trace costs: the same program with and without it, in pairs.

    python benchmarks/trace_overhead.py [--pairs 40] [--tokens 128]

Builds the pinned engine for this machine's own CPU (minutes, the first time), makes a random
model whose tokens take 10 ms or more, and runs the program in pairs, one of each pair traced,
in random order. It prints the median of the pairs' differences with an interval of 95 %
confidence from the bootstrap, for the time from prompt to end and for CPU time. Wall time
says what a person sees, but on a machine with other work it is noisy; CPU time is steadier.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

from armload.build.compiler import find_zig, tool
from armload.build.source import engine_commit, pinned_source
from armload.core.progress import Silent
from armload.core.workspace import cache_folder, data_path
from armload.models.synth import Shape, synthesise

SHAPE = Shape(
    layers=16,
    width=1024,
    feed_forward=4096,
    heads=16,
    kv_heads=8,
    vocabulary=4096,
    context_length=1024,
)
RESAMPLES = 10_000


def native_engine() -> Path:
    """Build llama-completion for this machine, with the trace, and return its path."""
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    source = pinned_source()
    compiler = find_zig().model_copy(update={"triple": f"{machine}-linux-musl"})
    place = cache_folder() / "benchmarks" / f"native-{source.version}"
    folder = source.provide(Silent())
    definitions = {
        **compiler.install(place / "compiler"),
        "CMAKE_MAKE_PROGRAM": str(tool("ninja", "BIN_DIR", "ninja")),
        "ARMLOAD_SOURCE": str(folder),
        "ARMLOAD_NATIVE": str(data_path("toolchains", "native")),
        "ARMLOAD_CPU_FLAGS": "-mcpu=native",
        "ARMLOAD_ENGINE_COMMIT": engine_commit(source, folder),
    }
    cmake = str(tool("cmake", "CMAKE_BIN_DIR", "cmake"))
    given = [f"-D{name}={value}" for name, value in definitions.items()]
    overlay = str(data_path("toolchains", "overlay"))
    tree = str(place / "tree")
    subprocess.run([cmake, "-G", "Ninja", "-S", overlay, "-B", tree, *given], check=True)
    subprocess.run([cmake, "--build", tree, "--target", "llama-completion"], check=True)
    return place / "tree" / "bin" / "llama-completion"


def run(program: Path, model: Path, tokens: int, trace: Path | None) -> tuple[float, float]:
    """Return wall and CPU time per token in milliseconds, of prompt and generation together.

    Wall time is the engine's own, without loading; CPU time is the whole process's.
    """
    environment = {name: value for name, value in os.environ.items() if name != "ARMLOAD_TRACE"}
    if trace is not None:
        environment["ARMLOAD_TRACE"] = str(trace)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            *(str(program), "-m", str(model), "-p", "one two three", "-n", str(tokens)),
            *("-t", "1", "--temp", "0", "-no-cnv", "--ignore-eos", "--perf", "--no-warmup"),
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = re.search(r"total time = +([\d.]+) ms", done.stderr)
    if total is None:  # its logger sometimes loses the last lines when it ends
        return run(program, model, tokens, trace)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(total.group(1)) / tokens, 1000 * cpu_s / tokens


def interval(differences: list[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % interval, from resampling with replacement."""
    chance = random.Random(1)
    medians = sorted(
        statistics.median(chance.choices(differences, k=len(differences))) for _ in range(RESAMPLES)
    )
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]
    return statistics.median(differences), low, high


def main() -> None:
    """Run the benchmark and print its result."""
    parser = argparse.ArgumentParser(description="Measure what the trace costs.")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=128)
    wanted = parser.parse_args()
    program = native_engine()
    chance = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.gguf")
        synthesise(SHAPE, model, quantisation="Q8_0", seed=1, progress=Silent())
        run(program, model, wanted.tokens, None)
        plain: list[tuple[float, float]] = []
        traced: list[tuple[float, float]] = []
        for _ in range(wanted.pairs):
            kinds = [(plain, None), (traced, Path(folder, "trace.jsonl"))]
            chance.shuffle(kinds)
            for results, trace in kinds:
                results.append(run(program, model, wanted.tokens, trace))
    for index, name in enumerate(("wall", "CPU")):
        token_ms = statistics.median(result[index] for result in plain)
        differences = [
            with_[index] - without[index] for with_, without in zip(traced, plain, strict=True)
        ]
        median, low, high = (1000 * value for value in interval(differences))
        print(
            f"{name} time: {token_ms:.2f} ms per token; the trace adds {median:+.1f} us "
            f"({low:+.1f} to {high:+.1f}), that is {median / token_ms / 10:+.3f} % "
            f"({low / token_ms / 10:+.3f} to {high / token_ms / 10:+.3f})"
        )


if __name__ == "__main__":
    main()
