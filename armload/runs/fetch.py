"""Fetching runs from a board: collect the files, assemble the ``Run``, keep it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from armload.analysis.run import Run
from armload.boards.board import Board
from armload.boards.connect import connect, is_blank
from armload.boards.host import Host
from armload.core.errors import ArmloadError, ConnectError, DataError, DiskError, TransferError
from armload.core.files import is_refusal, refusal_remedy, write_whole
from armload.core.journal import LOCK_FILE
from armload.core.json_lines import whole_lines
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.deploy.board_runs import list_runs, mark_collected
from armload.deploy.collect import collect
from armload.deploy.exit_record import CUT_FILE, Cut
from armload.deploy.follow import SEEN_TEXT, SEEN_TRACE, end_orphan
from armload.deploy.layout import JOB_FILE, STDOUT_FILE, TRACE_FILE
from armload.engines.job import Job
from armload.engines.registry import RESULTS
from armload.runs import store
from armload.runs.api_keys import forget_key
from armload.runs.assemble import assemble, read_job
from armload.runs.baseline import keep_baseline
from armload.runs.reference import keep_reference
from armload.runs.store import is_here

_SEEN = {TRACE_FILE: SEEN_TRACE, STDOUT_FILE: SEEN_TEXT}
"""The part of each file that has been seen, until the run is fetched."""


def fetch(
    host: Host,
    board: Board,
    on_board: PurePosixPath,
    progress: Progress,
    *,
    job: Job | None = None,
    cut: Cut | None = None,
    reference: Run | None = None,
    baseline: Sequence[Run] = (),
) -> tuple[Run, Path]:
    """Collect a run's files, compute the run from them, and keep it; return it with its folder.

    The key of a service ends with that.

    Args:
        job: the run's, where it is known here even if the board lost it.
        cut: what ended a run that left no exit status.
        reference: a run with the expected output.
        baseline: runs of the same without speculation.

    Raises:
        ArmloadError: the files cannot be had, or not be kept here.
    """
    with _alone(board, on_board, progress) as local:
        run = _fetched(
            *(host, on_board, local, progress),
            job=job,
            cut=cut,
            reference=reference,
            baseline=baseline,
        )
    return run, local


def judge_fetched(run_id: str, *, reference: Run | None, baseline: Sequence[Run]) -> Run:
    """Return a run that another machine has fetched, compared as for ``fetch``."""
    local = runs_folder() / run_id
    if reference is None and not baseline:
        return store.load(local)
    if reference is not None:
        keep_reference(reference, local)
    keep_baseline(baseline, local)
    return _kept(local)


def fetch_once(
    host: Host,
    board: Board,
    on_board: PurePosixPath,
    progress: Progress,
    *,
    job: Job | None = None,
    cut: Cut | None = None,
) -> tuple[Run, Path]:
    """Do what ``fetch`` does, unless another command has, or does so now.

    Several commands may see a run's end at the same time.

    Raises:
        ArmloadError: as for ``fetch``.
    """
    with _alone(board, on_board, progress) as local:
        if is_here(on_board.name):
            return store.load(local), local
        return _fetched(host, on_board, local, progress, job=job, cut=cut), local


@contextlib.contextmanager
def _alone(board: Board, on_board: PurePosixPath, progress: Progress) -> Iterator[Path]:
    """Keep other commands from a run's folder on this machine within the block, and yield it."""
    local = runs_folder() / on_board.name
    try:
        with locked(local / LOCK_FILE, progress, waiting=f"{on_board.name} is being fetched."):
            yield local
    except OSError as error:
        again = f"armload pull --board {board.name}"
        where = Path(os.fsdecode(error.filename or local))
        remedy = f"Fetch it again: {again}"
        if is_refusal(error):
            act = refusal_remedy(error, where).removesuffix("repeat the command.")
            remedy = f"{act.rstrip()}: {again}"
        raise DiskError(
            f"{where}: {error.strerror or error}.",
            f"The run is still on the board. {remedy}",
        ) from error


def _fetched(
    host: Host,
    on_board: PurePosixPath,
    local: Path,
    progress: Progress,
    *,
    job: Job | None,
    cut: Cut | None,
    reference: Run | None = None,
    baseline: Sequence[Run] = (),
) -> Run:
    if job is not None:
        write_whole(local / JOB_FILE, job.model_dump_json(indent=1).encode())
    if reference is not None:
        keep_reference(reference, local)
    keep_baseline(baseline, local)
    replaceable = job is not None
    if cut == "lost":
        end_orphan(host, on_board)
    try:
        collect(host, on_board, local, progress, results=RESULTS)
    except (ConnectError, TransferError):
        raise
    except ArmloadError:
        # A restart may have taken the whole folder: what was seen of it is left.
        if not replaceable or cut != "restart":
            raise
    if cut is not None:
        write_whole(local / CUT_FILE, cut.encode())
    # What was seen of the trace and the text, where the board has lost the end of it.
    for name, seen in _SEEN.items():
        followed, kept = (_sound(local / each) for each in (seen, name))
        if len(followed) > len(kept) and followed.startswith(kept):
            write_whole(local / name, followed)
    run = _kept(local)
    forget_key(run.id)
    return run


def _kept(local: Path) -> Run:
    """Compute a run from its files and keep it; a malformed one ends no other run's fetching."""
    try:
        run = assemble(read_job(local), local)
        store.save(run, local)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DataError(
            f"{local}: these files cannot be turned into a run: {type(error).__name__}: {error}.",
            "The board's storage may be damaged. If the files look right, report this with them.",
        ) from error
    for name in _SEEN.values():
        (local / name).unlink(missing_ok=True)
    return run


def mark_fetched(host: Host, on_board: PurePosixPath) -> None:
    """Mark a run on the board as fetched; a failure to do so changes nothing."""
    with contextlib.suppress(ArmloadError):
        mark_collected(host, on_board)


def _sound(path: Path) -> bytes:
    content = path.read_bytes() if path.is_file() else b""
    if path.suffix == ".jsonl":
        return whole_lines(content)
    # Where a power cut took the content of a block, some file systems leave zeros.
    return content.rstrip(b"\0")


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """The result of fetching runs.

    Attributes:
        runs: that are here now.
        lost: why others are not, by their names.
    """

    runs: tuple[Run, ...]
    lost: Mapping[str, ArmloadError]


def pull(board: Board, progress: Progress, *, known: Collection[str] = ()) -> Pulled:
    """Fetch every run on a board that has ended and is not here yet, or not readable.

    A run that is still running, and one that cannot be read or stored, is named and left alone.

    Args:
        known: runs that are left alone, too: whoever asks for this has them.
    """
    if is_blank(board, progress):
        return Pulled(runs=(), lost={})
    host = connect(board, progress)
    try:
        runs: list[Run] = []
        lost: dict[str, ArmloadError] = {}
        for stored in list_runs(host, board.workdir):
            if stored.id in known or is_here(stored.id):
                continue
            if stored.state == "running":
                progress.say(f"{stored.id} is still running on {board.name}.")
                continue
            try:
                run, _ = fetch_once(host, board, stored.folder, progress, cut=stored.cut)
            except ConnectError:
                raise
            except ArmloadError as error:
                named = "" if stored.id in error.message else f"{stored.id}: "
                progress.say(f"Cannot fetch: {named}{error.message}")
                lost[stored.id] = error
                continue
            runs.append(run)
            if stored.mark is None or stored.mark.holder.is_here:
                mark_fetched(host, stored.folder)  # another's is still to be fetched by it
        return Pulled(runs=tuple(runs), lost=lost)
    finally:
        host.close()
