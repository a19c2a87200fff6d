"""Timing what a model computes on a board: each operation once for a build and configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from armload.analysis.compute import Compute, from_operations
from armload.analysis.prediction_notes import note
from armload.boards.board import Board
from armload.boards.failures import SlowCommandError
from armload.boards.host import Host
from armload.boards.rates import Rates
from armload.build.binary import Binary
from armload.build.source import engine_of
from armload.core.errors import ArmloadError, BoardError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.core.shell import quote
from armload.core.values import Value
from armload.deploy.deployment import deploy
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.engines.completion import PROGRAM, Completion, settings_of
from armload.engines.engine import RunContext, Simulation
from armload.engines.llama_cpp import (
    NO_REPACK,
    REPACK,
    REPACK_OPTIONS,
    context_tokens,
    if_offered,
    likely_prompt_tokens,
    offers,
    repacked,
)
from armload.engines.operations import (
    LIST,
    OPERATIONS_VARIABLE,
    Operations,
    Timed,
    read_operations,
    read_timed,
)
from armload.engines.plan import Plan
from armload.engines.prediction import PredictionNote, PredictionNoteKind
from armload.models.find import shown_name
from armload.models.model import Model
from armload.models.whole_header import WholeHeader, whole_header
from armload.runs.cached_answers import answer_of, cached_path, read_cached, write_cached
from armload.runs.emulator import emulator_watched
from armload.runs.prepare import Prepared, as_wanted
from armload.runs.session import ReachedBoard, Session

LIMIT_S = 25.0
"""Of timing what a model computes; the rest is timed the next time."""

USUAL_DEPTH = 4096
"""To which attention is timed at least, so that runs with shorter contexts share their times."""

_PART_S = 6.0
"""Of the same, after which the progress is shown."""

_TIMEOUT_S = LIMIT_S + 35.0


class OperationTimes(Value):
    """What was timed on one board, with one build and one configuration.

    Attributes:
        rates: of the board, as measured with them.
        times: by the operations' keys.
    """

    rates: Rates
    times: Mapping[str, Timed]


class OperationsQuestion(NamedTuple):
    """Which program is asked what it computes.

    Attributes:
        name: of the model or the projector, for the progress.
        asked: the program with its words; none where it cannot tell.
        header: of the model or the projector.
        listed: where its list is kept.
        also: further variables for it, as words of a shell.
    """

    name: str
    asked: Simulation
    header: WholeHeader
    listed: Path
    also: str = ""

    def answer(self, host: Host, question: str) -> str:
        also = f"{OPERATIONS_VARIABLE}={quote(question)} {self.also}"
        return answer_of(host, self.asked, self.header, timeout_s=_TIMEOUT_S, also=also)


def measured_compute(
    where: Session, model: Model, header: WholeHeader, plan: Plan, progress: Progress
) -> tuple[Compute, Rates]:
    """Return what computing takes with a model, after timing what is not known yet on the board.

    The caller has the board to itself.

    Args:
        header: of the model, whose file may be missing.
        plan: a run, whose computing it is.

    Returns:
        It, and what memory and storage of the board give.

    Raises:
        ConnectError: the board does not answer.
        ArmloadError: the program cannot tell, or does not run there; says why.
    """
    binary = where.binaries[PROGRAM]
    engine = _engine(where, binary, model, plan)
    ready = ready_to_time(where, binary, engine.payload[0], plan, progress)
    asked = engine.simulation(run_context(where, plan, ready.context.launcher))
    if asked is None:
        raise BoardError(f"{engine_of(binary)} cannot list what a model computes")
    question = OperationsQuestion(
        name=shown_name(model.path),
        asked=asked,
        header=header,
        listed=_list_path(where, binary, engine, header),
    )
    operations = listed_operations(where, question, progress)
    found = operation_times(where, binary, question, operations, plan, ready, progress)
    return _computed(operations, found.times, model, plan, found.rates), found.rates


def ready_to_time(
    where: Session, binary: Binary, program: Payload, plan: Plan, progress: Progress
) -> Prepared:
    """Put a program on the board, and the board into the state that a plan wants.

    Raises:
        BoardError: the program cannot list what it computes.
    """
    if not offers(binary.path, OPERATIONS_VARIABLE):
        raise BoardError(f"{engine_of(binary)} cannot list what a model computes")
    host, board = where.connection.host, where.connection.board
    deploy(host, board, (program,), progress)
    on_board = program.items(Layout(workdir=board.workdir))
    return as_wanted(
        *(host, board, settings_of(plan)),
        found=where.found,
        reads=[each.remote for each in on_board],
        progress=progress,
    )


def listed_operations(
    where: Session, question: OperationsQuestion, progress: Progress
) -> Operations:
    """Return what a model or an encoder computes, as a program lists it once.

    Raises:
        ArmloadError: the program cannot tell, or does not run there; says why.
    """
    operations = read_cached(Operations, question.listed)
    if operations is not None:
        return operations
    with progress.step(f"Listing operations of {question.name}"):
        operations = read_operations(question.answer(where.connection.host, LIST))
    if operations is None:
        raise BoardError(f"its program did not list what {question.name} computes")
    write_cached(question.listed, operations)
    return operations


def operation_times(
    where: Session,
    binary: Binary,
    question: OperationsQuestion,
    operations: Operations,
    plan: Plan,
    ready: Prepared,
    progress: Progress,
) -> OperationTimes:
    """Return what operations take on the board, after timing those that are not known yet."""
    host, board = where.connection.host, where.connection.board
    kept = _times_path(where, binary, plan, operations)
    known = read_cached(OperationTimes, kept)
    times = dict(known.times) if known else {}
    _add_times(
        *(times, operations),
        lambda asked: _timed(board, lambda words: question.answer(host, words), asked),
        *(question.name, progress),
    )
    rates = known.rates.better_of(ready.context.found.rates) if known else ready.context.found.rates
    found = OperationTimes(rates=rates, times=times)
    write_cached(kept, found)
    return found


Found = TypeVar("Found")


def found_or_note(
    find: Callable[[], Found], where: Session, kind: PredictionNoteKind = "operations failed"
) -> Found | PredictionNote:
    """Return what is found by timing, or a note of why nothing was timed."""
    try:
        return find()
    except Exception as error:
        if isinstance(error, ConnectError | BusyError) and not isinstance(error, SlowCommandError):
            raise
        why = error.message.rstrip(".") if isinstance(error, ArmloadError) else repr(error)
        return note(kind, subject=where.main_board.name, reason=why)


def known_compute(where: ReachedBoard, model: Model, plan: Plan) -> tuple[Compute, Rates] | None:
    """Return the same from what was timed there before; none where too little was.

    In a session of another program, such as the scorer, that is what was timed with the program
    of the same build.
    """
    try:
        binary = _timing_program(where)
        if binary is None:
            return None
        engine = _engine(where, binary, model, plan)
        listed = _list_path(where, binary, engine, whole_header(model.path))
        operations = read_cached(Operations, listed)
        if operations is None:
            return None
        known = known_times(where, binary, plan, operations)
        if known is None:
            return None
        return _computed(operations, known.times, model, plan, known.rates), known.rates
    except Exception:  # noqa: BLE001 - whatever is wrong with a forecast, the run goes on
        return None


def known_times(
    where: ReachedBoard, binary: Binary, plan: Plan, operations: Operations
) -> OperationTimes | None:
    """Return what operations took on the board before; none where nothing was timed."""
    return read_cached(OperationTimes, _times_path(where, binary, plan, operations))


def _timing_program(where: ReachedBoard) -> Binary | None:
    if PROGRAM in where.binaries:
        return where.binaries[PROGRAM]
    for other in where.binaries.values():
        beside = other.path.with_name(PROGRAM)
        if beside.is_file():
            return other.model_copy(update={"program": PROGRAM, "path": beside})
    return None


def _computed(
    operations: Operations, times: Mapping[str, Timed], model: Model, plan: Plan, rates: Rates
) -> Compute:
    return from_operations(
        operations,
        times,
        depth=mid_depth(model, plan),
        memory_bytes_per_s=rates.memory_bytes_per_s,
        memory_is_settled=rates.memory_is_settled,
    )


def mid_depth(model: Model, plan: Plan) -> float:
    """Return how many tokens the KV cache holds halfway through the output."""
    middle = plan.depth_tokens + likely_prompt_tokens(plan) + plan.n_predict / 2
    return min(middle, context_tokens(plan, model))


def _engine(where: ReachedBoard, binary: Binary, model: Model, plan: Plan) -> Completion:
    """Return a run with the same graphs, whatever its texts are.

    Its larger context must not decide whether the engine rearranges the weights.
    """
    own = Completion(plan, binary, model).command(run_context(where, plan))
    layout = if_offered(binary.path, REPACK if repacked(own) else NO_REPACK)
    context = USUAL_DEPTH
    while context < context_tokens(plan, model):
        context *= 2
    usual = Plan(
        prompt="x",
        n_predict=1,
        context_tokens=min(context, model.context_length),
        threads=plan.threads,
        cpus=plan.cpus,
        batch_tokens=plan.batch_tokens,
        micro_batch_tokens=plan.micro_batch_tokens,
        kv_type=plan.kv_type,
        flash_attention=plan.flash_attention,
        weights=plan.weights,
        resident_bytes=plan.resident_bytes,
        extra=(*plan.extra, *layout),
    )
    return Completion(usual, binary, model)


def _missing(operations: Operations, times: Mapping[str, Timed]) -> list[int]:
    """Return the operations to time: those that are not known, of tokens before those of prompts.

    What was timed only once, or while other programs kept the cores busy, comes last.
    """
    known = {
        number: times.get(operations.operations[number].key) for number in _numbers(operations)
    }
    new = [number for number, timed in known.items() if timed is None]
    return new + [number for number, timed in known.items() if timed and timed.may_improve]


def _numbers(operations: Operations) -> list[int]:
    graphs = sorted(operations.graphs, key=lambda graph: (graph.tokens, graph.depth))
    return list(dict.fromkeys(number for graph in graphs for number, _ in graph.counts))


def _timed(board: Board, answer: Callable[[str], str], asked: str) -> list[Timed]:
    """Return what a program on a board has timed.

    Nothing in an emulated board can tell that the workstation was busy meanwhile.
    """
    seen = emulator_watched(board)
    found = list(read_timed(answer(asked)))
    emulation = seen()
    if emulation is not None and emulation.is_starved:
        return [one.model_copy(update={"is_settled": False}) for one in found]
    return found


def _add_times(
    times: dict[str, Timed],
    operations: Operations,
    timed: Callable[[str], Sequence[Timed]],
    model_name: str,
    progress: Progress,
) -> None:
    """Time what is not known yet, and again what takes most of a token.

    If that differs from what was kept, the board's speed has changed, and all is timed again.
    """
    checked, missing = _largest(operations, times), _missing(operations, times)
    # Twice, as far as time allows: what disturbs one is seldom there the next time.
    waiting = [*([] if checked is None else [checked]), *missing, *missing]
    label, deadline_s = f"Timing operations of {model_name}", time.monotonic() + LIMIT_S
    done = 0
    with progress.step(label, total=len(waiting), unit="operations") as step:
        while waiting and (left_s := deadline_s - time.monotonic()) > 0:
            asked = " ".join(map(str, (min(left_s, _PART_S), *waiting)))
            found = timed(asked)
            if not found:
                return
            for one in found:
                if one.time_s is None or one.number >= len(operations.operations):
                    continue
                key = operations.operations[one.number].key
                before = times.get(key)
                times[key] = one.after(before)
                if one.number == checked and before and not one.is_like(before):
                    again = [number for number in _numbers(operations) if number not in missing]
                    waiting += again * 2
                checked = None
            waiting = waiting[len(found) :]
            done += len(found)
            step.update(done, total=done + len(waiting))


def _largest(operations: Operations, times: Mapping[str, Timed]) -> int | None:
    """Return the operation that takes most of a token, by times that are not to be improved."""
    graph = min(operations.graphs, key=lambda graph: (graph.tokens, graph.depth))
    taken = {number: times.get(operations.operations[number].key) for number, _ in graph.counts}
    settled = {
        number: count * each.time_s
        for number, count in graph.counts
        if (each := taken[number]) and each.time_s and not each.may_improve
    }
    return max(settled, key=settled.__getitem__) if settled else None


def _list_path(
    where: ReachedBoard, binary: Binary, engine: Completion, header: WholeHeader
) -> Path:
    # The layout of weights follows from the CPU's features, the usual number of threads from cores.
    found = where.found
    plan = engine.plan.model_dump(mode="json")
    identity = [plan, binary.build_id, found.cpu_features, found.cores]
    return cached_path("operations/list", identity, header.content)


def _times_path(where: ReachedBoard, binary: Binary, plan: Plan, operations: Operations) -> Path:
    board, found = where.main_board, where.found
    identity = [
        board.model_dump(mode="json", include={"name", "reach", "target"}),
        *(found.cores, found.max_khz, found.cpu_features, found.conditions.memory_total_bytes),
        *(binary.build_id, plan.threads, plan.cpus, operations.timed_bytes),
        *((found.conditions.usual_threads,) if found.is_limited else ()),
        *(() if plan.cpus else filter(None, (settings_of(plan).cores_on(found),))),
        # An operation's key says how its weights are laid out.
        *(word for word in plan.extra if word not in REPACK_OPTIONS),
    ]
    return cached_path("operations/times", identity)


def run_context(where: ReachedBoard, plan: Plan, launcher: tuple[str, ...] = ()) -> RunContext:
    """Return the board as the run itself meets it: its cores decide how many threads compute."""
    return RunContext(
        layout=Layout(workdir=where.main_board.workdir),
        found=where.found,
        cores=settings_of(plan).cores_on(where.found),
        launcher=launcher,
    )
