"""Work in a thread beside the caller's: it ends with it, whoever fails or is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from armload.core.children import known, meanwhile, run_watched
from armload.core.errors import BuildError, ConnectError
from armload.core.progress import Progress, Silent


def test_the_result_is_there_when_it_is_asked_for() -> None:
    begun = threading.Event()

    def work(_progress: Progress) -> int:
        assert begun.wait(10)
        return 7

    with meanwhile(work, Silent()) as other:
        begun.set()
        assert other.result() == 7


def test_what_the_work_fails_with_stops_the_caller_at_its_next_step() -> None:
    def fails(_progress: Progress) -> None:
        raise BuildError("does not compile")

    with pytest.raises(BuildError), meanwhile(fails, Silent()) as other:
        wait_for_ever(other.progress)
    with pytest.raises(BuildError), meanwhile(fails, Silent()) as other:
        other.result()


def test_a_caller_that_fails_ends_the_program_of_the_work_and_no_other(tmp_path: Path) -> None:
    started = threading.Event()
    ends: list[int] = []

    def compiles(_progress: Progress) -> None:
        ends.append(run_sleeping(started, tmp_path))

    with (
        subprocess.Popen(["sleep", "600"], start_new_session=True) as unrelated,
        known(unrelated),
    ):
        with pytest.raises(ConnectError), meanwhile(compiles, Silent()):
            fail_after(started)
        assert ends == [-signal.SIGTERM]
        assert unrelated.poll() is None
        unrelated.kill()


def wait_for_ever(progress: Progress) -> None:
    with progress.step("Booting") as step:
        while True:
            step.update(0)


def fail_after(started: threading.Event) -> None:
    assert started.wait(10)
    raise ConnectError("did not boot")


def run_sleeping(started: threading.Event, folder: Path) -> int:
    with (folder / "lock").open("w") as lock:
        return run_watched(
            ["sh", "-c", "echo begun; exec sleep 600"],
            environment=os.environ,
            watch=lambda _line: started.set(),
            keep_open=lock.fileno(),
        )


def test_a_caller_that_fails_stops_work_that_only_reports_its_progress() -> None:
    started = threading.Event()

    def unpacks(progress: Progress) -> None:
        started.set()
        wait_for_ever(progress)

    with pytest.raises(ConnectError), meanwhile(unpacks, Silent()):
        fail_after(started)


INTERRUPTED = """
import os, sys, time
from armload.core.children import run_watched
from armload.core.children import meanwhile
from armload.core.progress import Silent

def work(progress):
    with open(os.devnull, "w") as lock:
        run_watched(["sh", "-c", "echo $$; exec sleep 600"], environment=os.environ,
                    watch=lambda line: print(line, end="", flush=True), keep_open=lock.fileno())

with meanwhile(work, Silent()) as other:
    other.result()
"""


def test_an_interruption_ends_the_program_of_the_work() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) != 0
        _, alive = psutil.wait_procs([child], timeout=10)
        # What nobody has waited for yet is still listed.
        assert all(each.status() == psutil.STATUS_ZOMBIE for each in alive)
