"""Fetching runs to a workstation whose disk is full: the board keeps them; others are fetched."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
import yaml

from armload.boards.board import Board
from armload.boards.local import LocalHost
from armload.core.errors import DiskError
from armload.core.progress import Silent
from armload.deploy.board_runs import list_runs
from armload.deploy.follow import follow
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.engines.job import Job
from armload.runs.fetch import fetch, pull
from tests.command_line import BIN
from tests.documents import document_of
from tests.faults import At, small_disk
from tests.unit.runs import quick_run

NAMES = ("20261121T110000Z-b-m-0001", "20261121T110001Z-b-m-0002", "20261121T110002Z-b-m-0003")
LARGE = NAMES[1]


@pytest.fixture
def workstation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in that holds 2 MB."""
    with small_disk(tmp_path / "workstation", 2) as folder:
        (folder / "boards").mkdir()
        monkeypatch.chdir(folder)
        yield folder


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """This machine, with three runs; that in the middle has written 3 MB."""
    made = Board.model_validate(
        {
            "name": "my-board",
            "target": "rk3568",
            "reach": {"kind": "local"},
            "workdir": str(tmp_path / "work"),
        }
    )
    host = LocalHost(made.name)
    values = quick_run().model_dump(include=set(Job.model_fields))
    for name in NAMES:
        size = 3_000_000 if name == LARGE else 10
        folder = Layout(workdir=made.workdir).run(name)
        launch(
            host,
            run_folder=folder,
            argv=["head", "-c", str(size), "/dev/zero"],
            trace=False,
            time_limit_s=60,
            job=Job.model_validate({**values, "id": name}).model_dump_json().encode(),
        )
        assert follow(host, folder, lambda now: None) == 0
    return made


def test_a_pull_names_the_run_that_does_not_fit_and_brings_home_the_others(
    workstation: Path, board: Board
) -> None:
    progress = At(0, lambda: None)
    pulled = pull(board, progress)
    assert [run.id for run in pulled.runs] == [NAMES[0], NAMES[2]]
    assert list(pulled.lost) == [LARGE]
    (said,) = [line for line in progress.said if "Cannot fetch" in line]
    assert said.count(LARGE) == 1
    assert "No space left on device" in said
    assert "armload pull" not in said, "what to do is said once, for all"
    assert "armload pull --board my-board" in pulled.lost[LARGE].remedy
    collected = {run.id for run in list_runs(LocalHost(board.name), board.workdir) if run.collected}
    assert LARGE not in collected, "the board may not be cleaned of it"
    subprocess.run(["mount", "-o", "remount,size=100m", str(workstation)], check=True)
    pulled = pull(board, Silent())
    assert ([run.id for run in pulled.runs], dict(pulled.lost)) == ([LARGE], {})


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_the_verb_ends_with_the_status_of_what_kept_a_run_away(
    workstation: Path, board: Board, words: tuple[str, ...]
) -> None:
    content = board.model_dump(mode="json", include={"target", "reach", "workdir"})
    (workstation / "boards" / "my-board.yaml").write_text(yaml.safe_dump(content))

    def pulls() -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "armload"), "pull", "--board", "my-board", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = pulls()
    assert done.returncode == DiskError.exit_status, done.stderr
    assert f"1 of 3 runs on my-board could not be fetched: {LARGE}." in done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("armload pull --board my-board") == 1
    assert "Nothing on" not in done.stdout
    if words:
        pulled = document_of("pull", done.stdout, status=done.returncode)
        assert pulled["runs"] == [NAMES[0], NAMES[2]]
        (failed,) = pulled["failed"]
        assert (failed["run"], failed["error"]["kind"]) == (LARGE, "disk")
    subprocess.run(["mount", "-o", "remount,size=100m", str(workstation)], check=True)
    assert pulls().returncode == 0
    assert pulls().returncode == 0, "there is nothing left to fetch"


def test_a_run_that_has_just_ended_is_told_in_the_same_way(workstation: Path, board: Board) -> None:
    on_board: PurePosixPath = Layout(workdir=board.workdir).run(LARGE)
    with pytest.raises(DiskError, match="No space left on device") as caught:
        fetch(LocalHost(board.name), board, on_board, Silent())
    assert "armload pull --board my-board" in caught.value.remedy
    assert workstation.is_dir()


@pytest.mark.parametrize(
    "words",
    [
        ("build", "--programs", "llama-simple"),
        ("board.up", "--board", "virtual"),
        ("pull", "--board", "my-board"),
        ("model.synth", "--like", "llama-3.2-1b", "--output", "model.gguf"),
    ],
)
def test_every_verb_ends_with_the_same_status_where_this_machine_cannot_be_written(
    workstation: Path, board: Board, words: tuple[str, ...]
) -> None:
    content = board.model_dump(mode="json", include={"target", "reach", "workdir"})
    (workstation / "boards" / "my-board.yaml").write_text(yaml.safe_dump(content))
    subprocess.run(["mount", "-o", "remount,ro", str(workstation)], check=True)
    done = subprocess.run(
        [str(BIN / "armload"), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ARMLOAD_CACHE": str(workstation / "cache")},
    )
    assert done.returncode == DiskError.exit_status, done.stderr
    assert re.search("Read-only file system|2.1 MB free", done.stderr)
