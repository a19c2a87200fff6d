"""What the emulator of a virtual board had of the CPU is noted while a run lasts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.analysis.conditions_log import RunConditions
from armload.analysis.emulation import FILE_NAME, Emulation, EmulatorDelayed, read_emulation
from armload.analysis.verdict import Verdict, judge
from armload.boards.board import Board, load_board
from armload.boards.virtual.process import Started
from armload.boards.virtual.state import MachineState, keep, machine_folder
from armload.engines.output import Output
from armload.report import run_words
from armload.runs import operations
from armload.runs.emulator import emulator_recorded
from tests.unit.runs import TEXT, quick_run

_EMULATES = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); "
    "print(s.getsockname()[1], flush=True)\nwhile True: pass"
)


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    return load_board("virtual-dayu200")


@contextmanager
def busy(*words: str, core: int) -> Iterator[subprocess.Popen[str]]:
    """Run a program that never sleeps, on one core."""
    with subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE, text=True) as it:
        os.sched_setaffinity(it.pid, {core})
        try:
            yield it
        finally:
            it.kill()


@contextmanager
def starved(board: Board) -> Iterator[None]:
    """Run what stands for a board's emulator, beside two others on the same core."""
    core = min(os.sched_getaffinity(0))
    others = "while True: pass"
    with busy(_EMULATES, core=core) as emulator, busy(others, core=core), busy(others, core=core):
        process = Started.of(emulator.pid)
        assert process is not None
        assert emulator.stdout is not None
        port = int(emulator.stdout.readline())
        keep(machine_folder(board), MachineState(process=process, port=port, answered=True))
        yield


def test_an_emulator_that_shares_its_core_is_seen_to_wait(board: Board, tmp_path: Path) -> None:
    path = tmp_path / "run" / FILE_NAME
    with starved(board), emulator_recorded(board, path):
        time.sleep(1.2)
    found = read_emulation(path.parent)
    assert found is not None
    assert found.watched_s > 1.1
    assert found.ran_s > 0
    assert found.cpu_share < 0.6
    assert found.is_starved


def test_operations_that_an_emulator_was_starved_at_are_not_settled(board: Board) -> None:
    def answer(asked: str) -> str:
        time.sleep(0.7)
        return f'ARMLOAD_TIMED {{"number":{asked},"time_s":0.5,"is_settled":true}}\n'

    with starved(board):
        (found,) = operations._timed(board, answer, "3")
    assert (found.number, found.time_s, found.is_settled) == (3, 0.5, False)
    (found,) = operations._timed(board, answer, "3")
    assert found.is_settled, "nobody knows better"


def test_of_a_board_that_is_off_nothing_is_noted(board: Board, tmp_path: Path) -> None:
    with emulator_recorded(board, tmp_path / FILE_NAME):
        pass
    assert read_emulation(tmp_path) is None


def emulation(*, ran_s: float, waited_s: float) -> Emulation:
    return Emulation(watched_s=10, ran_s=ran_s, waited_s=waited_s, cores=2, load=40.1)


def test_an_even_run_on_a_starved_emulator_is_contended_and_advises_nothing() -> None:
    run = quick_run()
    assert run.verdict.valid
    output = Output(header=run.trace, steps=run.steps, text=TEXT)
    around = RunConditions(after=run.after, emulation=emulation(ran_s=1, waited_s=19))
    (found,) = judge(run, output, run.exit, around)
    assert found == EmulatorDelayed(cpu_share=0.05, cores=2, load=40.1, board_cores=run.board.cores)
    limit = run.limit.model_copy(update={"advice": "Try more threads."})
    judged = run.model_copy(update={"limit": limit, "verdict": Verdict.of([found])})
    assert judged.verdict.findings[0].name == "contended"
    assert "workstation" in judged.verdict.reasons[0]
    assert run_words.advice(judged) == ""


def test_short_waits_are_no_reason_to_doubt_a_run() -> None:
    assert not emulation(ran_s=19, waited_s=1.5).is_starved
    # It mostly slept, as for a model that is read from the disk.
    assert not emulation(ran_s=0.5, waited_s=0.5).is_starved


def test_the_seconds_of_a_run_are_added_up(tmp_path: Path) -> None:
    noted = emulation(ran_s=1, waited_s=19).model_dump_json()
    (tmp_path / FILE_NAME).write_text(f"{noted}\n{noted}\n{noted[:20]}")
    found = read_emulation(tmp_path)
    assert found is not None
    assert (found.watched_s, found.ran_s, found.waited_s) == (20, 2, 38)
