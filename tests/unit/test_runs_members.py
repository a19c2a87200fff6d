"""What the other members of a group left of a run, and which of them was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.deploy.exit_reason import Exit
from armload.engines.job import JOB_FILE, Job
from armload.engines.spread import Share, Spread
from armload.runs.members import LINK_FILE, Link, member_folder, read_members, with_lost_member
from tests.unit.runs import quick_run

ABORTED = Exit(kind="abort", status=134, meaning="the program aborted (SIGABRT)")


@pytest.fixture
def job() -> Job:
    run = quick_run()
    shares = [
        Share(board=name, layers=4, weights_bytes=1, memory_bytes=2) for name in ("a", "b", "c")
    ]
    spread = Spread(split="layer", shares=tuple(shares))
    known = {name: getattr(run, name) for name in Job.model_fields}
    return Job.model_validate({**known, "spread": spread})


def leave(job: Job, folder: Path, board: str, **files: str) -> None:
    """Let a member have left these files."""
    own = member_folder(folder, board)
    own.mkdir(parents=True)
    theirs = job.model_copy(update={"board": job.board.model_copy(update={"name": board})})
    (own / JOB_FILE).write_text(theirs.model_dump_json())
    (own / LINK_FILE).write_text(Link(sent_bytes=20, received_bytes=10).model_dump_json())
    for name, content in files.items():
        (own / name).write_text(content)


def test_members_are_read_in_their_order_with_memory_and_traffic(job: Job, tmp_path: Path) -> None:
    leave(job, tmp_path, "c", exit="143\n", finished="", memory="9000 4000 100\n")
    leave(job, tmp_path, "b", exit="143\n", finished="")
    b, c = read_members(job, tmp_path)
    assert (b.board.name, b.memory, b.exit.kind) == ("b", None, "done")
    assert c.memory is not None
    assert c.memory.max_rss_bytes == 4000 * 1024
    assert (c.sent_bytes, c.received_bytes) == (20, 10)
    assert with_lost_member(ABORTED, (b, c), tmp_path) == ABORTED


def test_a_board_by_itself_and_a_run_that_was_pulled_have_no_members(
    job: Job, tmp_path: Path
) -> None:
    assert read_members(job, tmp_path) == ()
    assert read_members(job.model_copy(update={"spread": None}), tmp_path) == ()
    assert with_lost_member(ABORTED, (), tmp_path) == ABORTED


@pytest.mark.parametrize(
    ("files", "meaning"),
    [
        ({"exit": "137\n", "oom": ""}, "killed by the kernel: the board ran out of memory"),
        ({"cut": "restart"}, "interrupted: the board restarted during the run"),
        ({}, "the board stopped responding"),
    ],
)
def test_a_lost_member_is_named_with_what_its_board_tells(
    job: Job, tmp_path: Path, files: dict[str, str], meaning: str
) -> None:
    leave(job, tmp_path, "b", exit="143\n", finished="")
    leave(job, tmp_path, "c", **files)
    found = with_lost_member(ABORTED, read_members(job, tmp_path), tmp_path)
    assert found.kind == "member lost"
    assert found.status == 134
    assert found.meaning.startswith(f"member c was lost: {meaning}")
    assert found.remedy


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (134, "ggml-rpc.cpp:566: Remote RPC server crashed or returned malformed response"),
        (141, ""),
    ],
)
def test_servers_that_were_all_there_mean_that_a_connection_dropped(
    job: Job, tmp_path: Path, status: int, said: str
) -> None:
    for name in ("b", "c"):
        leave(job, tmp_path, name, exit="143\n", finished="")
    (tmp_path / "exit").write_text(f"{status}\n")
    (tmp_path / "stderr").write_text(f"{said}\n")
    ended = ABORTED.model_copy(update={"status": status})
    found = with_lost_member(ended, read_members(job, tmp_path), tmp_path)
    assert found.meaning == "the connection between the members dropped"
    assert "'listen'" in found.remedy


def test_a_run_that_ended_well_lost_nobody(job: Job, tmp_path: Path) -> None:
    leave(job, tmp_path, "b", exit="137\n")
    done = Exit(kind="done", status=0, meaning="done")
    assert with_lost_member(done, read_members(job, tmp_path), tmp_path) == done
