"""Mixtures of experts larger than memory, streamed and as plain llama.cpp maps them.

    python benchmarks/streamed_experts.py [--models even,planted,many] [--times 1.5,2,3]
        [--rates 165MB,450MB] [--tokens 48] [--threads 2] [--repeats 3] [--folder /var/tmp]
        [--real-time]

Needs root, and control groups of version 1: a memory group limits the memory, page cache included,
to a fraction of the model's size, and a blkio group the rate at which its disk is read. Builds the
pinned engine for this machine's own CPU and makes models of random weights:

- even: of random routers, which use all experts alike;
- planted: the words of a text favour few experts, and others as it goes on;
- many: 512 experts, random routers.

Each run reads a prompt of some 512 tokens and generates. Mapped and streamed runs alternate, each
with a cold page cache. After each pair it prints what was measured beside each bar, and whether the
texts are equal. With ``--real-time`` the programs get their cores before all others, so that times
count beside other work; leave a core for the rest with ``--threads 1``.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamed_weights import BLOCK_BYTES, Limits, limited, sized

from armload.analysis.streaming import streamed_weights
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.core.values import format_bytes
from armload.engines.trace import Step, Weights, read_trace
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.models.vocabulary import english_words

EVEN = Shape(
    architecture="qwen3moe",
    layers=12,
    width=768,
    feed_forward=2048,
    heads=8,
    kv_heads=2,
    head_width=96,
    vocabulary=4096,
    context_length=2048,
    experts=64,
    experts_used=4,
    expert_feed_forward=512,
)
"""Of 1 GB: an expert of a layer has 1.25 MB."""

SHAPES = {
    "even": EVEN,
    "planted": EVEN.model_copy(update={"planted_router": True}),
    "many": EVEN.model_copy(
        update={"layers": 4, "experts": 512, "experts_used": 10, "expert_feed_forward": 256}
    ),
}
PROMPT_WORDS = 440
"""Some 512 tokens."""

EVEN_MISSES, GAIN, WITHIN = 1.05, 1.8, 1.1
"""The bars: misses over those of the share that does not stay; streamed over mapped speed of a
planted router; times over what they consist of."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run.

    Attributes:
        prompt: its step.
        decode: the steps that generated, without the first.
        first_pass_bytes: read from the start of the program to the end of the prompt.
        weights: how they were held; none of a mapped run.
    """

    prompt: Step
    decode: list[Step]
    first_pass_bytes: int
    weights: Weights | None
    text: bytes

    @property
    def token_s(self) -> float:
        """Mean time per token: hits and misses both count."""
        return statistics.mean(step.duration_s for step in self.decode)

    @property
    def read_bytes(self) -> float:
        """Per token."""
        return statistics.mean(step.read_bytes or 0 for step in self.decode)


def run(
    program: Path,
    model: Path,
    limits: Limits,
    tokens: int,
    threads: int,
    *,
    is_streamed: bool,
    real_time: bool,
) -> Result:
    """Run the program once, with a cold page cache."""
    with tempfile.TemporaryDirectory() as scratch, limited(model.parent, limits) as enter:
        trace, file = Path(scratch) / "trace.jsonl", Path(scratch) / "prompt.txt"
        drawn = random.Random(1).choices(english_words(), k=PROMPT_WORDS)
        file.write_text(" ".join(drawn))
        words = [
            *(["chrt", "-f", "1"] if real_time else []),
            *(str(program), "-m", str(model), "-f", str(file), "-n", str(tokens)),
            *("-c", "1024", "-b", "1024", "-ub", "1024", "-t", str(threads)),
            *("--temp", "1", "--seed", "1"),
            *("-no-cnv", "--ignore-eos", "--no-repack", "-fit", "off", "--no-display-prompt"),
            *(["--no-warmup", "--poll", "0"] if is_streamed else []),
        ]
        variables = {"ARMLOAD_TRACE": str(trace)}
        if is_streamed:
            variables["ARMLOAD_WEIGHTS"] = "streamed"
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        blocks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
        done = subprocess.run(
            ["sh", "-c", f'{enter} && exec "$@"', "sh", *words],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        blocks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - blocks
        header, (prompt, *decode) = read_trace(trace)
    return Result(
        prompt=prompt,
        decode=decode[1:],
        first_pass_bytes=BLOCK_BYTES * blocks - sum(step.read_bytes or 0 for step in decode),
        weights=streamed_weights(header),
        text=done.stdout,
    )


def waited_s(steps: Sequence[Step]) -> float:
    """Return how long computing waited for storage."""
    return sum(step.storage_wait_ns or 0 for step in steps) / 1e9


def over(measured: float, bar: float) -> str:
    """Return a figure beside its bar."""
    return f"{measured:.2f} (bar {bar:.2f}{'' if measured <= bar else ', MISSED'})"


def below(measured: float, bar: float) -> str:
    """Return a figure beside the least that it is to be."""
    return f"{measured:.2f} (bar {bar:.2f}{'' if measured >= bar else ', MISSED'})"


def report(kind: str, times: float, rate: int, mapped: Result, streamed: Result) -> str:
    """Return what a pair of runs shows."""
    weights = streamed.weights
    assert weights is not None, "the weights were not streamed"
    share = weights.expert_slot_bytes / weights.expert_bytes
    used = sum(step.expert_bytes or 0 for step in streamed.decode)
    missed = sum(step.missed_bytes or 0 for step in streamed.decode)
    total_s = sum(step.duration_s for step in streamed.decode)
    computing_s = total_s - waited_s(streamed.decode)
    gain = mapped.token_s / streamed.token_s
    least = GAIN if kind == "planted" and times >= 2 else 1.0
    prompt = streamed.prompt
    reading_s = (prompt.read_bytes or 0) / rate
    floor_s = max(prompt.duration_s - waited_s([prompt]), reading_s)
    dense_bytes = weights.weights_bytes - weights.expert_bytes
    first = streamed.first_pass_bytes / (dense_bytes + (prompt.missed_bytes or 0))
    misses = missed / used / (1 - share)
    over_parts = total_s / (computing_s + missed / rate)
    equal = "equal" if mapped.text == streamed.text else "DIFFER"
    return f"""\
  mapped {mapped.token_s:.3f} s/token, reads {format_bytes(mapped.read_bytes)}; \
