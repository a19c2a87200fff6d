"""What the other members of a group left of a run, and which of them was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.members import ClockDifference, MemberSample
from armload.boards.sensors import Sensor
from armload.deploy.exit_reason import Exit
from armload.deploy.layout import JOB_FILE
from armload.engines.job import Job
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
    clock = ClockDifference(ahead_s=1000.0, error_s=0.02)
    link = Link(sent_bytes=20, received_bytes=10, clock=clock)
    (own / LINK_FILE).write_text(link.model_dump_json())
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


def test_samples_are_on_the_clock_of_the_steps_and_of_the_zones_that_count(
    job: Job, tmp_path: Path
) -> None:
    sensors = (
        Sensor(name="cpu", celsius=40.0, zone=0),
        Sensor(name="PMIC-Die", celsius=100.0, zone=1, left_out="constant"),
    )
    before = job.before.model_copy(update={"sensors": sensors})
    there = job.model_copy(update={"before": before, "command": ("server", "-t", "2", "-c")})
    samples = "1010.25 150 0 45500 1 100000\n1011.25 350 0 47000 1 100000\nbroken 1\n1012.2"
    leave(there, tmp_path, "b", exit="143\n", finished="", samples=samples)
    (b,) = read_members(job, tmp_path)
    assert b.samples == (
        MemberSample(at_s=10.25, cpu_s=1.5, celsius=45.5),
        MemberSample(at_s=11.25, cpu_s=3.5, celsius=47.0),
    )
    assert (b.threads, b.clock_error_s) == (2, 0.02)


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
