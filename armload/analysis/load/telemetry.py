"""What the board did while it served a load, on the clock of the requests.

The server's steps are stamped with the board's monotonic clock and the requests with this
machine's; a measured offset makes one of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from armload.analysis.columns import ANY, Cores, compute_s, is_lowered, storage_rate
from armload.analysis.energy import PowerLine
from armload.analysis.load.latency import phases_of
from armload.analysis.load.records import LoadPoint
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.server_metrics import ServerSample
from armload.analysis.summary import generating
from armload.core.values import Value, format_bytes, format_seconds
from armload.engines.trace import Sensed, Step, Trace, wall_time_s


class BoardSample(Sensed):
    """The board at one moment of a load; what it does not tell is none, or empty.

    Attributes:
        at_s: on the board's monotonic clock.
    """

    at_s: float
    memory_available_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class ObservedPoint:
    """One point of a load, with what was recorded in its time.

    Attributes:
        records: of its requests.
        slots, context_tokens: of the server, and of each slot; none where they are not known.
        header, steps: the server's trace; none and empty without one.
        samples: of the board, likewise.
        power: of its power meter, likewise; of a stage, those of all stages.
        next_stage_s: when the next stage begins, on the clock of the requests; none without one.
        subtracts_idle: energies are to be without what the idle board draws.
        server: its own metrics, likewise.
        cores: that the server could use.
        storage_read_bytes_per_s: what the board's storage gives, where that is known.
    """

    point: LoadPoint
    records: Sequence[EndedRequest]
    slots: int | None = None
    context_tokens: int | None = None
    header: Trace | None = None
    steps: tuple[Step, ...] = ()
    samples: tuple[BoardSample, ...] = ()
    power: tuple[PowerLine, ...] = ()
    next_stage_s: float | None = None
    subtracts_idle: bool = False
    server: tuple[ServerSample, ...] = ()
    cores: Cores = ANY
    storage_read_bytes_per_s: int | None = None

    @property
    def board_at_zero_s(self) -> float:
        """The board's clock at the beginning of the load; its steps need it, and have it."""
        clock = self.point.clock
        return self.point.began_client_s + (clock.board_minus_client_s if clock else 0.0)

    @property
    def counted(self) -> list[EndedRequest]:
        """The requests after the warm-up."""
        return [record for record in self.records if not record.is_warmup]

    @property
    def window_s(self) -> tuple[float, float]:
        """From the first request that was sent until a slot took the last: the time under load.

        Of a single request, its whole time.
        """
        sent = [phases for record in self.counted if (phases := phases_of(record)) is not None]
        if not sent:
            return (0.0, 0.0)
        first_s = min(phases.sent_s for phases in sent)
        last_s = max(phases.sent_s if phases.slot_s is None else phases.slot_s for phases in sent)
        return (first_s, max(phases.end_s for phases in sent) if len(sent) == 1 else last_s)

    def seconds_of(self, step: Step) -> tuple[float, float]:
        """Return a step's start and end on the clock of the requests."""
        zero_s = self.board_at_zero_s
        return step.start_ns / 1e9 - zero_s, step.end_ns / 1e9 - zero_s

    def steps_within(self, from_s: float, to_s: float) -> list[Step]:
        """Return the main model's steps that began in a time on the clock of the requests."""
        return [
            step
            for step in self.steps
            if step.model == 0 and from_s <= self.seconds_of(step)[0] < to_s
        ]


class Telemetry(Value):
    """What the board did from a point's first request until a slot took its last.

    Attributes:
        slots: of the server.
        busy_slots: on average over the time.
        all_busy_share: of the time in which all slots were busy.
        decode_step_s: median of the steps that processed no prompt; none without such steps.
        sequences_per_step: that took part in these, on average.
        prompt_share: of the time that steps took which processed prompts.
        storage_share: of the steps' time that went into waiting for storage.
        read_bytes: from storage.
        throttled_share: of the steps' time at a frequency below the highest seen.
        celsius_max, memory_available_min_bytes: over the samples, and the steps.

    Each is none where nothing tells.
    """

    slots: int | None = None
    busy_slots: float | None = None
    all_busy_share: float | None = None
    decode_step_s: float | None = None
    sequences_per_step: float | None = None
    prompt_share: float | None = None
    storage_share: float | None = None
    read_bytes: int | None = None
    throttled_share: float | None = None
    celsius_max: float | None = None
    memory_available_min_bytes: int | None = None

    def facts(self) -> list[tuple[str, str]]:
        """Return what is known, with labels."""
        slots = step = ""
        if self.slots is not None and self.busy_slots is not None:
            slots = f"{self.busy_slots:.1f} of {self.slots} on average"
            if self.all_busy_share is not None:
                slots += f", all {self.all_busy_share:.0%} of the time"
        if self.decode_step_s is not None and self.sequences_per_step is not None:
            step = f"{format_seconds(self.decode_step_s)} (median), "
            step += f"{self.sequences_per_step:.1f} requests each"
        warmest, free = self.celsius_max, self.memory_available_min_bytes
        facts = [
            ("busy slots", slots),
            ("decode step", step),
            ("steps with prompts", _share_of_time(self.prompt_share)),
            ("waiting for storage", _share_of_time(self.storage_share)),
            ("read from storage", format_bytes(self.read_bytes) if self.read_bytes else ""),
            ("below the highest frequency", _share_of_time(self.throttled_share)),
            ("highest temperature", "" if warmest is None else f"{warmest:.0f} °C"),
            ("least free memory", "" if free is None else format_bytes(free)),
        ]
        return [(label, fact) for label, fact in facts if fact]


