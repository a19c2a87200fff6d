"""Streamed weights beside plain llama.cpp, on this machine made as small and slow as a board.

    python benchmarks/streamed_weights.py [--memory 700MB] [--rate 165MB] [--like tinyllama-1.1b]
    python benchmarks/streamed_weights.py --ways --like llama-3.2-1b --memory 900MB [--burst 2]

Needs root, and control groups of version 1: a memory group limits the memory, page cache included,
and a blkio group the rate at which the model's disk is read. Builds the pinned engine for this
machine's own CPU, makes a model of random weights, and runs the same program on the same prompt:

- in memory: nothing limited, to know what computing takes;
- beside the reader: streamed from a file in memory, which adds the reader thread's work;
- mapped: as plain llama.cpp does it, warm-up included;
- streamed.

With ``--ways`` it compares mapped and streamed weights at three sizes of the kernel's readahead.
Streamed ones are read in both ways and in the one that the program chooses, beside the limit: what
is streamed, divided by the rate of the storage. ``--burst 2`` makes the storage ten times as fast
for the first two seconds of each run.

The page cache is dropped before each run. The four alternate. With ``--balanced``
the rate is such that reading takes as long as computing. With ``--pass-tokens 256``, passes over
the weights that process so many tokens of a long prompt are timed instead of those that generate
one token, so that this machine computes as long per byte of weights as a board does. (A CPU group's
quota stops the reader with the computation, and qemu-user ignores ``MADV_RANDOM``: the kernel then
reads ahead by itself, in folios that are not dropped.)
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from armload.analysis.streaming import streamed_weights
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.core.values import format_bytes, parse_bytes
from armload.engines.trace import Step, read_trace
from armload.models.shape import load_shape
from armload.models.synth import synthesise

GROUPS = Path("/sys/fs/cgroup")
PROMPT = "one two three four five six seven eight"
DIGIT = "7"
"""One token each, however many stand in a row."""

UNLIMITED_BYTES = 1 << 50
BLOCK_BYTES = 512
"""Of ``ru_inblock``."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a run may use: bytes of memory, and bytes per second of storage; none for all.

    Attributes:
        burst_s: how long the storage is ten times as fast at first.
    """

    memory_bytes: int = UNLIMITED_BYTES
    bytes_per_s: int | None = None
    burst_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run. Passes over the weights after the first, whose reading has settled, are counted.

    Attributes:
        over_floor: median of a pass's time, times the larger of its own computing (what it did not
            wait for storage, the reader's work beside it included) and reading; none unlimited.
        reads: how streamed weights were read, and why.
    """

    pass_s: float
    first_pass_s: float
    read_in_first_pass_bytes: int
    read_per_pass_bytes: float
    streamed_bytes: int
    text: bytes
    over_floor: float | None
    reads: str


def sized(text: str) -> int:
    """Return a size in bytes."""
    size = parse_bytes(text)
    assert isinstance(size, int)
    return size


class Measure(Protocol):
    """Runs the program once with a model, limits and variables."""

    def __call__(self, path: Path, limits: Limits, **variables: str) -> Result:
        """Return what it took."""


