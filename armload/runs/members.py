"""What the other members of a group left of a run, in the folders beside the run's own files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from armload.analysis.conditions_log import read_after
from armload.analysis.members import ClockDifference, MemberSample, NodeActivity
from armload.analysis.run import Member
from armload.boards.conditions import Conditions
from armload.boards.sensors import chosen_names, hottest, read_sensors
from armload.core.values import Value, whole_number
from armload.deploy.exit_reason import Exit, explain
from armload.deploy.exit_record import read_cut, read_exit_record, read_peaks
from armload.deploy.layout import JOB_FILE, TRACE_FILE
from armload.engines.job import Job
from armload.engines.output import Memory
from armload.engines.registry import ENGINES
from armload.engines.trace import read_trace

LINK_FILE, SAMPLES_FILE = "link.json", "samples"

_TICKS_PER_S = 100
"""``USER_HZ`` of Linux on ARM and x86, whatever the kernel's own rate is."""

_BROKEN_PIPE_STATUS = 128 + 13
"""Of SIGPIPE on Linux: llama.cpp sends to a server that has gone."""

_RPC_SERVER_GONE = "Remote RPC server crashed"
"""What ggml says before it aborts, where it was waiting for an answer (ggml-rpc.cpp)."""

_OTHERS_GONE = (_RPC_SERVER_GONE, *filter(None, (each.others_gone for each in ENGINES)))


class Link(Value):
    """What passed between the first member and another one.

    Attributes:
        sent_bytes: to the other member; none where that is not known.
        received_bytes: from it; likewise.
        clock: of the other one; likewise.
    """

    sent_bytes: int | None = None
    received_bytes: int | None = None
    clock: ClockDifference | None = None


def member_folder(run_folder: Path, board: str) -> Path:
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
            try:
                link = Link.model_validate_json((own / LINK_FILE).read_bytes())
            except (OSError, ValueError):
                link = Link()
            words = dict(itertools.pairwise(theirs.command))
            cut = read_cut(own)
            if cut is None and read_exit_record(own) is None:
                ended = Exit(kind="lost", status=None, meaning="the board stopped responding")
            else:
                ended = explain(
                    own,
                    board=theirs.board.name,
                    cut=cut,
                    memory_total_bytes=theirs.before.memory_total_bytes,
                    filesystem=theirs.before.workdir_filesystem,
                )
            yield Member(
                board=theirs.board,
                before=theirs.before,
                after=read_after(own, theirs.before),
                memory=peaks
                and Memory(max_rss_bytes=peaks.resident_bytes, max_vms_bytes=peaks.virtual_bytes),
                exit=ended,
                sent_bytes=link.sent_bytes,
                received_bytes=link.received_bytes,
                threads=whole_number(words.get("-t", words.get("--threads", ""))) or 1,
                node=NodeActivity.of(*read_trace(own / TRACE_FILE)),
                clock_error_s=link.clock and link.clock.error_s,
                samples=tuple(_samples(own, theirs.before, link.clock.ahead_s))
                if link.clock
                else (),
            )


def _samples(folder: Path, before: Conditions, ahead_s: float) -> Iterator[MemberSample]:
    """Read lines of the time since the boot, the CPU time in ticks, and zones with their values."""
    names = {each.zone: each.name for each in before.sensors}
    chosen = chosen_names(before.sensors)
    try:
        lines = (folder / SAMPLES_FILE).read_text("ascii", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError):
            since_boot, ticks, *zones = line.split()
            shown = [
                f"{zone} {value} {names.get(int(zone), '')}"
                for zone, value in zip(zones[::2], zones[1::2], strict=True)
            ]
            warmest = hottest(read_sensors(shown, chosen))
            yield MemberSample(
                at_s=float(since_boot) - ahead_s,
                cpu_s=int(ticks) / _TICKS_PER_S,
                celsius=warmest.celsius if warmest else None,
            )


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
    is_cut_off = record is not None and any(each in record.stderr_end for each in _OTHERS_GONE)
    if members and (is_cut_off or ended.status == _BROKEN_PIPE_STATUS):
        return Exit(
            kind="member lost",
            status=ended.status,
            meaning="the connection between the members dropped",
            remedy="Run it again. If it drops often, set 'listen' in the group's file: the members "
            "then reach each other without this machine.",
        )
    return ended
