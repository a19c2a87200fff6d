"""Several commands of this machine fetch the same run from a board."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from armload.analysis.run import Run
from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.local import LocalHost
from armload.core.errors import DiskError
from armload.core.progress import Progress, Silent
from armload.deploy.collect import collect
from armload.deploy.follow import follow
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.engines.job import Job
from armload.runs import fetch as module
from armload.runs.fetch import fetch, pull
from tests.faults import At
from tests.unit.runs import quick_run

RUN_ID = "20261121T110000Z-b-m-0001"
_OVERLAP_S = 1.0
"""Far longer than a fetch takes that nothing holds up."""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    """This machine, with a run that has just ended."""
    (tmp_path / "boards").mkdir()
    monkeypatch.chdir(tmp_path)
    made = Board.model_validate(
        {
            "name": "my-board",
            "target": "rk3568",
            "reach": {"kind": "local"},
            "workdir": str(tmp_path / "work"),
        }
    )
    values = quick_run().model_dump(include=set(Job.model_fields))
    host, folder = LocalHost(made.name), Layout(workdir=made.workdir).run(RUN_ID)
    launch(
        host,
        run_folder=folder,
        argv=["echo", "hello"],
        trace=False,
        time_limit_s=60,
        job=Job.model_validate({**values, "id": RUN_ID}).model_dump_json().encode(),
    )
    assert follow(host, folder, lambda now: None) == 0
    return made


def fetched(board: Board, progress: Progress) -> Run:
    """Fetch the run as the command does that started it."""
    folder = Layout(workdir=board.workdir).run(RUN_ID)
    return fetch(LocalHost(board.name), board, folder, progress)[0]


def pulled(board: Board, progress: Progress) -> Run:
    done = pull(board, progress)
    assert not done.lost
    return done.runs[0]


@pytest.mark.parametrize(
    ("first", "second", "collections"),
    # The owner compares the run with others, so it reads the files again.
    [(pulled, fetched, 2), (fetched, pulled, 1)],
)
def test_a_pull_and_the_owner_of_a_run_may_fetch_it_at_the_same_time(
    board: Board,
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[Board, Progress], Run],
    second: Callable[[Board, Progress], Run],
    collections: int,
) -> None:
    collected: list[Path] = []

    def collecting(
        host: Host, on_board: PurePosixPath, local: Path, *more: Any, **ways: Any
    ) -> None:
        collected.append(local)
        collect(host, on_board, local, *more, **ways)

    monkeypatch.setattr(module, "collect", collecting)
    waiting = At(sys.maxsize, lambda: None)
    with ThreadPoolExecutor() as pool:
        others: list[Future[Run]] = []

        def overlap() -> None:
            others.append(pool.submit(second, board, waiting))
            wait(others, _OVERLAP_S)

        run = first(board, At(0, overlap))
        assert others[0].result() == run
    assert (run.id, run.text) == (RUN_ID, "hello\n")
    assert len(collected) == collections
    assert f"{RUN_ID} is being fetched." in waiting.said[0]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (
            errno.ENOSPC,
            r"Free space on the disk that holds \S+, .*then: armload pull --board .+",
        ),
        (errno.EACCES, r"Correct the permissions of \S+, .*then: armload pull --board .+"),
        (errno.ENOENT, "Fetch it again: armload pull --board my-board"),
    ],
)
def test_disk_space_is_asked_for_only_where_the_disk_refuses(
    board: Board, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "stdout")

    monkeypatch.setattr(module, "collect", failing)
    with pytest.raises(DiskError, match=os.strerror(number)) as caught:
        fetched(board, Silent())
    assert re.fullmatch(f"The run is still on the board. {remedy}", caught.value.remedy)