streamed {streamed.token_s:.3f}, reads {format_bytes(streamed.read_bytes)}: \
{below(gain, least)} times as fast
  {share:.0%} of the experts stay, {1 - missed / used:.0%} hits; misses over the share that does \
not stay: {over(misses, EVEN_MISSES)}
  time over computing and reading what was missed: {over(over_parts, WITHIN)}
  prompt of {prompt.tokens} tokens: {prompt.duration_s:.2f} s, mapped \
{mapped.prompt.duration_s:.2f}; over the larger of computing and reading: \
{over(prompt.duration_s / floor_s, WITHIN)}
  bytes read until its end, over those that it used: {over(first, EVEN_MISSES)}
  texts {equal}"""


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="even,planted,many")
    parser.add_argument("--times", default="1.5,2,3", help="the model's size over the memory")
    parser.add_argument("--rates", default="165MB,450MB", help="of storage, per second")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2, help="1 beside other work")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--real-time", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    (binary,) = build(load_target("host"))
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for kind in given.models.split(","):
            model = Path(folder) / "model.gguf"
            synthesise(SHAPES[kind], model, quantisation="Q8_0", seed=1, progress=Silent())
            for times in map(float, given.times.split(",")):
                for rate in map(sized, given.rates.split(",")):
                    memory = int(model.stat().st_size / times)
                    limits = Limits(memory_bytes=memory, bytes_per_s=rate)
                    for _ in range(given.repeats):
                        mapped, streamed = (
                            run(
                                *(binary.path, model, limits, given.tokens, given.threads),
                                is_streamed=is_streamed,
                                real_time=given.real_time,
                            )
                            for is_streamed in (False, True)
                        )
                        print(
                            f"{kind}, {times:g} times {format_bytes(memory)}, "
                            f"{format_bytes(rate)}/s:\n"
                            f"{report(kind, times, rate, mapped, streamed)}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
