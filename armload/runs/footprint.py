"""Asking a program on a board what it would allocate, once for each model and configuration."""

from __future__ import annotations

from armload.boards.failures import SlowCommandError
from armload.boards.probe import Probe
from armload.core.errors import ArmloadError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.deploy.deployment import deploy
from armload.deploy.layout import Layout
from armload.engines.engine import Engine, RunContext
from armload.engines.footprint import Footprint, read_footprint
from armload.engines.weights import BoardMemory
from armload.models.find import shown_name
from armload.models.whole_header import WholeHeader, whole_header
from armload.runs.cached_answers import answer_of, cached_path, read_cached, write_cached
from armload.runs.session import Session

_TIME_LIMIT_S = 60.0

CERTAIN = 20
"""An estimate that fits so many times needs no confirmation: it is further off for no model."""


def checked_memory(where: Session, engine: Engine, found: Probe, progress: Progress) -> Engine:
    """Return an engine that knows what memory it takes, where that may decide how it runs.

    Raises:
        ConnectError, BusyError: as for ``with_known_memory``.
    """
    need = engine.memory
    if need is None:
        return engine
    available_bytes = BoardMemory.of(found.conditions).available_bytes
    if need.kv_is_exact and need.kv_bytes > available_bytes:
        return engine
    certain_bytes = CERTAIN * (need.weights_bytes + need.own_bytes)
    if certain_bytes <= available_bytes:
        return engine
    return with_known_memory(where, engine, found, progress)


def with_known_memory(
    where: Session,
    engine: Engine,
    found: Probe,
    progress: Progress,
    *,
    header: WholeHeader | None = None,
) -> Engine:
    """Return an engine that knows what memory it takes, where its program can say so.

    The program is put on the board and started there with the model's header. Whatever prevents
    an answer, the engine is returned as it was: its need is then estimated.

    Args:
        header: of the model; none for its file's.

    Raises:
        ConnectError, BusyError: the board does not answer any more, or was taken over.
    """
    host, board = where.connection.host, where.connection.board
    layout = Layout(workdir=board.workdir)
    try:
        asked = engine.simulation(
            RunContext(
                layout=layout,
                found=found,
                cores=engine.settings.cores_on(found),
                launcher=host.launcher,
            )
        )
        if asked is None:
            return engine
        header = header or whole_header(asked.model)
        # The layout of weights follows from the CPU's features, the usual number of threads from
        # cores.
        identity = [asked.command, asked.batch_tokens, found.cpu_features, found.cores]
        kept = cached_path("footprints/memory", [*identity, header.file_bytes], header.content)
        footprint = read_cached(Footprint, kept)
        if footprint is None:
            deploy(host, board, (asked.program,), progress)
            with progress.step(f"Asking {board.name} for the memory of {shown_name(asked.model)}"):
                footprint = read_footprint(answer_of(host, asked, header, timeout_s=_TIME_LIMIT_S))
            if footprint is None:
                return engine
            write_cached(kept, footprint)
    except SlowCommandError as error:
        progress.say(f"{error.message} The memory that it needs is estimated.")
        return engine
    except (ConnectError, BusyError):
        raise
    except (ArmloadError, OSError):
        return engine
    return engine.with_footprint(footprint)
