"""The trace that an engine writes on the board: its values, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from armload.core.errors import DataError
from armload.core.json_lines import is_whole, whole_lines
from armload.core.values import LEAVES, Count, Finite, Leaves, Value, parse_json


class Weights(Value):
    """How an engine held its weights, from one step on, as its trace tells.

    Attributes:
        weights: ``streamed``; ``mapped`` where that was wanted and is not possible.
        before_step: the number of the first step that it holds for.
        reason: why they are not streamed.
        requested_bytes: to stay in memory; none where the program chose.
        available_bytes: of memory, before anything was held.
        weights_bytes: that one pass over the model reads, in whole pages.
        resident_bytes: of these, chosen to stay in memory.
        locked_bytes: of these, locked with ``mlock``.
        anonymous_bytes: of these, in anonymous memory without a lock: locking is not permitted.
        cached_bytes: of these, left in the page cache, because of swap neither was possible.
        released_bytes: given up because memory ran short.
        window_bytes: read ahead of the computation at most.
        expert_bytes: of ``weights_bytes``, of all experts of a mixture; a token uses a few of them.
        expert_slot_bytes: of these, that stay in memory when all slots are filled.
        expert_held_bytes: of slots, that are filled.
        expert_window_bytes: through which the other experts pass.
        lock_refused: ``RLIMIT_MEMLOCK``, or a kernel that cannot lock, stopped the locking.
        reads: ``direct`` into the program's own memory, or ``buffered`` by the page cache; ``both``
            while the program compares them.
        reads_because: why the program reads so; empty while it compares.
        direct_bytes_per_s, buffered_bytes_per_s: what the comparison found; 0 without one.
    """

    weights: Literal["streamed", "mapped"]
    before_step: Count
    reason: str = ""
    requested_bytes: Count | None = None
    available_bytes: Count = 0
    weights_bytes: Count = 0
    resident_bytes: Count = 0
    locked_bytes: Count = 0
    anonymous_bytes: Count = 0
    cached_bytes: Count = 0
    released_bytes: Count = 0
    window_bytes: Count = 0
    expert_bytes: Count = 0
    expert_slot_bytes: Count = 0
    expert_held_bytes: Count = 0
    expert_window_bytes: Count = 0
    lock_refused: bool = False
    reads: Literal["direct", "buffered", "both"] = "both"
    reads_because: str = ""
    direct_bytes_per_s: Count = 0
    buffered_bytes_per_s: Count = 0

    @property
    def held_bytes(self) -> int:
        """Return how much stays in memory."""
        return self.locked_bytes + self.anonymous_bytes + self.cached_bytes

    @property
    def streamed_bytes(self) -> int:
        """Return how much one pass over the model reads from storage, without experts."""
        if self.weights == "mapped":
            return 0
        dense = self.weights_bytes - self.expert_bytes
        return max(0, dense - (self.held_bytes - self.expert_held_bytes))


TokenCount = Annotated[Count, Field(le=1 << 24)]
"""Tokens of one step."""

_MOST_OUTPUT_TOKENS = 1 << 24


class Sensed(Value):
    """What ``toolchains/native/armload_sensors.h`` shows of a board at one moment.

    Attributes:
        cpu_khz: frequency of each core that reports one.
        device_khz: of each clock that was to be read, 0 for no answer; in the order of
            ``armload.boards.device_clocks.sampled_clocks``.
        celsius: of the hottest sensor that counts; none where there is none.
    """

    cpu_khz: tuple[Count, ...] = ()
    device_khz: tuple[Count, ...] = ()
    celsius: Finite | None = None


Stage = Literal["preprocessing", "encoder"]
"""What an image or a sound goes through before the model."""


class Step(Sensed):
    """One call into the engine, timed on the board.

    Attributes:
        step: number from 0.
        model: 0 for the main one; a draft model has a number of its own.
        sequences: that took part; a server has one for each slot.
        tokens: tokens that went through the model in this step, the sum of the next three; that
            of a restored context, which its program computes again, is none of them.
        prompt_tokens: of these, tokens that this model did not sample.
        generated_tokens: of these, tokens that were sampled from an earlier step.
        speculated_tokens: of these, drafts to be verified.
        accepted_tokens: drafts of the steps before that were accepted; they are not among
            this step's tokens.
        media_tokens: of ``prompt_tokens``, those of images and sounds.
        stage: of an image or a sound before the model, without tokens; none for the model's steps.
        start_ns, end_ns: on the board's ``CLOCK_MONOTONIC``.
        major_faults: page faults that had to wait for storage, in this step, all threads.
        read_bytes: bytes that the process had fetched from storage in this step; none
            where the kernel does not count them.
        rss_bytes: resident memory at the end of the step.
        cpu_ns: CPU time of all threads in this step.
        involuntary_switches: times that a thread was made to give way in this step; none where
            counting them would have cost too much.
        cpu_khz, device_khz, celsius: at the end of the step.
        storage_wait_ns: time that the computation waited for streamed weights; none without.
        locked_bytes: memory that the process had locked (``VmLck``) at the end of the step, with
            streamed weights.
        expert_bytes: of streamed experts, that this step used; each counts once.
        missed_bytes: of experts, that it read from storage.
        sync_ns: where several boards compute each step, time that this one spent exchanging parts
            of it and waiting for the others; none elsewhere, as the next two.
        sent_bytes, received_bytes: to and from all other boards.
    """

    step: Count
    model: Count = 0
    sequences: Count = 1
    tokens: TokenCount
    prompt_tokens: TokenCount = 0
    generated_tokens: TokenCount = 0
    speculated_tokens: TokenCount = 0
    accepted_tokens: TokenCount = 0
    media_tokens: TokenCount = 0
    stage: Stage | None = None
    start_ns: Count
    end_ns: Count
    major_faults: Count
    read_bytes: Count | None = None
    rss_bytes: Count
    cpu_ns: Count
    involuntary_switches: Count | None = None
    storage_wait_ns: Count | None = None
    locked_bytes: Count | None = None
    expert_bytes: Count | None = None
    missed_bytes: Count | None = None
    sync_ns: Count | None = None
    sent_bytes: Count | None = None
    received_bytes: Count | None = None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.end_ns < self.start_ns:
            raise ValueError("end_ns is before start_ns")
        if self.tokens < self.prompt_tokens + self.generated_tokens + self.speculated_tokens:
            raise ValueError("tokens is less than the sum of its kinds")
        return self

    @property
    def output_tokens(self) -> int:
        """Tokens of the text that this step shows: those sampled before, and accepted drafts."""
        return self.generated_tokens + self.accepted_tokens

    @property
    def duration_s(self) -> float:
        """Wall time of the step."""
        return (self.end_ns - self.start_ns) / 1e9


def wall_time_s(steps: Iterable[Step]) -> float:
    """Return the wall time of some steps, to the nanosecond."""
    return sum(step.end_ns - step.start_ns for step in steps) / 1e9


class Trace(Value):
    """The trace's first line.

    Attributes:
        format: version of the trace's format.
        clock: name of the clock.
        source: ``engine`` where our library wrote it inside the engine, ``watch`` where our
            program wrote it beside a foreign one.
        engine_commit: upstream's commit or version, compiled in; empty under ``watch``.
        page_bytes: the kernel's page size.
        threads: that the engine decodes with; none under ``watch``.
        whole_writes: each write of a watched program was seen apart from its neighbours; none
            in an engine's own trace.
        start_ns: when the process began, on the same clock.
        khz_cores: numbers of the cores whose frequencies the steps hold, in their order and such as
            ``0-3,6``; empty where none reports one, none in a trace that was written before.
        allowed_cores: the cores that the program could use; none where that is not known.
        last_accepted_tokens: drafts of the main model's last step that were accepted.
        weights: how they were held, where streaming was wanted; a further entry each time that
            this changed.
    """

    format: Annotated[Count, LEAVES]
    clock: Annotated[str, Leaves("clock")]
    source: Annotated[Literal["engine", "watch"], LEAVES] = "engine"
    engine_commit: Annotated[str, Leaves("engine commit")] = ""
    page_bytes: Annotated[Count, Field(ge=1), LEAVES]
    threads: Annotated[Annotated[Count, Field(ge=1)] | None, LEAVES] = None
    whole_writes: Annotated[bool | None, LEAVES] = None
    start_ns: Annotated[Count, LEAVES]
    khz_cores: Annotated[str | None, Leaves("cores")] = None
    allowed_cores: Annotated[str | None, Leaves("cores")] = None
    last_accepted_tokens: Annotated[TokenCount, LEAVES] = 0
    weights: Annotated[tuple[Weights, ...], Leaves("numbers")] = ()


class Accepted(Value):
    """Drafts of a model's last step that were accepted: there is no step after it to say so."""

    model: Count
    accepted_tokens: TokenCount


