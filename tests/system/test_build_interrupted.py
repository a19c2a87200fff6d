"""A build that is interrupted, resumed, and asked for twice at once."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from armload.build.builder import build
from armload.build.source import pinned_source
from armload.build.target import load_target
from armload.core.errors import DataError, DiskError
from armload.core.files import sha256_of
from armload.core.locks import locked
from armload.core.places import cache_folder
from armload.core.progress import Silent
from tests.command_line import BIN, ROOT, beside
from tests.faults import small_disk
from tests.waiting import wait_until

pytestmark = pytest.mark.build

BUILD = """
from armload.build.builder import build
from armload.build.target import load_target
from armload.build.local_backend import LocalBackend
from armload.core.progress import Silent

class Told(Silent):
    def say(self, text):
        print(text, flush=True)

build(load_target("rk3568"), programs=PROGRAMS, backend=LocalBackend(jobs=1), progress=Told())
"""
QUICK = ["ggml-rpc-server"]
"""The program that takes the least to compile."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder without builds that shares the sources and zig's libraries."""
    pinned_source().provide(Silent())
    for part in ("zig", "compilers", "ccache"):
        (cache_folder() / part).mkdir(exist_ok=True)
    for part in ("sources", "zig", "compilers", "ccache"):
        (tmp_path / part).symlink_to(cache_folder() / part)
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    return tmp_path


def _building(programs: Sequence[str] = ()) -> AbstractContextManager[subprocess.Popen[str]]:
    return beside(BUILD.replace("PROGRAMS", repr(programs)))


def _statuses(cache: Path) -> list[tuple[int, int]]:
    """Return done and total of each status line so far, of all attempts."""
    text = "".join(log.read_text() for log in (cache / "builds").glob("*/build.log"))
    return [
        (int(done), int(total))
        for done, total in re.findall(r"^\[(\d+)/(\d+)\]", text, re.MULTILINE)
    ]


def _wait_for_statuses(process: subprocess.Popen[str], cache: Path, count: int) -> None:
    while len(_statuses(cache)) < count:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)


def _interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert "KeyboardInterrupt" in errors


def _working_in(folder: Path) -> list[str]:
    lines = [
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    ]
    return [line for line in lines if str(folder) in line]


@pytest.mark.exhaustive(covers=["armload/build"])
def test_an_interrupted_build_leaves_no_process_and_goes_on_where_it_was(cache: Path) -> None:
    with _building() as first:
        _wait_for_statuses(first, cache, 4)
        _interrupt(first)
    assert _working_in(cache) == []
    assert list((cache / "builds").glob("*/build.json")) == []
    before = _statuses(cache)

    with _building() as second:
        _wait_for_statuses(second, cache, len(before) + 1)
        _interrupt(second)
    _, total_before = before[0]
    _, total_after = _statuses(cache)[len(before)]
    assert total_after <= total_before - 3


@pytest.mark.exhaustive(covers=["armload/build", "armload/core/locks.py"])
def test_a_second_command_waits_for_the_first(cache: Path) -> None:
    with _building() as first:
        _wait_for_statuses(first, cache, 1)
        with _building() as second:
            assert second.stdout is not None
            assert "Waiting" in second.stdout.readline()
            second.send_signal(signal.SIGINT)
            second.wait()
        assert first.poll() is None
        _interrupt(first)


def test_after_a_killed_build_the_same_command_completes_it(cache: Path) -> None:
    with _building(QUICK) as first:
        _wait_for_statuses(first, cache, 4)
        first.kill()
        first.wait()
    assert list((cache / "builds").glob("*/build.json")) == []

    with _building(QUICK) as second:
        _, errors = second.communicate()
    assert second.returncode == 0, errors
    (record,) = (cache / "builds").glob("*/build.json")
    (program,) = build(load_target("rk3568"), programs=QUICK)
    assert program.path == record.parent / QUICK[0]
    assert program.sha256 == sha256_of(program.path)


@pytest.mark.exhaustive(covers=["armload/build", "armload/core/locks.py"])
def test_a_full_disk_is_told_and_with_room_the_build_goes_on(cache: Path) -> None:
    with small_disk(cache / "builds", 3) as builds:
        with pytest.raises(DiskError, match=r"full|No space left") as caught:
            build(load_target("rk3568"), programs=QUICK)
        assert "ARMLOAD_CACHE" in caught.value.remedy
        assert list(builds.glob("*/build.json")) == []
        subprocess.run(["mount", "-o", "remount,size=1g", str(builds)], check=True)
        (program,) = build(load_target("rk3568"), programs=QUICK)
        assert program.sha256 == sha256_of(program.path)


@pytest.mark.exhaustive(covers=["armload/boards/virtual", "armload/build", "armload/runs"])
def test_a_board_that_cannot_boot_ends_the_build_that_was_begun_meanwhile(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_IMAGES", str(cache / "no images"))
    with (
        locked(cache / "packages" / "lock", Silent(), waiting=""),
        subprocess.Popen(
            [BIN / "armload", "bench", "--board", "virtual", "--model", "random"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            text=True,
        ) as command,
    ):
        # The board waits for its packages.
        wait_until(lambda: any("/cmake" in line for line in _working_in(cache)), command)
        (cache / "packages" / "lock").unlink()
        _, said = command.communicate(timeout=60)
    assert command.returncode == DataError.exit_status
    assert "is not an image folder" in said
    assert "cmake failed" not in said
    assert _working_in(cache) == []
