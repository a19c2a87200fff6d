"""One process at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from armload.core import locks
from armload.core.locks import is_locked, locked, locked_now
from armload.core.progress import Silent
from tests.unit.builds import held_elsewhere


class Ended(Silent):
    """Ends the process that holds the lock when it is told that someone waits for it."""

    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self.said: list[str] = []
        self._holder = holder

    def say(self, text: str) -> None:
        self.said.append(text)
        self._holder.kill()


def test_a_lock_is_waited_for_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with held_elsewhere(path) as holder:
        progress = Ended(holder)
        with locked(path, progress, waiting="Waiting for the other one."):
            assert holder.wait() != 0
        assert progress.said == ["Waiting for the other one."]
    with locked(path, progress, waiting="Waiting again."):
        pass
    assert progress.said == ["Waiting for the other one."]


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
    take = locks._taken
    taken: list[int] = []

    def deletes_first(descriptor: int) -> bool:
        if not taken:
            path.unlink()
        taken.append(descriptor)
        return take(descriptor)

    monkeypatch.setattr(locks, "_taken", deletes_first)
    with locked(path, Silent(), waiting=""):
        assert len(taken) == 2
        assert is_locked(path)
