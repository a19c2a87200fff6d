"""Streaming under sanitizers, with memory that comes and goes: unexplained reports fail."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.system.lacking import with_meminfo, without_calls
from tests.system.sanitized import Done, Sanitized, graph
from tests.system.streaming import streamed

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(
        covers=[
            "toolchains/native",
            "toolchains/overlay",
            "toolchains/sources",
            "tests/system/sanitized.py",
            "tests/system/sanitizers",
        ]
    ),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")

FILE_BYTES = 128 << 20
RESERVE_BYTES = 24 << 20
FREE = "MemTotal: 409600 kB\nMemAvailable: 307200 kB\nSwapTotal: 0 kB\n"
SHORT = FREE.replace("307200", str((RESERVE_BYTES // 2 >> 10) - 64))
"""So little that just over half of the reserve is given back at a time."""
DENSE, EXPERTS = 0, 64
INPUT_OUTPUT_ERROR = 74


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return graph(request.param, tmp_path_factory.mktemp("sanitized"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "weights"
    values = np.random.default_rng(1).standard_normal(FILE_BYTES // 4, dtype=np.float32)
    values.tofile(path)
    return path


def words(
    built: Sanitized, weights: Path, experts: int, passes: int, threads: int = 1
) -> list[str]:
    return built.words("graph", weights, experts, passes, threads)


def released_bytes(done: Done) -> int:
    (found,) = re.findall(r"^unfit= released=(\d+)", done.log, re.MULTILINE)
    return int(found)


def under_pressure(
    built: Sanitized, started: Sequence[str], variables: Mapping[str, str], folder: Path
) -> Done:
    """Run a program for which memory is short for a look or two of the guard, again and again."""
    process = built.starts(started, variables, launcher=with_meminfo(FREE, folder))
    pauses = random.Random(1)
    assert process.stdout is not None
    first = process.stdout.readline()
    while process.poll() is None:
        (folder / "meminfo").write_text(SHORT)
        time.sleep(0.012)
        (folder / "meminfo").write_text(FREE)
        time.sleep(pauses.uniform(0.02, 0.2))
    done = built.ended(process)
    return done._replace(out=first + done.out)


@as_root
@pytest.mark.parametrize("experts", [DENSE, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("reads", ["direct", "buffered"])
def test_memory_that_is_given_back_while_streaming_starts_again(
    built: Sanitized, weights: Path, tmp_path: Path, reads: str, experts: int
) -> None:
    started = words(built, weights, experts, 25)
    expected = built.runs(started)
    variables = streamed(FILE_BYTES - (20 << 20)) | {"ARMLOAD_READS": reads}
    found = under_pressure(built, started, variables, tmp_path)
    assert (found.status, found.out) == (0, expected.out), found.log
    least_bytes = 0 if experts else RESERVE_BYTES // 2  # of experts, few are held at first
    assert released_bytes(found) > least_bytes


@pytest.mark.parametrize("experts", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_odd_limits_and_kernels_that_lack_something(
    built: Sanitized, weights: Path, experts: int
) -> None:
    started = words(built, weights, experts, 4, threads=2)
    expected = built.runs(started)
    for resident in ("", "-5", "1", "x", "9" * 30, "30000000"):
        found = built.runs(started, streamed() | {"ARMLOAD_RESIDENT": resident})
        assert (found.status, found.out) == (0, expected.out), (resident, found.log)
    for launcher in (
        *(without_calls("mlock2"), without_calls("mlock", "mlock2"), without_calls("memfd_create")),
        *(["prlimit", "--nofile=12"], ["prlimit", "--memlock=65536"]),
    ):
        process = built.starts(started, streamed(30 << 20), launcher=launcher)
        found = built.ended(process)
        assert (found.status, found.out) == (0, expected.out), (launcher, found.log)


@pytest.mark.parametrize("experts", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_a_file_that_is_truncated_meanwhile(
    built: Sanitized, weights: Path, tmp_path: Path, experts: int
) -> None:
    copy = tmp_path / "weights"
    copy.write_bytes(weights.read_bytes()[: 64 << 20])
    process = built.starts(words(built, copy, experts, 100_000), streamed(8 << 20))
    assert process.stdout is not None
    process.stdout.readline()
    os.truncate(copy, copy.stat().st_size // 2)
    done = built.ended(process)
    assert done.status == INPUT_OUTPUT_ERROR
    assert "the model cannot be read" in done.log
