"""Asking llama.cpp about a model before it is copied: whether it takes it, and in what memory."""

from __future__ import annotations

from armload.boards.failures import SlowCommandError
from armload.boards.probe import Probe
from armload.core.errors import ArmloadError, BusyError, ConnectError, DataError, UsageError
from armload.core.progress import Progress
from armload.core.shell import quote
from armload.core.values import Value
from armload.deploy.deployment import deploy
from armload.deploy.layout import Layout
from armload.engines.engine import Engine, RunContext, Simulation
from armload.engines.footprint import EngineRefusal, Footprint, read_footprint, read_refusal
from armload.engines.llama_cpp import offers
from armload.engines.model_program import ModelEngine
from armload.engines.operations import LIST, OPERATIONS_VARIABLE, read_operations
from armload.engines.perception import ENCODER_VARIABLE, usual_encoder_question
from armload.engines.weights import BoardMemory
from armload.models.find import shown_name
from armload.models.whole_header import WholeHeader, whole_header
from armload.runs.cached_answers import answer_of, cached_path, read_cached, write_cached
from armload.runs.here import answer_here, words_of
from armload.runs.session import Session

_TIME_LIMIT_S = 60.0

CERTAIN = 20
"""An estimate that fits so many times needs no confirmation: it is further off for no model."""


class _Accepted(Value):
    """llama.cpp has loaded a model's header with these options."""


def checked_memory(
    where: Session, engine: Engine, found: Probe, progress: Progress, *, decides: bool = True
) -> Engine:
    """Return an engine that knows what memory it takes, where that may decide how it runs.

    A model or a projector that llama.cpp would not load is refused.

    Args:
        decides: the board's memory does; else only the model is checked.
    """
    need = engine.memory
    if need is None:
        return engine
    is_accepted = accepted(where, engine, found, progress)
    check_projector(where, engine, found, progress)
    available_bytes = BoardMemory.of(found.conditions).available_bytes
    is_hopeless = need.kv_is_exact and need.kv_bytes > available_bytes
    is_certain = CERTAIN * (need.weights_bytes + need.own_bytes) <= available_bytes
    if is_hopeless or not decides or (is_certain and is_accepted):
        return engine
    return with_known_memory(where, engine, found, progress)


def accepted(where: Session, engine: Engine, found: Probe, progress: Progress) -> bool:
    """Say whether llama.cpp loads a model's header, if its program can run on this machine."""
    context = _context(where, engine, found)
    asked = engine.simulation(context)
    if asked is None or not isinstance(engine, ModelEngine):
        return False
    try:
        header = whole_header(asked.model)
    except OSError:
        header = None
    if header is None:
        return False
    words = words_of(asked, context.launcher)
    shown = [word for word in words if not word.startswith(str(context.layout.workdir))]
    identity = [engine.binary.sha256, shown, header.file_bytes]
    kept = cached_path("footprints/accepted", identity, header.content)
    if read_cached(_Accepted, kept) is not None:
        return True
    with progress.step(f"Checking {shown_name(asked.model)} with llama.cpp"):
        answer = answer_here(engine.binary, words, header, asked.batch_tokens)
    if answer is None:
        return False
    if read_footprint(answer) is None:
        _refuse(asked, read_refusal(answer))
        return False
    write_cached(kept, _Accepted())
    return True


def check_projector(where: Session, engine: Engine, found: Probe, progress: Progress) -> None:
    """Refuse a projector that llama.cpp does not load, or by which its encoder would end.

    The program is asked on this machine, or on the board where this one cannot run it. An answer
    that says nothing of the projector is left to the run.

    Raises:
        DataError: it is refused; says why.
    """
    context = _context(where, engine, found)
    asked = engine.simulation(context)
    if asked is None or not isinstance(engine, ModelEngine) or engine.projector_file is None:
        return
    path = engine.projector_file
    if not offers(engine.binary.path, ENCODER_VARIABLE):
        return
    header = whole_header(path)
    question = {ENCODER_VARIABLE: usual_encoder_question(path), OPERATIONS_VARIABLE: LIST}
    identity = [engine.binary.sha256, *question.values(), header.file_bytes]
    kept = cached_path("footprints/projector", identity, header.content)
    if read_cached(_Accepted, kept) is not None:
        return
    words = words_of(asked, context.launcher)
    with progress.step(f"Checking {shown_name(path)} with llama.cpp"):
        answer = answer_here(engine.binary, words, header, 0, question)
        if answer is None:
            host, board = where.connection.host, where.connection.board
            deploy(host, board, (asked.program,), progress)
            also = " ".join(f"{name}={quote(value)}" for name, value in question.items())
            try:
                answer = answer_of(host, asked, header, timeout_s=_TIME_LIMIT_S, also=also)
            except SlowCommandError:
                return
    if read_operations(answer) is not None:
        write_cached(kept, _Accepted())
        return
    if refusal := read_refusal(answer):
        raise DataError(
            f"{path}: llama.cpp does not take this projector: {refusal.reason}.",
            "Use a newer llama.cpp with --source, or another model. If the file may be damaged, "
            "download or convert it again.",
        )


def with_known_memory(
    where: Session,
    engine: Engine,
    found: Probe,
    progress: Progress,
    *,
    header: WholeHeader | None = None,
) -> Engine:
    """Return an engine that knows what memory it takes, where its program can say so.

    The program is put on the board and started there with the model's header. Whatever else
    prevents an answer, the engine is returned as it was: its need is then estimated.

    Args:
        header: of the model; none for its file's.
    """
    host, board = where.connection.host, where.connection.board
    try:
        asked = engine.simulation(_context(where, engine, found))
        if asked is None:
            return engine
        header = header or whole_header(asked.model)
        # The layout of weights follows from the CPU's features, the usual number of threads from
        # cores.
        identity = [asked.command, asked.batch_tokens, found.cpu_features, found.cores]
        kept = cached_path("footprints/memory", [*identity, header.file_bytes], header.content)
        footprint, answer = read_cached(Footprint, kept), ""
        if footprint is None:
            deploy(host, board, (asked.program,), progress)
            with progress.step(f"Asking {board.name} for the memory of {shown_name(asked.model)}"):
                answer = answer_of(host, asked, header, timeout_s=_TIME_LIMIT_S)
                footprint = read_footprint(answer)
            if footprint is not None:
                write_cached(kept, footprint)
    except SlowCommandError as error:
        progress.say(f"{error.message} The memory that it needs is estimated.")
        return engine
    except (ConnectError, BusyError):
        raise
    except (ArmloadError, OSError):
        return engine
    if footprint is not None:
        return engine.with_footprint(footprint)
    _refuse(asked, read_refusal(answer))
    return engine


def _context(where: Session, engine: Engine, found: Probe) -> RunContext:
    host, board = where.connection.host, where.connection.board
    return RunContext(
        layout=Layout(workdir=board.workdir),
        found=found,
        cores=engine.settings.cores_on(found),
        launcher=host.launcher,
    )


def _refuse(asked: Simulation, refusal: EngineRefusal | None) -> None:
    if refusal is None:
        return
    if refusal.kind == "file":
        raise DataError(
            f"{asked.model}: llama.cpp does not load this file: {refusal.reason}.",
            "Download or copy it again, or convert the model again with a current llama.cpp.",
        )
    raise UsageError(
        f"llama.cpp cannot run {asked.model.name} with these options: {refusal.reason}.",
        "Change the option that it names.",
    )
