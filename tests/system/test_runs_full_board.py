"""Runs during which the board's storage fills: what was measured is kept, and the rest is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from armload.analysis.run import Run
from armload.boards.board import Board
from armload.boards.local import LocalHost
from armload.core.progress import Silent
from armload.core.workspace import runs_folder
from armload.deploy.board_runs import list_runs
from armload.deploy.collect import collect
from armload.deploy.follow import follow
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.engines.job import Job
from armload.runs.fetch import pull
from armload.runs.session import Connection
from tests.faults import At, small_disk
from tests.programs import traced
from tests.resuming import resumed
from tests.unit.runs import planned, quick_run
from tests.waiting import wait_until

STEPS, FULL_AT, LOST = 120, 40, 50
NAME = "20261121T110000Z-my-board-m-0001"
PROGRAM = f"""
#include "armload_step.h"
#include <stdio.h>
#include <unistd.h>

/* Says that it has come so far, and waits until it may go on. */
static void hold(const char *here, const char *gate)
{{
    fclose(fopen(here, "w"));
    while (access(gate, F_OK) != 0)
        usleep(1000);
}}

int main(int argc, char **argv)
{{
    armload_trace_begin(1);
    for (int number = 0; argc == 5 && number < {STEPS}; number++) {{
        if (number == {FULL_AT})
            hold(argv[1], argv[2]);
        if (number == {FULL_AT + LOST})
            hold(argv[3], argv[4]);
        struct armload_step step = {{.sequences = 1,
                                    .tokens = number ? 1 : 8,
                                    .prompt_tokens = number ? 0 : 8,
                                    .generated_tokens = number ? 1 : 0,
                                    .start = armload_count_at_start()}};
        usleep(200);
        step.end = armload_count_at_end();
        armload_trace_write(&step);
        printf("word%d ", number);
        fflush(stdout);
    }}
    return 0;
}}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of this machine's that writes a trace by armload's own library."""
    folder = tmp_path_factory.mktemp("program")
    return traced(folder, PROGRAM, "program")


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    """This machine, with a work folder of 1 MB; what comes home lies elsewhere."""
    (tmp_path / "home" / "boards").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home")
    with small_disk(tmp_path / "board", 1) as workdir:
        values = {"name": "my-board", "target": "rk3568", "reach": {"kind": "local"}}
        yield Board.model_validate({**values, "workdir": str(workdir)})


class Filled:
    """A run in the middle of which the board's storage is full for a while.

    Args:
        board: that lies on a small disk.
        program: writes a trace, and waits twice.
        gates: a folder elsewhere.
    """

    def __init__(self, board: Board, program: Path, gates: Path) -> None:
        self.folder = Layout(workdir=board.workdir).run(NAME)
        self._gates = [gates / name for name in ("before", "fill", "after", "free")]
        self._filling = Path(board.workdir) / "somebody's"
        job = planned(quick_run(), n_predict=STEPS).model_dump(include=set(Job.model_fields))
        launch(
            LocalHost(board.name),
            run_folder=self.folder,
            argv=[str(program), *map(str, self._gates)],
            trace=True,
            time_limit_s=60,
            job=Job.model_validate({**job, "id": NAME}).model_dump_json().encode(),
        )

    def fill(self) -> None:
        """Let the program write on storage that is full, up to where it waits again."""
        before, fill, after, _ = self._gates
        wait_until(before.exists)
        with suppress(OSError), self._filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        fill.touch()
        wait_until(after.exists)

    def go_through(self) -> None:
        """Let the program go on to its end, with room for all of it."""
        for gate in self._gates:
            gate.touch()
        assert follow(LocalHost("my-board"), self.folder, lambda now: None) == 0

    def free(self) -> None:
        """Make room, and let the program go on to its end."""
        self._filling.unlink()
        self._gates[-1].touch()


@pytest.mark.parametrize("by", ["pull", "the same command"])
def test_a_run_whose_trace_ends_in_the_middle_of_a_line_comes_home(
    board: Board, program: Path, tmp_path: Path, by: str
) -> None:
    filled = Filled(board, program, tmp_path)
    filled.go_through()
    on_board, here = Path(filled.folder), runs_folder() / NAME
    lines = (on_board / "trace.jsonl").read_bytes().splitlines(keepends=True)
    cut = b"".join(lines[: FULL_AT + 1]) + lines[FULL_AT + 1][:-20]
    (on_board / "trace.jsonl").write_bytes(cut)
    collect(LocalHost(board.name), filled.folder, here)
    (here / "seen.jsonl").write_bytes(cut)
    with closing(Connection(board, Silent())) as connection:
        (left,) = list_runs(connection.host, board.workdir)
        if by == "pull":
            ((run,), lost) = (pulled := pull(board, Silent())).runs, pulled.lost
            assert not lost
        else:
            run, _ = resumed(connection, left, tmp_path, Silent())
        (left,) = list_runs(connection.host, board.workdir)
    assert left.collected
    assert [step.step for step in run.steps] == [*range(FULL_AT)]
    assert any("storage was full" in reason for reason in run.verdict.reasons)
    assert (here / "trace.jsonl").read_bytes() == cut
    assert [path.name for path in here.glob("seen*")] == []


def test_a_run_on_storage_that_was_full_for_a_while_comes_home_and_says_so(
    board: Board, program: Path, tmp_path: Path
) -> None:
    filled = Filled(board, program, tmp_path)
    filled.fill()
    # The program waits on full storage: a follower sees all that could be written, and no more.
    progress = At(FULL_AT, filled.free)
    with closing(Connection(board, Silent())) as connection:
        (left,) = list_runs(connection.host, board.workdir)
        run, folder = resumed(connection, left, tmp_path, progress)
    assert run.exit.status == 0
    numbers = [step.step for step in run.steps]
    assert numbers[:FULL_AT] == [*range(FULL_AT)], "what was measured before is kept"
    assert numbers[-1] == STEPS - 1, "there was room again"
    assert len(numbers) == len({*numbers}) < STEPS
    assert (folder / "trace.jsonl").read_bytes().endswith(b"}\n")
    assert told_of_full_storage(run)
    assert [path.name for path in folder.glob("seen*")] == []


def told_of_full_storage(run: Run) -> bool:
    lost = STEPS - len(run.steps)
    (reason,) = [each for each in run.verdict.reasons if "storage was full" in each]
    assert f"{lost} of {STEPS} " in reason
    assert "armload board.clean --board" in reason
    return not run.verdict.valid
