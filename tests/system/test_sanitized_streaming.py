"""Streaming under sanitizers, with memory that comes and goes: unexplained reports fail."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.system.lacking import with_meminfo, without_calls
from tests.system.sanitized import FREE, RESERVE_BYTES, SHORT, Done, Sanitized, graph
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
DENSE, EXPERTS = 0, 64
RACING = {"give_up", "choose_windowed"}
"""Functions that release a piece, and arrange them all."""
INPUT_OUTPUT_ERROR = 74


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return graph(request.param, tmp_path_factory)


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


def press(process: subprocess.Popen[str], folder: Path) -> Iterator[None]:
    """Have memory be short for a look or two of the guard, again and again until it ends."""
    pauses = random.Random(1)
    while process.poll() is None:
        (folder / "meminfo").write_text(SHORT)
        time.sleep(0.012)
        (folder / "meminfo").write_text(FREE)
        time.sleep(pauses.uniform(0.02, 0.2))
        yield


def under_pressure(
    built: Sanitized, started: Sequence[str], variables: Mapping[str, str], folder: Path
) -> Done:
    process = built.starts(started, variables, launcher=with_meminfo(FREE, folder))
    assert process.stdout is not None
    first = process.stdout.readline()
    for _ in press(process, folder):
        pass
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


@as_root
def test_without_the_lock_a_race_is_reported_that_no_suppression_hides(
    weights: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    built = graph("thread", tmp_path_factory)
    variables = streamed(FILE_BYTES - (20 << 20)) | {"GRAPH_UNLOCKED": "1"}
    launcher = with_meminfo(FREE, tmp_path)
    process = built.starts(words(built, weights, DENSE, 1000), variables, launcher=launcher)
    for _ in press(process, tmp_path):
        text = "".join(path.read_text() for path in built.reports.iterdir())
        if any(set(re.findall(r"#\d+ (\w+) ", each)) >= RACING for each in text.split("=====")):
            process.kill()
    process.communicate()
    reports = built.reported()
    assert process.returncode == -signal.SIGKILL, reports


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
