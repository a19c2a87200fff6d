"""How much the trace costs: the same program with and without it, in pairs.

    python benchmarks/trace_overhead.py [--of trace|weights] [--pairs 40] [--tokens 128]
    python benchmarks/trace_overhead.py --of images [--pairs 40]
    python benchmarks/trace_overhead.py --of clocks [--readings 10000]

Builds the pinned engine for this machine's own CPU (minutes, the first time), makes a random
model whose tokens take 10 ms or more, and runs the program in pairs, one of each pair traced,
in random order, all on one core. With ``--of weights``, one of each pair decides by itself whether
the weights are to be streamed, as every run of armload does, and leaves them as they are, because
they fit into memory. Other work on the machine can only make a run slower, so the quickest tenth of
each kind's runs are compared: it prints the difference of the two kinds' tenth percentiles with an
interval of 95% confidence from the bootstrap over pairs, for the time from prompt to end and for
CPU time.

With ``--of images``, the program is llama-mtmd-cli with a small model and a tiny projector of
random weights, which is shown sixteen images in one prompt: little is computed, so that what the
trace adds to each image shows. Its time is that of the whole process to the first token.

What the clocks of memory and devices add is too little for that. With ``--of clocks``, a program
made of the trace's own functions reads sensors and writes the end of a step's line, with none and
with as many clocks as a trace may have, each a file of this machine's ``/sys``. Before each reading
it walks through more memory than the caches hold, as a token does. The CPU time of both, and how
often a trace does either, tell what a token pays.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PIL import Image
from small_model import SHAPE

sys.path.insert(0, str(Path(__file__).parents[1]))
from armload.build.backend import native_folder
from armload.build.builder import build
from armload.build.helper import any_cpu_compiler
from armload.build.target import load_target, machine_architecture
from armload.core.progress import Silent
from armload.engines.completion import PROGRAM
from armload.engines.perception import PERCEIVING_PROGRAM
from armload.engines.weights import MODE_VARIABLE
from armload.models.packaged import word_problems_model
from armload.models.synth import synthesise
from tests.projectors import with_context, write_seeing

RESAMPLES = 2_000
IMAGES = 16
"""As many as a prompt may have."""

CLOCKS_VARIABLE = "ARMLOAD_CLOCKS"
CLOCKS = (0, 1, 4, 16)
CLOCK = "/sys/kernel/mm/ksm/sleep_millisecs"
"""A file with a number, that the kernel writes when it is read, as those of clocks are."""

TOKENS_MS = (10, 100, 1000)

READING = """
#include "armload_sensors.h"

int main(int count, char ** words) {
    enum { EVICTED_BYTES = 64 << 20, BYTES_OF_A_LINE = 64 };
    const long readings = count > 1 ? atol(words[1]) : 1;
    volatile char * memory = calloc(1, EVICTED_BYTES);
    char    line[ARMLOAD_LINE_BYTES];
    int64_t reading_ns = 0, writing_ns = 0, nothing_ns = 0, at = 0;
    if (memory == NULL) return 1;
    armload_open_sensors();
    for (long i = 0; i < readings; i++) {
        for (int step = 0; step < EVICTED_BYTES / 16 / BYTES_OF_A_LINE; step++) {
            memory[at] += 1;
            at = (at + BYTES_OF_A_LINE) % EVICTED_BYTES;
        }
        armload_sensors.sensed_ns = 0;
        armload_clock_ns(CLOCK_THREAD_CPUTIME_ID); // its own code is cold, too
        const int64_t begins = armload_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        const int64_t begun = armload_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        armload_sense(armload_clock_ns(CLOCK_MONOTONIC));
        const int64_t read = armload_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        armload_append_sensors(line, 0);
        const int64_t written = armload_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        nothing_ns += begun - begins;
        reading_ns += read - begun;
        writing_ns += written - read;
    }
    printf("%ld %ld\\n", (long) ((reading_ns - nothing_ns) / readings),
           (long) ((writing_ns - nothing_ns) / readings));
    return 0;
}
"""


def native_engine(program: str = PROGRAM) -> Path:
    """Build a program for this machine, with the trace, and return its path."""
    (binary,) = build(load_target("host"), programs=[program])
    return binary.path


def run(
    program: Path, model: Path, tokens: int, variables: Mapping[str, str]
) -> tuple[float, float]:
    """Return wall and CPU time per token in milliseconds, of prompt and generation together.

    Wall time is the engine's own, without loading; CPU time is the whole process's.
    """
    environment = {name: value for name, value in os.environ.items() if "ARMLOAD" not in name}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            *(str(program), "-m", str(model), "-p", "one two three", "-n", str(tokens)),
            *("-t", "1", "--temp", "0", "-no-cnv", "--ignore-eos", "--perf", "--no-warmup"),
        ],
        env={**environment, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = re.search(r"total time = +([\d.]+) ms", done.stderr)
    if total is None:
        raise SystemExit(f"The engine did not print its total time:\n{done.stderr[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(total.group(1)) / tokens, 1000 * cpu_s / tokens


def see(program: Path, words: Sequence[str], variables: Mapping[str, str]) -> tuple[float, float]:
    """Return wall and CPU time of a process per image that it is shown, in milliseconds."""
    environment = {name: value for name, value in os.environ.items() if "ARMLOAD" not in name}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [
            *(str(program), *words, "-p", "x", "-n", "1", "-t", "1", "-c", "4096", "--jinja"),
            *("--temp", "0", "--no-warmup", "--offline"),
        ],
        env={**environment, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    wall_s = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * wall_s / IMAGES, 1000 * cpu_s / IMAGES


def image_words(folder: Path) -> list[str]:
    """Make a model that sees, its projector and images, and return the options for them."""
    model, projector = write_seeing(folder, word_problems_model("word-problems:Q8_0"))
    with_context(model, 4096)
    images = [folder / f"{number}.png" for number in range(IMAGES)]
    for each in images:
        Image.effect_noise((64, 64), 90).convert("RGB").save(each)
    shown = ",".join(map(str, images))
    return ["-m", str(model), "--mmproj", str(projector), "--image", shown]


def tenth_percentile(samples: list[float]) -> float:
    """Return the value that a tenth of the samples stay below."""
    return statistics.quantiles(samples, n=10, method="inclusive")[0]


def interval(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the difference of the kinds' tenth percentiles and its 95% interval.

    The interval comes from resampling the pairs (plain, other) with replacement.
    """

    def difference(drawn: list[tuple[float, float]]) -> float:
        plain, others = zip(*drawn, strict=True)
        return tenth_percentile(list(others)) - tenth_percentile(list(plain))

    chance = random.Random(1)
    drawn = sorted(difference(chance.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return difference(pairs), drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES)]


