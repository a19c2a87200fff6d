"""A server in slots, simulated step by step, whose every cause of slowness is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from armload.analysis.load.records import ClockOffset, LoadPoint, RequestRecord, ServerTimings
from armload.analysis.load.telemetry import BoardSample, ObservedPoint
from armload.engines.trace import Step
from tests.unit.samples import trace

BEGAN_CLIENT_S, BOARD_MINUS_CLIENT_S = 1000.0, 512.25
HIGHEST_KHZ = 1_800_000
THREADS = 2


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request: when it comes, and how many tokens it has."""

    at_s: float
    prompt: int = 16
    answer: int = 20
    late_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A server.

    Attributes:
        step_s, sequence_s, prompt_token_s: what a step takes, and what each generated and each
            prompt token adds.
        read_bytes, khz: of a step that begins at a time.
    """

    slots: int = 4
    step_s: float = 0.1
    sequence_s: float = 0.01
    prompt_token_s: float = 0.004
    batch_tokens: int = 256
    storage_bytes_per_s: int = 200_000_000
    read_bytes: Callable[[float], int] = lambda _: 0
    khz: Callable[[float], int] = lambda _: HIGHEST_KHZ

    def serve(self, asked: Sequence[Asked], *, rate: float | None = None) -> ObservedPoint:
        """Answer the requests, and return what is recorded of that."""
        waiting = [_Taken(number=number, asked=each) for number, each in enumerate(asked)]
        every = tuple(waiting)
        steps: list[Step] = []
        active: list[_Taken] = []
        now_s = 0.0
        while waiting or active:
            while waiting and waiting[0].sent_s <= now_s and len(active) < self.slots:
                active.append(waiting.pop(0))
                active[-1].slot_s = now_s
            if not active:
                now_s = waiting[0].sent_s
                continue
            step = self._step(len(steps), now_s, active)
            steps.append(step)
            now_s = (step.end_ns / 1e9) - BEGAN_CLIENT_S - BOARD_MINUS_CLIENT_S
            for taken in active:
                taken.take(now_s)
            active = [taken for taken in active if not taken.is_done]
        return ObservedPoint(
            point=LoadPoint(
                rate=rate,
                requests=len(every),
                started_utc="2026-11-21T02:15:00+00:00",
                began_client_s=BEGAN_CLIENT_S,
                clock=ClockOffset(
                    board_minus_client_s=BOARD_MINUS_CLIENT_S, error_s=0.001, boot_id="one"
                ),
            ),
            records=tuple(taken.record() for taken in every),
            slots=self.slots,
            header=trace(THREADS),
            steps=tuple(steps),
            samples=tuple(self._samples(now_s)),
            storage_read_bytes_per_s=self.storage_bytes_per_s,
        )

    def _step(self, number: int, now_s: float, active: Iterable[_Taken]) -> Step:
        room, generated, prompt, sequences = self.batch_tokens, 0, 0, 0
        for taken in active:
            taken.in_step = 0
            if taken.prompt_left == 0:
                generated, sequences, room = generated + 1, sequences + 1, room - 1
        for taken in active:
            if taken.prompt_left and room:
                taken.in_step = min(taken.prompt_left, room)
                prompt, sequences, room = (
                    prompt + taken.in_step,
                    sequences + 1,
                    room - taken.in_step,
                )
        khz, read_bytes = self.khz(now_s), self.read_bytes(now_s)
        compute_s = self.step_s + generated * self.sequence_s + prompt * self.prompt_token_s
        compute_s *= HIGHEST_KHZ / khz
        start_ns = round((BEGAN_CLIENT_S + BOARD_MINUS_CLIENT_S + now_s) * 1e9)
        duration_s = compute_s + read_bytes / self.storage_bytes_per_s
        return Step(
            step=number,
            sequences=sequences,
            tokens=prompt + generated,
            prompt_tokens=prompt,
            generated_tokens=generated,
            start_ns=start_ns,
            end_ns=start_ns + round(duration_s * 1e9),
            major_faults=0,
            read_bytes=read_bytes,
            rss_bytes=100_000_000,
            cpu_ns=round(THREADS * compute_s * 1e9),
            cpu_khz=(khz, khz),
            celsius=60.0,
        )

    def _samples(self, until_s: float) -> Iterable[BoardSample]:
        for second in range(int(until_s) + 1):
            yield BoardSample(
                at_s=BEGAN_CLIENT_S + BOARD_MINUS_CLIENT_S + second,
                memory_available_bytes=1_500_000_000 - 1_000_000 * second,
                cpu_khz=(self.khz(second), self.khz(second)),
                celsius=50.0 + min(30.0, second / 4),
            )


@dataclass(kw_only=True)
class _Taken:
    number: int
    asked: Asked
    slot_s: float = 0.0
    prompt_done: int = 0
    in_step: int = 0
    chunks: list[tuple[float, int | None]] = field(default_factory=list)

    @property
    def sent_s(self) -> float:
        return self.asked.at_s + self.asked.late_s

    @property
    def prompt_left(self) -> int:
        return self.asked.prompt - self.prompt_done

    @property
    def is_done(self) -> bool:
        return len(self.chunks) == self.asked.answer

    def take(self, at_s: float) -> None:
        self.prompt_done += self.in_step
        if self.prompt_left == 0:
            self.chunks.append((at_s, len(self.chunks) + 1))

    def record(self) -> RequestRecord:
        first_s, end_s = self.chunks[0][0], self.chunks[-1][0]
        return RequestRecord(
            number=self.number,
            scheduled_s=self.asked.at_s,
            begun_s=self.sent_s,
            sent_s=self.sent_s,
            header_s=self.slot_s,
            chunks=tuple(self.chunks),
            end_s=end_s,
            outcome="ok",
            status=200,
            prompt_tokens=self.asked.prompt,
            generated_tokens=self.asked.answer,
            cached_tokens=0,
            limit_tokens=self.asked.answer,
            finish_reason="length",
            timings=ServerTimings(
                prompt_tokens=self.asked.prompt,
                prompt_ms=1000 * (first_s - self.slot_s),
                generated_tokens=self.asked.answer,
                generated_ms=1000 * (end_s - first_s),
            ),
        )


def records_of(observed: ObservedPoint) -> list[RequestRecord]:
    """The whole records of a simulated point, which has no columns instead."""
    records = [each for each in observed.records if isinstance(each, RequestRecord)]
    assert len(records) == len(observed.records)
    return records
