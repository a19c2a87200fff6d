"""Bringing runs home from a board: the files, and the ``Run`` that is computed from them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from armload.bench import store
from armload.bench.assemble import assemble, read_job
from armload.bench.job import FILE_NAME
from armload.bench.record import Job
from armload.bench.run import Exit, Memory, Run, Verdict
from armload.boards.board import Board
from armload.boards.conditions import Conditions
from armload.boards.connect import connect, is_blank
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.core.errors import ArmloadError, ConnectError, DiskError, TransferError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.deploy.collect import collect, peak_memory_bytes
from armload.deploy.ending import Cut, explain
from armload.deploy.follow import end_orphan
from armload.deploy.mark import Mark
from armload.deploy.owner import laptop
from armload.deploy.stored import list_runs, mark_collected

SEEN_FILE = "seen.jsonl"
"""The trace as far as it was followed; it goes when the run is home."""


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """What came of bringing runs home.

    Attributes:
        runs: that are here now.
        lost: why others are not, by their names.
    """

    runs: tuple[Run, ...]
    lost: Mapping[str, ArmloadError]


def pull(board: Board, progress: Progress) -> Pulled:
    """Bring home every run on a board that has ended and is not here yet, or not readable.

    A run that still goes on, and one that cannot be understood or kept, is named and left alone.

    Raises:
        ConnectError: the board does not answer any more.
    """
    if is_blank(board, progress):
        return Pulled(runs=(), lost={})
    host = connect(board, progress)
    try:
        runs: list[Run] = []
        lost: dict[str, ArmloadError] = {}
        for stored in list_runs(host, board.workdir):
            if is_here(stored.id):
                continue
            if stored.state == "running":
                progress.say(f"{stored.id} still runs on {board.name}.")
                continue
            try:
                run, _ = _brought(host, board, stored.folder, progress, cut=stored.cut)
            except ConnectError:
                raise
            except ArmloadError as error:
                named = "" if stored.id in error.message else f"{stored.id}: "
                progress.say(f"Cannot be brought home: {named}{error.message}")
                lost[stored.id] = error
                continue
            runs.append(run)
            mark = Mark.read(stored.mark)
            if mark is None or mark.laptop == laptop():  # another's is still to be fetched by it
                _tell_it_is_home(host, stored.folder)
        return Pulled(runs=tuple(runs), lost=lost)
    finally:
        host.close()


def is_here(run_id: str) -> bool:
    """Say whether a run lies on this laptop and can be read, by a newer armload if not by us."""
    try:
        store.load(runs_folder() / run_id)
    except store.NewerFormatError:
        return True
    except ArmloadError:
        return False
    return True


def bring_home(
    host: Host,
    board: Board,
    on_board: PurePosixPath,
    progress: Progress,
    *,
    job: Job | None = None,
    cut: Cut | None = None,
) -> tuple[Run, Path]:
    """Fetch a run that has just ended, with the board's state now, and say so on the board.

    Args:
        host: the board.
        board: its file.
        on_board: the run's folder there.
        progress: shows how far it is.
        job: the run's, where it is known here even if the board lost it.
        cut: what ended a run that left no exit status.

    Raises:
        ArmloadError: the files cannot be had, or not be kept here.
    """
    run, folder = _brought(host, board, on_board, progress, job=job, cut=cut, just_ended=True)
    _tell_it_is_home(host, on_board)
    return run, folder


def _brought(
    host: Host,
    board: Board,
    on_board: PurePosixPath,
    progress: Progress,
    *,
    job: Job | None = None,
    cut: Cut | None = None,
    just_ended: bool = False,
) -> tuple[Run, Path]:
    folder = runs_folder() / on_board.name
    try:
        if job is not None:
            write_whole(folder / FILE_NAME, job.model_dump_json(indent=1).encode())
        if cut == "lost":
            end_orphan(host, on_board)
        try:
            collect(host, on_board, folder, progress)
        except (ConnectError, TransferError):
            raise
        except ArmloadError:
            # A restart may have taken the whole folder: what was seen of it is left.
            if job is None or cut != "restart":
                raise
        after = _after(host, board) if just_ended else None
        run = keep(job or read_job(folder), folder, after=after, cut=cut)
    except OSError as error:
        raise DiskError(
            f"{error.filename or folder}: {error.strerror or error}.",
            f"The run still lies on the board. Make room here, then: "
            f"armload pull --board {board.name}",
        ) from error
    return run, folder


def keep(job: Job, folder: Path, *, after: Conditions | None, cut: Cut | None) -> Run:
    """Compute a run from its files and save it beside them.

    Raises:
        DataError: the trace is malformed.
    """
    _recover_seen(folder)
    peaks = peak_memory_bytes(folder)
    run = assemble(
        job,
        folder,
        ended=_ended(job, folder, cut),
        memory=Memory(max_rss_bytes=peaks[0], max_vms_bytes=peaks[1]) if peaks else None,
        after=after,
    )
    if run.exit.status == 0 and (folder / "unleased").exists():
        run = _doubted(run, "The lease was taken away: somebody else may have used the board.")
    store.save(run, folder)
    (folder / SEEN_FILE).unlink(missing_ok=True)
    return run


def _tell_it_is_home(host: Host, on_board: PurePosixPath) -> None:
    with contextlib.suppress(ArmloadError):  # it is; the mark only says so
        mark_collected(host, on_board)


def _doubted(run: Run, reason: str) -> Run:
    verdict = Verdict(valid=False, reasons=(*run.verdict.reasons, reason))
    return run.model_copy(update={"verdict": verdict})


def _recover_seen(folder: Path) -> None:
    """Take the trace that was followed where the board has lost the end of it."""
    seen, trace = folder / SEEN_FILE, folder / "trace.jsonl"
    if not seen.is_file():
        return
    followed = seen.read_bytes()
    kept = trace.read_bytes().partition(b"\0")[0] if trace.is_file() else b""
    kept = kept[: kept.rfind(b"\n") + 1]
    if len(followed) > len(kept) and followed.startswith(kept):
        write_whole(trace, followed)


def _after(host: Host, board: Board) -> Conditions | None:
    try:
        return probe(host, board).conditions
    except ArmloadError:  # the run is done; what the board says now cannot undo it
        return None


def _ended(job: Job, folder: Path, cut: Cut | None) -> Exit:
    lacking = [name for name in job.binary.features if name not in job.board.cpu_features]
    ending = explain(
        folder, lacking=lacking, cut=cut, memory_total_bytes=job.before.memory_total_bytes
    )
    return Exit.model_validate(ending.model_dump())
