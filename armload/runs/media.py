"""An image or a sound in what is predicted of a run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from armload.analysis.board_resources import BoardResources
from armload.analysis.compute import Compute, encoder_from_operations
from armload.analysis.roofline import encoder_s
from armload.boards.specs import DeclaredSpecs
from armload.build.binary import Binary
from armload.build.source import engine_of
from armload.core.errors import BoardError
from armload.core.progress import Progress
from armload.core.shell import quote
from armload.deploy.payload import Payload
from armload.engines.engine import Forecastable, MemoryNeed
from armload.engines.llama_cpp import likely_prompt_tokens, offers
from armload.engines.media import MediaNeed
from armload.engines.operations import Operations
from armload.engines.perception import (
    ENCODER_VARIABLE,
    PERCEIVING_PROGRAM,
    encoder_question,
    encoder_simulation,
)
from armload.engines.plan import Plan
from armload.engines.prediction import Expected, MediaForecast, Prediction, PredictionNote
from armload.models.whole_header import WholeHeader, whole_header
from armload.runs.cached_answers import cached_path, read_cached
from armload.runs.operations import (
    OperationsQuestion,
    OperationTimes,
    found_or_note,
    known_times,
    listed_operations,
    operation_times,
    ready_to_time,
    run_context,
)
from armload.runs.session import ReachedBoard, Session


def plan_with(plan: Plan, media: MediaNeed | None) -> Plan:
    """Return a plan whose prompt is longer by the tokens of an image."""
    if media is None:
        return plan
    tokens = likely_prompt_tokens(plan) + media.tokens
    return plan.model_copy(update={"prompt_tokens": tokens})


def need_with(need: MemoryNeed, media: MediaNeed | None) -> MemoryNeed:
    """Return the memory of a run with its projector."""
    if media is None:
        return need
    size = media.weights_bytes + media.buffer_bytes
    return need.model_copy(update={"projector_bytes": size})


class MediaQuestion(NamedTuple):
    """An image or a sound whose encoder can be timed.

    Attributes:
        need: what it asks of a board.
        header: of the projector.
    """

    need: MediaNeed
    header: WholeHeader


def question_of(wanted: Forecastable) -> MediaQuestion | None:
    """Return what a board can be asked of the encoder of a run; none of a text."""
    if wanted.media is None or wanted.projector is None:
        return None
    return MediaQuestion(need=wanted.media, header=whole_header(wanted.projector))


class EncoderTimer:
    """An encoder on a board: what its graphs take of memory, and of time.

    The caller has the board to itself.

    Raises:
        ConnectError: the board does not answer.
        ArmloadError: the program cannot tell, or does not run there; says why.
    """

    def __init__(
        self, where: Session, media: MediaQuestion, plan: Plan, progress: Progress
    ) -> None:
        self._where, self._media, self._plan, self._progress = where, media, plan, progress
        self._binary = where.binaries[PERCEIVING_PROGRAM]
        if not offers(self._binary.path, ENCODER_VARIABLE):
            raise BoardError(f"{engine_of(self._binary)} cannot list what an encoder computes")
        path, sha256 = self._binary.path, self._binary.sha256
        program = Payload.of_file(path, sha256=sha256, executable=True)
        self._ready = ready_to_time(where, self._binary, program, plan, progress)
        context = run_context(where, plan, self._ready.context.launcher)
        words, listed = _asked_and_kept(where, self._binary, media, plan)
        self._question = OperationsQuestion(
            name=media.need.projector,
            asked=encoder_simulation(program, Path(media.need.projector), context),
            header=media.header,
            listed=listed,
            also=f"{ENCODER_VARIABLE}={quote(words)}",
        )
        self._operations = listed_operations(where, self._question, progress)
        if len(self._operations.graphs) != len(media.need.parts):
            raise BoardError(f"its program did not list what {media.need.projector} computes")

    @property
    def need(self) -> MediaNeed:
        """With what llama.cpp itself allocates for the largest graph."""
        return _with_largest_graph(self._media.need, self._operations)

    def seconds(self) -> Expected:
        """Return the time of all passes, after timing what is not known yet."""
        found = operation_times(
            *(self._where, self._binary, self._question, self._operations),
            *(self._plan, self._ready, self._progress),
        )
        taken = _passes_s(self._media.need, self._operations, found)
        if taken is None:
            raise BoardError("not all of its operations could be timed; fit continues next time")
        return taken


def known_encoder(
    where: ReachedBoard, media: MediaQuestion, plan: Plan
) -> tuple[MediaNeed, Expected | None]:
    """Return what an encoder takes of memory and time, as it was listed and timed there before.

    Nothing is timed: without a list, the memory is as estimated, and the time is unknown.
    """
    try:
        binary = where.binaries[PERCEIVING_PROGRAM]
        _, listed = _asked_and_kept(where, binary, media, plan)
        operations = read_cached(Operations, listed)
        if operations is None or len(operations.graphs) != len(media.need.parts):
            return media.need, None
        need = _with_largest_graph(media.need, operations)
        known = known_times(where, binary, plan, operations)
        return need, _passes_s(need, operations, known) if known else None
    except Exception:  # noqa: BLE001 - whatever is wrong with a forecast, the run goes on
        return media.need, None


def _asked_and_kept(
    where: ReachedBoard, binary: Binary, media: MediaQuestion, plan: Plan
) -> tuple[str, Path]:
    """Return what the program is told of an encoder, and where its list is kept."""
    words = encoder_question(media.need, plan, run_context(where, plan))
    identity = [words, binary.build_id, where.found.cpu_features, where.found.cores]
    return words, cached_path("operations/list", identity, media.header.content)


def _with_largest_graph(need: MediaNeed, operations: Operations) -> MediaNeed:
    return need.with_graph(max(each.compute_bytes for each in operations.graphs))


def _passes_s(need: MediaNeed, operations: Operations, found: OperationTimes) -> Expected | None:
    counts = [each.count for each in need.parts]
    return encoder_from_operations(operations, found.times, counts)


def encoder_of(
    where: Session, media: MediaQuestion, plan: Plan, progress: Progress
) -> EncoderTimer | PredictionNote:
    """Return an encoder whose program has listed what it computes, or a note of why it has not."""
    return found_or_note(
        lambda: EncoderTimer(where, media, plan, progress), where, "encoder not timed"
    )


def with_media(
    found: Prediction,
    media: MediaNeed | None,
    facts: DeclaredSpecs,
    resources: BoardResources,
    *,
    threads: int | None,
    timed: Expected | None = None,
    compute: Compute | None = None,
    estimated: Compute | None = None,
) -> Prediction:
    """Add the encoder to what is expected until the first token.

    The projector is read when the program starts, and displaces weights where both do not fit.

    Args:
        timed: what the encoder takes, by its operations; none where they were not timed.
        compute: of the model, as it was timed on the board; none where it was not.
        estimated: the same from the board's facts.
    """
    if media is None or found.verdict in ("cannot run", "unknown"):
        return found
    measured = 1.0
    if compute is not None and estimated is not None and compute.source == "operations":
        measured = compute.prompt_token_s.value / estimated.prompt_token_s.value
    taken = timed or encoder_s(media, facts, threads=threads, measured=measured)
    reading = Expected.nothing()
    if resources.storage is not None:
        reading = resources.storage.cold_time_s(media.weights_bytes)
        if found.verdict == "fits" and found.memory is not None:
            reading += resources.storage.time_s(found.memory.evicted_bytes)
    source = "operations" if timed else "roofline" if taken else "unknown"
    return found.model_copy(
        update={
            "media": MediaForecast(need=media, encoder_s=taken, compute=source),
            "load_s": found.load_s and found.load_s + reading,
            "ttft_s": found.ttft_s + reading + taken if found.ttft_s and taken else None,
        }
    )