def print_clocks(folder: Path, readings: int) -> None:
    """Print the CPU time of reading and writing so many clocks, and its share of a token."""
    source, program = folder / "reading.c", folder / "reading"
    source.write_text(READING, encoding="utf-8")
    compiler = any_cpu_compiler(machine_architecture())
    options = ["-D_GNU_SOURCE", f"-I{native_folder()}", "-o", str(program)]
    subprocess.run([*compiler, *options, str(source)], check=True)
    read_us, written_us = {}, {}
    for clocks in CLOCKS:
        variables = {CLOCKS_VARIABLE: " ".join([CLOCK] * clocks)} if clocks else {}
        done = subprocess.run(
            [program, str(readings)], env=variables, capture_output=True, text=True, check=True
        )
        read_us[clocks], written_us[clocks] = (int(ns) / 1000 for ns in done.stdout.split())
        added = read_us[clocks] - read_us[0], written_us[clocks] - written_us[0]
        # Sensors are read at the end of a step, ten times a second at most.
        shares = (added[0] / max(each, 100) + added[1] / each for each in TOKENS_MS)
        said = ", ".join(
            f"{share / 10:.3f}% of {each} ms" for share, each in zip(shares, TOKENS_MS, strict=True)
        )
        print(
            f"{clocks} clocks: {read_us[clocks]:.1f} us to read all sensors, "
            f"{written_us[clocks]:.1f} us to write them; added by the clocks: {said} per token"
        )


def main() -> None:
    """Run the benchmark and print its result."""
    parser = argparse.ArgumentParser(description="Measure what the trace costs.")
    parser.add_argument("--of", choices=("trace", "clocks", "images", "weights"), default="trace")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--readings", type=int, default=10_000)
    wanted = parser.parse_args()
    if wanted.of == "clocks":
        with tempfile.TemporaryDirectory() as folder:
            print_clocks(Path(folder), wanted.readings)
        return
    program = native_engine(PERCEIVING_PROGRAM if wanted.of == "images" else PROGRAM)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    chance = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        traced = {"ARMLOAD_TRACE": str(Path(folder, "trace.jsonl"))}
        measured = {MODE_VARIABLE: "auto"} if wanted.of == "weights" else traced
        if wanted.of == "images":
            once = partial(see, program, image_words(Path(folder)))
        else:
            model = Path(folder, "model.gguf")
            synthesise(SHAPE, model, quantisation="Q8_0", seed=1, progress=Silent())
            once = partial(run, program, model, wanted.tokens)
        # As long as those measured: where the stack begins moves times by more than the trace.
        without = {name[:8] + "X" * len(name[8:]): value for name, value in measured.items()}
        once(without)
        plain: list[tuple[float, float]] = []
        others: list[tuple[float, float]] = []
        for _ in range(wanted.pairs):
            kinds: list[tuple[list[tuple[float, float]], Mapping[str, str]]] = [
                (plain, without),
                (others, measured),
            ]
            chance.shuffle(kinds)
            for figures, variables in kinds:
                figures.append(once(variables))
    of_what = "image" if wanted.of == "images" else "token"
    count = IMAGES if wanted.of == "images" else wanted.tokens
    print(f"{wanted.pairs} pairs of {count} {of_what}s")
    for index, name in enumerate(("wall", "CPU")):
        token_ms = tenth_percentile([result[index] for result in plain])
        pairs = [(one[index], other[index]) for one, other in zip(plain, others, strict=True)]
        added, low, high = (1000 * value for value in interval(pairs))
        print(
            f"{name} time: {token_ms:.2f} ms per {of_what}; {wanted.of}: {added:+.1f} us "
            f"({low:+.1f} to {high:+.1f}), that is {added / token_ms / 10:+.3f}% "
            f"({low / token_ms / 10:+.3f} to {high / token_ms / 10:+.3f})"
        )


if __name__ == "__main__":
    main()
