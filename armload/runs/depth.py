"""Contexts that are filled once on a board, and restored by every run at that depth."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from armload.analysis.output_doubts import PromptCount
from armload.analysis.run import Run
from armload.boards.host import Host
from armload.core.errors import BoardError, RunError
from armload.core.progress import Progress
from armload.core.shell import join, quote, render
from armload.core.values import counted
from armload.deploy.clean import delete_folders
from armload.deploy.exit_reason import INTERRUPTED
from armload.deploy.layout import CONTEXT_FILE, Layout
from armload.deploy.retry import with_retries
from armload.deploy.space import FreeSpace
from armload.engines.completion import Completion
from armload.runs.pipeline import execute
from armload.runs.predicting import predictor_of
from armload.runs.session import Session

_MAGIC = b"nsgg"  # LLAMA_SESSION_MAGIC of llama.h, its lowest byte first
_HEAD_BYTES = 12  # it, the format's version, and how many tokens follow; 32 bits each

_COPYING_S = 600.0

_SAVED = re.compile(r"(?P<used>\d{1,15}) (?P<kib>\d{1,15}) (?P<name>[0-9a-f]{1,64}-[0-9a-f]{1,64})")
"""When a context was used last, its size, and its folder's name, which is armload's."""

MOST_CONTEXTS = 16
"""Kept on a board; the context that was used longest ago goes for a new one."""


def fill_context(where: Session, engine: Completion, progress: Progress) -> None:
    """Fill the context that an engine's plan begins with, unless the board has it.

    That is a run of its own, which times the prefill of all of it; what an interrupted command left
    of it is taken up.

    Raises:
        RunError: the context was not filled.
        BoardError: it does not fit on the board's storage.
        ArmloadError: as for ``execute``.
    """
    depth = engine.plan.depth_tokens
    if not depth:
        return
    host, board = where.connection.host, where.connection.board
    layout = Layout(workdir=board.workdir)
    kept = engine.saved_context(layout)
    if saved_tokens(host, kept) == depth:
        return
    label = f"a context of {counted(depth, 'token')}"
    size_bytes = engine.memory.kv_cache.size_bytes(depth, 1)
    free = FreeSpace(
        free_bytes=where.found.conditions.workdir_free_bytes,
        advice=f"Use a smaller --depth, or: armload board.clean --board {board.name}",
    )
    free = make_room(host, layout, free, size_bytes, progress)
    free.need(host, label, board.workdir, size_bytes)
    progress.say(f"{board.name}: filling {label}, once for all runs at this depth.")
    filling = engine.filling
    predictor = predictor_of(where, filling.forecastable, progress)
    run, _ = execute(where, filling, progress, new=False, predictor=predictor)
    wrong = [each for each in run.verdict.findings if each.name == PromptCount.name]
    if run.exit.status != 0 or wrong:
        reason = run.exit.meaning if run.exit.status != 0 else wrong[0].sentence
        raise RunError(
            f"{board.name}: cannot fill {label}: {reason}",
            f"See the run: armload show {run.id}",
        )
    left = layout.run(run.id) / CONTEXT_FILE
    moved = with_retries(
        lambda: host.run(
            f"{{ {join(['mkdir', '-p', kept.parent])} && {join(['mv', '-f', left, kept])}; }} 2>&1 "
            "&& sync",
            timeout_s=_COPYING_S,
        )
    )
    # Moved by an attempt whose answer was lost, it is there as well.
    found = saved_tokens(host, kept)
    if found != depth:
        raise BoardError(
            f"{board.name}: the saved context holds {counted(found, 'token')}, not {depth}"
            f"{f': {moved.text.strip()}' if moved.text.strip() else ''}.",
            "Run it again. If that does not help, this release of llama.cpp saves no context: use "
            "another with --source, or --prompt-tokens in place of --depth.",
        )


def make_room(
    host: Host, layout: Layout, free: FreeSpace, wanted_bytes: int, progress: Progress
) -> FreeSpace:
    """Remove the contexts that were unused for longest, if there are too many or room is short.

    Returns:
        The room that there is then.
    """
    script = render("files/contexts.sh.j2", {"folder": layout.contexts})
    lines = with_retries(lambda: host.run(script)).text.splitlines()
    found = filter(None, map(_SAVED.fullmatch, lines))
    saved = sorted((int(each["used"]), int(each["kib"]), each["name"]) for each in found)
    most_bytes = (free.free_bytes or 0) + sum(kib * 1024 for _, kib, _ in saved)
    fits = not free.model_copy(update={"free_bytes": most_bytes}).missing_bytes(wanted_bytes)
    gone: list[str] = []
    for _, kib, name in saved:
        is_short = fits and free.missing_bytes(wanted_bytes)
        if len(saved) - len(gone) < MOST_CONTEXTS and not is_short:
            break
        gone.append(name)
        if free.free_bytes is not None:
            free = free.model_copy(update={"free_bytes": free.free_bytes + kib * 1024})
    if gone:
        progress.say(
            f"{host.name}: removing {counted(len(gone), 'saved context')}, unused for longest."
        )
        delete_folders(host, [layout.contexts / name for name in gone])
    return free


def drop_unsound(where: Session, engine: Completion, run: Run) -> None:
    """Remove a saved context that a run could not restore, so that the next one fills it again."""
    depth = engine.plan.depth_tokens
    if depth and run.exit.kind not in INTERRUPTED and run.restored_tokens != depth:
        host, board = where.connection.host, where.connection.board
        kept = engine.saved_context(Layout(workdir=board.workdir))
        delete_folders(host, [kept.parent])


def saved_tokens(host: Host, path: PurePosixPath) -> int:
    """Return how many tokens a saved context on a board holds; 0 without a sound one."""
    command = f"head -c {_HEAD_BYTES} {quote(str(path))} 2>/dev/null"
    head = with_retries(lambda: host.run(command)).stdout
    if len(head) != _HEAD_BYTES or not head.startswith(_MAGIC):
        return 0
    return int.from_bytes(head[8:], "little")
