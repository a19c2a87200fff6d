"""One process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.core.locks import is_locked, locked, locked_now
from armload.core.progress import ProgressStep, Silent
from tests.containers import contained, told_by
from tests.unit.builds import held_elsewhere


class Ended(Silent):
    """Ends the process that holds the lock when someone begins to wait for it."""

    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self.said: list[str] = []
        self.steps: list[str] = []
        self._holder = holder

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        self.steps.append(label)
        self._holder.kill()
        with super().step(label, total=total, unit=unit) as step:
            yield step


def test_a_lock_is_waited_for_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with held_elsewhere(path) as holder:
        progress = Ended(holder)
        with locked(path, progress, waiting="Waiting for the other one."):
            assert holder.wait() != 0
        (said,) = progress.said
        assert (
            said
            == f"Waiting for the other one. It is process {holder.pid}. Press Ctrl-C to cancel."
        )
        assert progress.steps == ["Waiting for the other process"]
    with locked(path, progress, waiting="Waiting again."):
        pass
    assert progress.said == [said]


def test_who_holds_a_lock_may_be_a_child_of_a_process_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path) as holder:
        with subprocess.Popen(["true"]) as gone:
            pass
        path.write_text(f"{gone.pid}\n")
        progress = Ended(holder)
        with locked(path, progress, waiting="Another one builds."):
            assert "It was killed, but its child processes still run." in progress.said[0]


_HOLDING = """
import sys
from pathlib import Path
from armload.core.locks import locked
from armload.core.progress import Silent

with locked(Path(sys.argv[1]), Silent(), waiting=""):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_who_holds_a_lock_in_a_container_is_not_said_to_be_dead(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with contained(_HOLDING, str(path)) as holder:
        assert told_by(holder) == "held"
        progress = Ended(holder)
        with locked(path, progress, waiting="Another one builds."):
            (said,) = progress.said
    assert "It is process 1 in another container." in said


def test_a_lock_on_a_full_disk_is_held_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"

    def fails(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", fails)
    with locked(path, Silent(), waiting=""):
        assert is_locked(path)
    assert not is_locked(path)


def test_a_lock_is_taken_at_once_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with locked_now(path) as first, locked_now(path) as second:
        assert (first, second) == (True, False)
        assert is_locked(path)
    assert not is_locked(path)
    with locked_now(tmp_path / "gone" / "lock") as alone:
        assert alone


def test_asking_makes_no_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_deleted_in_between_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    take = fcntl.flock
    taken: list[int] = []

    def deletes_first(descriptor: int, operation: int) -> None:
        if not taken:
            path.unlink()
        taken.append(descriptor)
        take(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", deletes_first)
    with locked(path, Silent(), waiting=""):
        assert len(taken) == 2
        assert is_locked(path)