@contextmanager
def limited(folder: Path, limits: Limits) -> Iterator[str]:
    """Yield a shell command that moves its shell into groups with these limits."""
    name = f"armload-{os.getpid()}"
    memory, blkio = (GROUPS / kind / name for kind in ("memory", "blkio"))
    for group in (memory, blkio):
        group.mkdir()
    try:
        (memory / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
        if limits.bytes_per_s is not None:
            throttle(blkio, folder, limits.bytes_per_s * (10 if limits.burst_s else 1))
        if limits.bytes_per_s is not None and limits.burst_s:
            slower = (blkio, folder, limits.bytes_per_s)
            threading.Timer(limits.burst_s, throttle, slower).start()
        yield " && ".join(f"echo $$ >{group}/cgroup.procs" for group in (memory, blkio))
    finally:
        for group in (memory, blkio):
            while (group / "cgroup.procs").read_text():  # the last command's sleep may be there
                time.sleep(0.1)
            group.rmdir()


def throttle(group: Path, folder: Path, bytes_per_s: int) -> None:
    """Limit the rate at which a group reads the disk of a folder."""
    device = folder.stat().st_dev
    rule = f"{os.major(device)}:{os.minor(device)} {bytes_per_s}"
    (group / "blkio.throttle.read_bps_device").write_text(rule)


@contextmanager
def reading_ahead(folder: Path, kib: int) -> Iterator[None]:
    """Set the kernel's readahead for the disk of a folder."""
    device = folder.stat().st_dev
    disk = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    setting = (disk if (disk / "queue").is_dir() else disk.parent) / "queue" / "read_ahead_kb"
    before = setting.read_text()
    setting.write_text(str(kib))
    try:
        yield
    finally:
        setting.write_text(before)


def run(
    program: Path,
    model: Path,
    *,
    passes: int,
    pass_tokens: int,
    threads: int,
    limits: Limits,
    variables: Mapping[str, str],
) -> Result:
    """Run the program once, with a cold page cache."""
    prompt, tokens = (PROMPT, passes) if pass_tokens == 1 else (DIGIT * passes * pass_tokens, 2)
    context, batch = passes * pass_tokens + 256, max(pass_tokens, 64)
    with tempfile.TemporaryDirectory() as scratch, limited(model.parent, limits) as enter:
        trace, file = Path(scratch) / "trace.jsonl", Path(scratch) / "prompt.txt"
        file.write_text(prompt)
        words = [
            *(str(program), "-m", str(model), "-f", str(file), "-n", str(tokens)),
            *("-c", str(context), "-b", str(batch), "-ub", str(batch)),
            *("-t", str(threads), "--temp", "0", "-no-cnv", "--ignore-eos"),
            *("--no-repack", "-fit", "off", "--no-display-prompt"),
            *(["--no-warmup", "--poll", "0"] if variables else []),
        ]
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        blocks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
        done = subprocess.run(
            ["sh", "-c", f'{enter} && exec "$@"', "sh", *words],
            env={**os.environ, **variables, "ARMLOAD_TRACE": str(trace)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        blocks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - blocks
        header, steps = read_trace(trace)
    assert header is not None
    weights = streamed_weights(header)
    first, *others = steps
    timed = [step for step in others if step.tokens == pass_tokens][pass_tokens == 1 :]
    return Result(
        pass_s=statistics.median(step.duration_s for step in timed),
        first_pass_s=(first.end_ns - header.start_ns) / 1e9,
        read_in_first_pass_bytes=BLOCK_BYTES * blocks
        - sum(step.read_bytes or 0 for step in others),
        read_per_pass_bytes=statistics.median(step.read_bytes or 0 for step in timed),
        streamed_bytes=weights.streamed_bytes if weights else 0,
        text=done.stdout,
        reads=f"{weights.reads}: {weights.reads_because}" if weights else "",
        over_floor=statistics.median(over_floor(step, limits.bytes_per_s) for step in timed)
        if weights and limits.bytes_per_s
        else None,
    )


def over_floor(step: Step, bytes_per_s: int) -> float:
    """Return a pass's time, times the larger of its computing and its reading."""
    computing_s = step.duration_s - (step.storage_wait_ns or 0) / 1e9
    return step.duration_s / max(computing_s, (step.read_bytes or 0) / bytes_per_s)


def shown(name: str, results: list[Result]) -> str:
    """Return a line with the medians of several runs."""
    times = [each.pass_s for each in results]
    first = statistics.median(each.first_pass_s for each in results)
    read = statistics.median(each.read_per_pass_bytes for each in results)
    return (
        f"{name:<22} {statistics.median(times):6.3f} s/pass ({min(times):.3f} to {max(times):.3f})"
        f"  first pass {first:6.2f} s  reads {format_bytes(read)} per pass"
    )


def compare_ways(several: Measure, model: Path, limits: Limits, repeats: int) -> None:
    """Print how mapped and streamed weights do at three sizes of the readahead."""
    assert limits.bytes_per_s is not None
    for kib in (128, 4096, 8192):
        with reading_ahead(model.parent, kib):
            found: dict[str, list[Result]] = {}
            for _ in range(repeats):
                found.setdefault("mapped (plain)", []).append(several(model, limits))
                for way in ("", "direct", "buffered"):
                    variables = {"ARMLOAD_WEIGHTS": "streamed"} | (
                        {"ARMLOAD_READS": way} if way else {}
                    )
                    name = f"streamed, {way or 'as it chooses'}"
                    found.setdefault(name, []).append(several(model, limits, **variables))
        print(f"read_ahead_kb {kib}:")
        plain_s = statistics.median(each.pass_s for each in found["mapped (plain)"])
        for name, results in found.items():
            line = shown(name, results)
            if streamed_bytes := results[-1].streamed_bytes:
                limit_s = streamed_bytes / limits.bytes_per_s
                pass_s = statistics.median(each.pass_s for each in results)
                read = statistics.median(each.read_per_pass_bytes for each in results)
                line += (
                    f"  limit {limit_s:.3f} s: {pass_s / limit_s:.3f} of it, "
                    f"{read / streamed_bytes:.3f} of the bytes, {plain_s / pass_s:.2f} times as "
                    f"fast as mapped; reads {results[-1].reads}"
                )
            print(line, flush=True)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--like", default="tinyllama-1.1b")
    parser.add_argument("--quant", default="Q8_0")
    parser.add_argument("--memory", default="700MB")
    parser.add_argument("--rate", default="165MB")
    parser.add_argument("--balanced", action="store_true")
    parser.add_argument("--pass-tokens", type=int, default=1, help="tokens per timed pass")
    parser.add_argument("--ways", action="store_true", help="compare the ways of reading")
    parser.add_argument("--burst", type=float, default=0.0, help="seconds of a burst")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    memory_bytes, bytes_per_s = sized(given.memory), sized(given.rate)
    (binary,) = build(load_target("host"))
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as on_disk,
        tempfile.TemporaryDirectory(dir="/dev/shm") as in_memory,
    ):
        model = Path(on_disk) / "model.gguf"
        shape = load_shape(given.like)
        synthesise(shape, model, quantisation=given.quant, seed=1, progress=Silent())
        copy = Path(shutil.copy(model, in_memory))

        def several(path: Path, limits: Limits, **variables: str) -> Result:
            return run(
                binary.path,
                path,
                passes=given.passes,
                pass_tokens=given.pass_tokens,
                threads=given.threads,
                limits=limits,
                variables=variables,
            )

        if given.ways:
            limits = Limits(memory_bytes=memory_bytes, bytes_per_s=bytes_per_s, burst_s=given.burst)
            compare_ways(several, model, limits, given.repeats)
            return
        sample = several(model, Limits(memory_bytes=memory_bytes), ARMLOAD_WEIGHTS="streamed")
        resident = model.stat().st_size - sample.streamed_bytes
        from_memory = {"ARMLOAD_WEIGHTS": "streamed", "ARMLOAD_RESIDENT": str(resident)}
        if given.balanced:
            alone = [several(copy, Limits(), **from_memory).pass_s for _ in range(3)]
            compute_s = statistics.median(alone)
            bytes_per_s = int(sample.streamed_bytes / compute_s)
        limits = Limits(memory_bytes=memory_bytes, bytes_per_s=bytes_per_s)
        in_memory_results, beside, mapped, streamed = [], [], [], []
        for _ in range(given.repeats):
            in_memory_results.append(several(model, Limits()))
            beside.append(several(copy, Limits(), **from_memory))
            mapped.append(several(model, limits))
            streamed.append(several(model, limits, ARMLOAD_WEIGHTS="streamed"))
        compute_s = statistics.median(each.pass_s for each in beside)
        print(shown("in memory", in_memory_results))
        print(shown("beside the reader", beside))
        print(f"{format_bytes(memory_bytes)} of memory, storage at {format_bytes(bytes_per_s)}/s:")
        print(shown("mapped (plain)", mapped))
        print(shown("streamed", streamed))
        pass_s = statistics.median(each.pass_s for each in streamed)
        streamed_bytes = streamed[-1].streamed_bytes
        floor_s = max(compute_s, streamed_bytes / bytes_per_s)
        plain_s = statistics.median(each.pass_s for each in mapped)
        weights_bytes = model.stat().st_size
        passes, plain_passes = (
            statistics.median(each.read_in_first_pass_bytes for each in results) / weights_bytes
            for results in (streamed, mapped)
        )
        own = [each.over_floor for each in streamed if each.over_floor is not None]
        texts = {each.text for each in (*in_memory_results, *beside, *mapped, *streamed)}
        print(
            f"streamed is {plain_s / pass_s:.2f} times as fast as mapped; "
            f"{pass_s / floor_s:.3f} times the larger of computing ({compute_s:.3f} s) and "
            f"reading {format_bytes(streamed_bytes)} ({streamed_bytes / bytes_per_s:.3f} s), "
            f"and {statistics.median(own):.3f} ({min(own):.3f} to {max(own):.3f}) times that of "
            "the same passes; "
            f"{passes:.2f} files read by the end of the first pass, mapped {plain_passes:.2f}; "
            f"texts {'equal' if len(texts) == 1 else 'DIFFER'}"
        )


if __name__ == "__main__":
    main()
