"""A further engine gets the lease, resumption and fetching from the pipeline."""

from __future__ import annotations

import inspect
import multiprocessing
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from armload.boards.board import Board, load_board
from armload.boards.host import Host
from armload.core.errors import BusyError, ConnectError, DataError
from armload.core.progress import Progress, ProgressStep, Silent
from armload.deploy.claims import claims
from armload.engines import registry
from armload.report.table import run_table
from armload.runs import store
from armload.runs.fetch import fetch, pull
from armload.runs.pipeline import execute, underway
from armload.runs.request import Request
from armload.runs.session import Connection, session
from tests import one_number as example
from tests.contract.leases import SOMEBODY, put_up
from tests.one_number import OneNumber, one_number
from tests.unit.test_report_layout import shown
from tests.waiting import wait_until

BOARD = "here"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a board, this machine, and an armload that lists one more engine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "ENGINES", (*registry.ENGINES, OneNumber))
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / f"{BOARD}.yaml").write_text(
        f"target: rk3568\nreach: {{kind: local}}\nworkdir: {tmp_path}/board\n"
    )
    return tmp_path


def measured(engine: OneNumber, *, new: bool = False) -> tuple[str, object, bool]:
    """Run an engine; return the run's id, what it measured, and whether it is valid."""
    with session(Request(board=BOARD, wait_s=0), (), Silent()) as where:
        run, kept = execute(where, engine, Silent(), new=new)
        assert claims(where.connection.host, where.connection.board.workdir) == ()
    assert store.load(kept) == run
    return run.id, run.result, run.verdict.valid


def test_what_it_measured_is_kept_with_the_run(folder: Path) -> None:
    name, result, valid = measured(OneNumber(one_number(folder, "echo 42"), Silent()))
    assert (result, valid) == ({"number": 42}, True)
    assert "number.sh" in name
    told = shown(run_table(store.load(store.find(name))), 100)
    assert "number 42" in told
    assert "number.sh (not built by armload" in told


def test_an_output_without_the_number_is_not_valid(folder: Path) -> None:
    _, result, valid = measured(OneNumber(one_number(folder, "echo none"), Silent()))
    assert (result, valid) == (None, False)


def test_a_program_that_is_stopped_when_its_work_is_done_has_not_failed(folder: Path) -> None:
    script = one_number(folder, "echo 7; sleep 600")
    _, result, valid = measured(OneNumber(script, Silent(), waits=True))
    assert (result, valid) == ({"number": 7}, True)


class _BesideOnce(Connection):
    """A connection of which the first further one to the board cannot be made."""

    def __init__(self, board: Board, progress: Progress) -> None:
        super().__init__(board, progress)
        self.tried = 0

    def beside(self) -> Host:
        self.tried += 1
        if self.tried == 1:
            raise ConnectError("the connection dropped")
        return super().beside()


def test_a_program_whose_work_is_done_is_stopped_after_a_dropped_connection_too(
    folder: Path,
) -> None:
    engine = OneNumber(one_number(folder, "echo 7; sleep 600"), Silent(), waits=True)
    with session(Request(board=BOARD, wait_s=0), (), Silent()) as where:
        with underway(where, engine, Silent(), new=False) as it:
            connection = _BesideOnce(where.connection.board, Silent())
            assert replace(it, connection=connection).follow(engine, Silent()) is None
        assert connection.tried == 2
        run, _ = fetch(connection.host, connection.board, it.folder, Silent())
    assert run.exit.kind == "done"
    assert run.verdict.valid