def _share_of_time(share: float | None) -> str:
    return "" if share is None else f"{share:.0%} of the steps' time"


def telemetry_of(observed: ObservedPoint) -> Telemetry:
    """Return what is known of the board at a point."""
    from_s, to_s = observed.window_s
    steps = observed.steps_within(from_s, to_s)
    slots = observed.slots or max((step.sequences for step in observed.steps), default=None)
    busy = list(busy_slots(observed.records, from_s, to_s))
    length_s = sum(end_s - start_s for start_s, end_s, _ in busy)
    known: dict[str, float | int | None] = {"slots": slots}
    if length_s > 0 and observed.point.stage is None:  # of a stage, others are in slots, too
        known["busy_slots"] = sum((end - start) * count for start, end, count in busy) / length_s
        if slots is not None:
            full_s = sum(end - start for start, end, count in busy if count >= slots)
            known["all_busy_share"] = full_s / length_s
    warm = [sample.celsius for sample in observed.samples]
    warm += [step.celsius for step in steps]
    free = [sample.memory_available_bytes for sample in observed.samples]
    known["celsius_max"] = max((each for each in warm if each is not None), default=None)
    known["memory_available_min_bytes"] = min(
        (each for each in free if each is not None), default=None
    )
    return Telemetry.model_validate({**known, **_of_steps(observed, steps)})


def busy_slots(
    records: Sequence[EndedRequest], from_s: float, to_s: float
) -> Iterator[tuple[float, float, int]]:
    """Yield the pieces of a time in which the number of requests in slots stayed the same."""
    changes: Counter[float] = Counter()
    for record in records:
        phases = phases_of(record)
        if phases is not None and phases.slot_s is not None:
            changes[phases.slot_s] += 1
            changes[phases.end_s] -= 1
    at_s, count = from_s, 0
    for change_s, by in sorted(changes.items()):
        until_s = min(max(change_s, from_s), to_s)
        if until_s > at_s and by:
            yield at_s, until_s, count
            at_s = until_s
        count += by
    if to_s > at_s:
        yield at_s, to_s, count


def speed_lost(step: Step, cores: Cores, highest_khz: int) -> float:
    """Return by how much the cores were slower in a step than they could be; 0 for not at all."""
    khz = cores.khz(step)
    return 1 - khz / highest_khz if is_lowered(khz, highest_khz) else 0.0


def _of_steps(observed: ObservedPoint, steps: Sequence[Step]) -> dict[str, float | int | None]:
    timed = [step for step in steps if step.duration_s > 0]
    if not timed:
        return {}
    all_s = wall_time_s(timed)
    decode = generating(timed)
    highest_khz = max(observed.cores.khz(step) for step in observed.steps)
    rate = storage_rate(timed, observed.storage_read_bytes_per_s)
    threads = (observed.header and observed.header.threads) or 1
    waited_s = sum(step.duration_s - compute_s(step, rate, threads) for step in timed)
    counts_bytes = any(step.read_bytes is not None for step in timed)
    return {
        "decode_step_s": median(step.duration_s for step in decode) if decode else None,
        "sequences_per_step": fmean(step.sequences for step in decode) if decode else None,
        "prompt_share": wall_time_s(step for step in timed if step.prompt_tokens) / all_s,
        "storage_share": waited_s / all_s,
        "read_bytes": sum(step.read_bytes or 0 for step in timed) if counts_bytes else None,
        "throttled_share": sum(
            step.duration_s for step in timed if speed_lost(step, observed.cores, highest_khz)
        )
        / all_s
        if highest_khz
        else None,
    }