def read_trace(path: Path) -> tuple[Trace | None, tuple[Step, ...]]:
    """Read ``trace.jsonl``: its header, and the steps in the order of time.

    A line that was cut off, with the program or by full storage, is left out. A file that is
    missing or empty, as when the engine ended before it began, gives ``(None, ())``.
    """
    steps: list[Step] = []
    last: list[Accepted] = []
    weights: list[Weights] = []

    def take(content: dict[str, Any]) -> None:
        if "step" in content:
            steps.append(Step.model_validate(content))
        elif "weights" in content:
            weights.append(Weights.model_validate(content))
        else:
            last.append(Accepted.model_validate(content))

    header = read_lines(path, take)
    if sum(step.output_tokens for step in steps) > _MOST_OUTPUT_TOKENS:
        raise DataError(
            f"{path}: it holds more than {_MOST_OUTPUT_TOKENS:,} output tokens.",
            "The board's storage may be damaged. Run it again.",
        )
    accepted = sum(each.accepted_tokens for each in last if each.model == 0)
    if header is not None:
        found = {"last_accepted_tokens": accepted, "weights": tuple(weights)}
        header = header.model_copy(update=found)
    return header, tuple(steps)


def read_lines(path: Path, take: Callable[[dict[str, Any]], None]) -> Trace | None:
    """Return a trace's header; none where there is none. ``take`` is given each line after it."""
    try:
        lines = whole_lines(path.read_bytes()).split(b"\n")
    except FileNotFoundError:
        return None
    header: Trace | None = None
    for number, line in enumerate(lines, start=1):
        if not is_whole(line):
            continue
        try:
            content = parse_json(line)
            if header is None:
                header = Trace.model_validate(content)
            else:
                take(content)
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{path}, line {number}: not a trace that this armload can read.",
                "The file was changed, or written by a newer armload. Update armload, or "
                "restore the file.",
            ) from error
    return header