class _Nesting(Silent):
    """Keeps of each step which others it is part of."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.around: dict[str, list[str]] = {}

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        self.around[label] = [*self.open]
        self.open.append(label)
        try:
            with super().step(label, total=total, unit=unit) as step:
                yield step
        finally:
            self.open.remove(label)


def test_it_waits_for_the_lease_and_that_is_no_part_of_another_step(folder: Path) -> None:
    workdir = load_board(BOARD).workdir
    put_up(workdir, SOMEBODY)
    engine, told = OneNumber(one_number(folder, "echo 42"), Silent()), _Nesting()
    with (
        session(Request(board=BOARD, wait_s=0), (), Silent()) as where,
        pytest.raises(BusyError, match="ann"),
        underway(where, engine, told, new=False),
    ):
        pass
    assert told.around[f"Waiting for {where.connection.host.name}"] == []


def test_a_run_that_a_killed_command_left_is_resumed(folder: Path) -> None:
    gate = folder / "gate"
    script = one_number(folder, f"until [ -e '{gate}' ]; do sleep 0.1; done; echo 42")
    killed = multiprocessing.get_context("fork").Process(
        target=measured, args=(OneNumber(script, Silent()),)
    )
    killed.start()
    runs = Path(load_board(BOARD).workdir) / "runs"
    wait_until(lambda: bool([*runs.glob("*/pid")]))
    killed.kill()
    killed.join()
    (left,) = runs.iterdir()
    gate.touch()
    name, result, valid = measured(OneNumber(script, Silent()))
    assert (name, result, valid) == (left.name, {"number": 42}, True)
    another, _, _ = measured(OneNumber(script, Silent()), new=True)
    assert another != name


class _Shown(Silent):
    """Notes steps and what a program is heard to write, in their order."""

    def __init__(self) -> None:
        self.order: list[str] = []

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        with super().step(label, total=total, unit=unit) as step:
            yield step
        self.order.append(label)

    def heard(self, text: str, *, is_whole: bool) -> None:
        """Take what was written, if it is all."""
        if is_whole:
            self.order.append(text)


def test_all_that_a_program_writes_is_heard_before_its_step_ends(folder: Path) -> None:
    progress = _Shown()
    with session(Request(board=BOARD), (), Silent()) as where:
        engine = OneNumber(one_number(folder, "echo 42"), Silent())
        execute(where, engine, progress, new=True, heard=progress.heard)
    (at,) = [number for number, each in enumerate(progress.order) if each == "42\n"]
    assert progress.order[at + 1] == f"Running on {BOARD}"


def test_pull_computes_the_same_run(folder: Path) -> None:
    script = one_number(folder, "echo 42")
    with session(Request(board=BOARD), (), Silent()) as where:
        run, kept = execute(where, OneNumber(script, Silent()), Silent(), new=False)
    for file in kept.iterdir():
        file.unlink()
    kept.rmdir()
    (pulled,) = pull(load_board(BOARD), Silent()).runs
    assert pulled == run


def test_a_run_that_makes_no_sense_does_not_stop_the_others(folder: Path) -> None:
    script = one_number(folder, "echo 42")
    names = []
    with session(Request(board=BOARD), (), Silent()) as where:
        for _ in range(3):
            run, kept = execute(where, OneNumber(script, Silent()), Silent(), new=True)
            shutil.rmtree(kept)
            names.append(run.id)
    damaged, strange, good = (Path(load_board(BOARD).workdir, "runs", name) for name in names)
    with (damaged / "run.sh").open("a") as file:
        file.write(f"#job {'[' * 100_000}\n")
    (strange / "exit").write_text("0 1 x\n")
    (strange / "mark").write_text("a mark of many words\n")
    (strange / "memory").write_text(f"-5 {'9' * 4000} 1\n")
    (damaged.parent / "two\nlines").mkdir()
    (damaged.parent / "two\nlines" / "run.sh").touch()
    (damaged.parent / "two\nlines" / "exit").write_text("0\n")
    pulled = pull(load_board(BOARD), Silent())
    assert {run.id: run.exit.status for run in pulled.runs} == {strange.name: None, good.name: 0}
    assert {name: type(error) for name, error in pulled.lost.items()} == {damaged.name: DataError}


def test_the_guide_shows_the_engine_that_is_tested_here() -> None:
    shown, *_ = re.findall(r"```python\n(.+?)```", GUIDE.read_text(), re.DOTALL)
    assert shown in inspect.getsource(example)
