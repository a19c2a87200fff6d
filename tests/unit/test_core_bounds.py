"""What programs and people provide is bounded, and no program outlives armload."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import cast

import psutil
import pytest

from armload.boards.bulk import output_chunks
from armload.boards.host import OutputChunk
from armload.core.bounds import TooMuchError, read_bounded, run_bounded, size_words, within
from armload.core.errors import DataError, DiskError
from armload.core.values import load_json, parse_json
from tests.waiting import wait_until


def test_a_program_within_its_limits_is_read_to_its_end() -> None:
    done = run_bounded(["sh", "-c", "echo a; echo b >&2; exit 3"], most_bytes=4, limit_s=30)
    assert done == (3, b"a\n", b"b\n")


@pytest.mark.parametrize(
    ("line", "count"),
    [("cat", 1_000_000), ("head -c 3", 3), ("exec <&-; sleep 0.2; echo hi", 3), ("true", 0)],
)
def test_a_program_is_given_as_much_as_it_reads(line: str, count: int) -> None:
    given = b"0123456789" * 100_000
    done = run_bounded(["sh", "-c", line], given=given, most_bytes=1 << 21, limit_s=30)
    assert (done.status, len(done.stdout), done.stderr) == (0, count, b"")
    assert line != "cat" or done.stdout == given


@pytest.mark.parametrize("line", ["yes", "yes >&2", "cat /dev/zero"])
def test_a_program_that_reads_nothing_and_writes_without_end_is_ended(line: str) -> None:
    with pytest.raises(TooMuchError):
        run_bounded(["sh", "-c", line], given=bytes(1 << 20), most_bytes=1 << 16, limit_s=30)


@pytest.mark.parametrize("line", ["yes", "yes >&2", "head -c 70000 /dev/zero"])
def test_a_program_that_writes_more_is_ended(line: str) -> None:
    with pytest.raises(TooMuchError, match="it wrote more than 64 KiB"):
        run_bounded(["sh", "-c", line], most_bytes=1 << 16, limit_s=30)


def test_what_an_overdue_program_has_started_ends_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    line = f"sleep 600 & echo $! >{pid}; trap '' TERM; wait"
    with pytest.raises(TimeoutError):
        run_bounded(["sh", "-c", line], most_bytes=9, limit_s=1)
    wait_until(lambda: not psutil.pid_exists(int(pid.read_text())))


def test_what_a_program_leaves_running_is_not_waited_for() -> None:
    line = ["sh", "-c", "sleep 5 & echo $!"]
    left = psutil.Process(int(run_bounded(line, most_bytes=99, limit_s=30).stdout))
    assert left.is_running()
    left.kill()


def test_an_overdue_call_is_left_behind_and_an_error_is_passed_on() -> None:
    ended = threading.Event()
    with pytest.raises(TimeoutError, match=r"did not end within 0.05 s"):
        within(0.05, ended.wait)
    ended.set()
    assert within(30, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        within(30, lambda: 1 // 0)


_KILLED = """
import os, subprocess, sys, time
from armload.core.children import known
words = ["sh", "-c", "trap '' HUP INT; sleep 600 & wait"]
process = subprocess.Popen(words, start_new_session=True)
ended = subprocess.Popen(["true"], start_new_session=True)
with known(process):
    with known(ended):
        ended.wait()
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_what_was_started_ends_where_armload_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        started = psutil.Process(int(killed.stdout.readline()))
        wait_until(lambda: bool(started.children()))
        every = [started, *started.children()]
        killed.send_signal(signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, every)))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1024)
    assert read_bounded(path, 1024) == b"x" * 1024
    with pytest.raises(DataError, match="larger than 1023 bytes, the limit"):
        read_bounded(path, 1023)
    with pytest.raises(DataError, match="larger than 1 MiB"):
        read_bounded(Path("/dev/zero"), 1 << 20)
    with pytest.raises(DiskError):
        read_bounded(tmp_path / "none", 1)


def test_limits_are_written_in_binary_units() -> None:
    assert [size_words(1 << shift) for shift in (4, 16, 20, 32)] == [
        *("16 bytes", "64 KiB", "1 MiB", "4 GiB")
    ]


@pytest.mark.parametrize("read", [load_json, parse_json])
def test_json_of_very_many_values_is_refused_before_it_takes_memory(read: object) -> None:
    assert callable(read)
    assert read(b"[" + b"0," * 1000 + b"0]") == [0] * 1001
    for text in (b"[" + b"[]," * 5_000_000 + b"0]", "{" * 5_000_001):
        with pytest.raises(ValueError, match="more than 5,000,000 values"):
            read(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("garbage", "invalid at line 1, column 1"),
        ('{"a": 1,\n "b" 2}', "invalid at line 2, column 6"),
        ('{"a": 1,\n "b": "tw', "it breaks off in line 2"),
        ('{"a": [1,\n', "it breaks off in line 1"),
        (" \n", "it is empty"),
    ],
)
def test_where_a_document_is_no_json_is_told_without_python_s_words(text: str, said: str) -> None:
    for read in (load_json, parse_json):
        with pytest.raises(ValueError, match=rf"^{said}$"):
            read(text)


def test_a_stream_that_nobody_reads_any_more_is_not_read_to_its_end() -> None:
    chunks = output_chunks("kitchen", itertools.repeat(b"y\n"), (), lambda: 30.0, "late")
    assert next(chunks) == ("stdout", b"y\n")
    reading = [each for each in threading.enumerate() if "(_put)" in each.name]
    assert reading
    cast("Generator[OutputChunk]", chunks).close()
    wait_until(lambda: not any(each.is_alive() for each in reading), within_s=10)
