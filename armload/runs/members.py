"""What the other members of a group left of a run, in the folders beside the run's own files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from armload.analysis.conditions_log import read_after
from armload.analysis.run import Member
from armload.core.values import Value
from armload.deploy.exit_reason import Exit, explain
from armload.deploy.exit_record import read_cut, read_exit_record, read_peaks
from armload.engines.job import JOB_FILE, Job
from armload.engines.output import Memory

LINK_FILE = "link.json"

_BROKEN_PIPE_STATUS = 128 + 13
"""Of SIGPIPE on Linux: llama.cpp sends to a server that has gone."""

_SERVER_GONE = "Remote RPC server crashed"
"""What ggml says of it before it aborts, where it was waiting for an answer (ggml-rpc.cpp)."""


class Link(Value):
    """What passed between the first member and another one.

    Attributes:
        sent_bytes: to the other member.
        received_bytes: from it.
    """

    sent_bytes: int
    received_bytes: int


def member_folder(run_folder: Path, board: str) -> Path:
    """Return the folder for what a member left."""
    return run_folder / "members" / board


def read_members(job: Job, folder: Path) -> tuple[Member, ...]:
    """Read what the other members of a group left; of what was not fetched, nothing."""
    return tuple(_read(job, folder))


def _read(job: Job, folder: Path) -> Iterator[Member]:
    for share in job.spread.shares if job.spread else ():
        own = member_folder(folder, share.board)
        with suppress(OSError, ValueError):
            theirs = Job.model_validate_json((own / JOB_FILE).read_bytes())
            peaks = read_peaks(own)
            yield Member(
                board=theirs.board,
                before=theirs.before,
                after=read_after(own, theirs.before),
                memory=peaks
                and Memory(max_rss_bytes=peaks.resident_bytes, max_vms_bytes=peaks.virtual_bytes),
                exit=_ended(own, theirs),
                **_link(own),
            )


def _ended(folder: Path, job: Job) -> Exit:
    cut = read_cut(folder)
    if cut is None and read_exit_record(folder) is None:
        return Exit(kind="lost", status=None, meaning="the board stopped responding")
    return explain(
        folder,
        board=job.board.name,
        cut=cut,
        memory_total_bytes=job.before.memory_total_bytes,
        filesystem=job.before.workdir_filesystem,
    )


def _link(folder: Path) -> dict[str, int]:
    try:
        return dict(Link.model_validate_json((folder / LINK_FILE).read_bytes()))
    except (OSError, ValueError):
        return {}


def with_lost_member(ended: Exit, members: Sequence[Member], folder: Path) -> Exit:
    """Return how a run ended; if that was for want of another member, that one is named."""
    if ended.kind == "done":
        return ended
    for member in members:
        if member.exit.kind != "done":
            return Exit(
                kind="member lost",
                status=ended.status,
                meaning=f"member {member.board.name} was lost: {member.exit.meaning}",
                remedy=member.exit.remedy or "Run it again.",
            )
    record = read_exit_record(folder)
    is_cut_off = record is not None and _SERVER_GONE in record.stderr_end
    if members and (is_cut_off or ended.status == _BROKEN_PIPE_STATUS):
        return Exit(
            kind="member lost",
            status=ended.status,
            meaning="the connection between the members dropped",
            remedy="Run it again. If it drops often, set 'listen' in the group's file: the members "
            "then reach each other without this machine.",
        )
    return ended
