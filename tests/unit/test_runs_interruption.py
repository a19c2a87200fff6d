"""Which run on a board answers a command that is typed again."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.virtual.process import Started
from armload.deploy.board_runs import StoredRun
from armload.deploy.holder import RunMark, this_process
from armload.runs import interruption as takeover
from armload.runs.interruption import cut_runs, left_run

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GONE = Started(pid=os.getpid(), start_mark="0")
ELSEWHERE = GONE.model_copy(update={"pid_namespace": "1"})  # a container's, which may be alive
ME = this_process()
MINE = RunMark(fingerprint="ab", holder=ME.model_copy(update={"process": GONE}))


def started_by(**changes: object) -> RunMark:
    return RunMark(fingerprint="ab", holder=MINE.holder.model_copy(update=changes))


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(**changes: object) -> StoredRun:
    values = {
        "id": "20261121T110000Z-b-m-1f2e",
        "folder": PurePosixPath("/data/runs/x"),
        "state": "running",
        "mark": MINE,
    }
    return StoredRun.model_validate(values | changes)


def test_a_run_that_goes_on_or_has_ended_is_taken_over() -> None:
    assert left_run([run()], "ab", NOW) == run()
    ended = run(state="ended", status=9)
    assert left_run([ended], "ab", NOW) == ended


def test_a_run_that_was_started_before_a_restart_of_this_machine_is_taken_over() -> None:
    former = ME.process.model_copy(update={"boot_id": "former", "pid_namespace": "1"})
    left = run(mark=started_by(process=former))
    assert left_run([left], "ab", NOW) == left


def test_the_newest_of_several_is_taken() -> None:
    newer = run(id="20261121T113000Z-b-m-3c4d")
    assert left_run([newer, run()], "ab", NOW) == newer


@pytest.mark.parametrize(
    "changes",
    [
        {"mark": None},
        {"mark": MINE.model_copy(update={"fingerprint": "cd"})},
        {"mark": started_by(workstation="another-0a1b")},
        {"mark": started_by(process=ME.process)},
        {"mark": started_by(process=ELSEWHERE)},
        {"state": "ended", "status": 143, "stopped": True},
        {"state": "ended", "status": 0, "collected": True},
        {"state": "interrupted", "cut": "restart"},
        {"id": "20261119T110000Z-b-m-1f2e"},
        {"id": "rubbish"},
    ],
)
def test_any_other_run_is_left_alone(changes: dict[str, object]) -> None:
    assert left_run([run(**changes)], "ab", NOW) is None


def test_a_run_that_is_here_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "is_here", lambda run_id: run_id == run().id)
    assert left_run([run()], "ab", NOW) is None


def test_only_recent_runs_answer() -> None:
    assert left_run([run()], "ab", NOW + takeover.OLDEST) is None
    assert left_run([run()], "ab", NOW + takeover.OLDEST - timedelta(hours=2)) is not None


def test_what_was_cut_short_is_found_to_be_recorded() -> None:
    cut = run(state="interrupted", cut="restart")
    assert cut_runs([run(), cut], "ab") == [cut]
    assert cut_runs([cut], "cd") == []


def test_a_mark_is_read_back() -> None:
    assert RunMark.read(MINE.word) == MINE
    assert " " not in MINE.word
    assert RunMark.read("rubbish") is RunMark.read("-") is RunMark.read("{}") is None


def test_a_service_is_found_however_old_it_is_as_long_as_it_runs() -> None:
    later = NOW + 10 * takeover.OLDEST
    assert left_run([run()], "ab", later, is_service=True) == run()
    ended = run(state="ended", status=0)
    assert left_run([ended], "ab", NOW) == ended
    assert left_run([ended], "ab", NOW, is_service=True) is None
