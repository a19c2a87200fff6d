"""Where the time of a request went, from the steps of the server in that time.

A step of a server does work for several requests at once. What a request pays in it for its own
tokens, for other requests, and for a slow board is told apart by what such a step usually takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

from armload.analysis.columns import compute_s, storage_rate
from armload.analysis.load.latency import phases_of
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.telemetry import ObservedPoint, speed_lost
from armload.analysis.summary import generating
from armload.core.values import Value
from armload.engines.trace import Step

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


class Parts(Value):
    """The seconds of a request, or of a phase of it, by what they went into.

    Attributes:
        late_s: the client began with it after its time.
        held_s: the client held it back, with as many requests in flight as there may be.
        queued_s: it waited for a slot.
        own_s: its prompt and its tokens, as they usually take with no other request.
        sharing_s: its steps also generated tokens of other requests.
        blocked_s: its steps also processed prompts of other requests.
        paging_s: its steps waited longer for storage than steps usually do.
        throttling_s: its steps ran at a lower frequency.
        other_s: the rest: between steps, on the way, and unexplained.
    """

    late_s: float = 0.0
    held_s: float = 0.0
    queued_s: float = 0.0
    own_s: float = 0.0
    sharing_s: float = 0.0
    blocked_s: float = 0.0
    paging_s: float = 0.0
    throttling_s: float = 0.0
    other_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The sum, which is the latency from the scheduled time."""
        return float(sum(seconds for _, seconds in self))

    def plus(self, other: Parts) -> Parts:
        return Parts(**{name: seconds + getattr(other, name) for name, seconds in self})


@dataclass(frozen=True, kw_only=True)
class LatencyBreakdown:
    """A request's seconds until the first part of the answer, and after it."""

    first: Parts
    rest: Parts

    @property
    def whole(self) -> Parts:
        return self.first.plus(self.rest)


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """One row per step of the main model, in order; times on the clock of the requests."""

    start_s: Floats
    end_s: Floats
    paging_s: Floats
    throttling_s: Floats
    work_s: Floats
    usual_s: Floats
    prompt_tokens: Floats
    generated_tokens: Floats


class Accounting:
    """Tells where the time of a point's requests went."""

    def __init__(self, observed: ObservedPoint) -> None:
        self._observed = observed
        self._steps = [
            step for step in observed.steps if step.model == 0 and step.end_ns > step.start_ns
        ]

    def of(self, record: EndedRequest) -> LatencyBreakdown | None:
        """Return where a request's time went; none for one that was never sent."""
        phases = phases_of(record)
        if phases is None:
            return None
        first = Parts(
            late_s=phases.late_s,
            held_s=phases.held_s,
            queued_s=phases.queued_s,
            other_s=phases.sent_s - phases.begun_s,
        )
        rest = Parts()
        if phases.slot_s is not None:
            first_s = phases.end_s if phases.first_s is None else phases.first_s
            first = first.plus(self._prompt(record, phases.slot_s, first_s))
            rest = self._generation(first_s, phases.end_s)
        return LatencyBreakdown(first=first, rest=rest)

    def answered(self) -> Iterator[tuple[EndedRequest, LatencyBreakdown]]:
        """Yield the answered requests after the warm-up, with where the time of each went."""
        for record in self._observed.counted:
            if record.outcome == "ok" and (account := self.of(record)) is not None:
                yield record, account

    @cached_property
    def alone_s(self) -> float | None:
        """A usual decode step with the fewest requests that were seen in one."""
        return next(iter(self._usual_s.values()), None)

    @property
    def reads_steadily(self) -> bool:
        """Whether a usual decode step spends most of its time waiting for storage."""
        return self.alone_s is not None and self.usual_storage_s >= self.alone_s / 2

    @cached_property
    def usual_storage_s(self) -> float:
        """The usual wait for storage of a step that processes no prompt."""
        decode = generating(self._steps)
        return median(map(self._storage_s, decode)) if decode else 0.0

    def _prompt(self, record: EndedRequest, from_s: float, to_s: float) -> Parts:
        import numpy as np

        part = self._overlap(from_s, to_s)
        if part is None:
            return Parts(own_s=to_s - from_s)
        rows, share = part
        columns = self._columns
        prompt = columns.prompt_tokens[rows]
        work_s = columns.work_s[rows] * share
        processed = float((prompt * share).sum())
        own_tokens = record.new_prompt_tokens
        own_share = min(1.0, own_tokens / processed) if own_tokens and processed else 1.0
        tokens = prompt + columns.generated_tokens[rows]
        # An encoder's step has no tokens, and is an image's, of a prompt.
        of_prompts = np.where(tokens > 0, prompt / np.maximum(tokens, 1), 1.0)
        prompts_s = float((work_s * of_prompts).sum())
        paging_s = float((columns.paging_s[rows] * share).sum())
        throttling_s = float((columns.throttling_s[rows] * share).sum())
        sharing_s = float((work_s * (1 - of_prompts)).sum())
        return Parts(
            own_s=prompts_s * own_share,
            blocked_s=prompts_s * (1 - own_share),
            sharing_s=sharing_s,
            paging_s=paging_s,
            throttling_s=throttling_s,
            other_s=to_s - from_s - prompts_s - sharing_s - paging_s - throttling_s,
        )

    def _generation(self, from_s: float, to_s: float) -> Parts:
        import numpy as np

        part = self._overlap(from_s, to_s)
        if part is None or self.alone_s is None:
            return Parts(own_s=to_s - from_s)
        rows, share = part
        columns = self._columns
        work_s = columns.work_s[rows]
        usual_s = np.minimum(columns.usual_s[rows], work_s)
        own_s = np.minimum(self.alone_s, work_s)
        blocked_s = np.where(columns.prompt_tokens[rows] > 0, work_s - usual_s, 0.0)
        known = {
            "own_s": own_s,
            "sharing_s": np.maximum(usual_s - own_s, 0.0),
            "blocked_s": blocked_s,
            "paging_s": columns.paging_s[rows],
            "throttling_s": columns.throttling_s[rows],
        }
        sums = {name: float((seconds * share).sum()) for name, seconds in known.items()}
        return Parts(**sums, other_s=to_s - from_s - sum(sums.values()))

    def _overlap(self, from_s: float, to_s: float) -> tuple[slice, Floats] | None:
        """Return the steps in a time, and which share of each lies in it."""
        import numpy as np

        if not self._steps:
            return None
        columns = self._columns
        begin = int(np.searchsorted(columns.end_s, from_s, side="right"))
        end = int(np.searchsorted(columns.start_s, to_s, side="left"))
        if begin >= end:
            return None
        rows = slice(begin, end)
        start_s, end_s = columns.start_s[rows], columns.end_s[rows]
        inside_s = np.minimum(end_s, to_s) - np.maximum(start_s, from_s)
        share: Floats = inside_s / (end_s - start_s)
        return rows, share

    @cached_property
    def _usual_s(self) -> dict[int, float]:
        """What a step takes that processes no prompt, by the number of its tokens, fewest first.

        Throttled steps are not usual, unless all are.
        """
        decode = generating(self._steps)
        full_speed = [step for step in decode if not self._lost_speed(step)]
        groups: defaultdict[int, list[float]] = defaultdict(list)
        for step in full_speed or decode:
            groups[step.generated_tokens].append(step.duration_s)
        return {tokens: median(its_s) for tokens, its_s in sorted(groups.items())}

    @cached_property
    def _highest_khz(self) -> int:
        return max((self._observed.cores.khz(step) for step in self._steps), default=0)

    @cached_property
    def _storage_rate(self) -> float:
        return storage_rate(self._steps, self._observed.storage_read_bytes_per_s)

    def _lost_speed(self, step: Step) -> float:
        return speed_lost(step, self._observed.cores, self._highest_khz)

    def _storage_s(self, step: Step) -> float:
        header = self._observed.header
        threads = (header.threads if header else None) or 1
        return step.duration_s - compute_s(step, self._storage_rate, threads)

    @cached_property
    def _columns(self) -> _Columns:
        import numpy as np

        times = np.array([self._observed.seconds_of(step) for step in self._steps])
        duration_s = times[:, 1] - times[:, 0]
        storage_s = np.array([self._storage_s(step) for step in self._steps])
        paging_s = np.maximum(storage_s - self.usual_storage_s, 0.0)
        lost = np.array([self._lost_speed(step) for step in self._steps])
        usual_s = np.array([self._usual_of(step) for step in self._steps])
        # What a lower frequency costs a step that waits for memory is less than in proportion.
        plain = np.array([step.prompt_tokens == 0 for step in self._steps])
        excess_s = np.maximum(duration_s - paging_s - usual_s, 0.0)
        throttling_s = (duration_s - paging_s) * lost
        throttling_s = np.where(plain, np.minimum(throttling_s, excess_s), throttling_s)
        return _Columns(
            start_s=times[:, 0],
            end_s=times[:, 1],
            paging_s=paging_s,
            throttling_s=throttling_s,
            work_s=duration_s - paging_s - throttling_s,
            usual_s=usual_s,
            prompt_tokens=np.array([step.prompt_tokens for step in self._steps], dtype=float),
            generated_tokens=np.array([step.generated_tokens for step in self._steps], dtype=float),
        )

    def _usual_of(self, step: Step) -> float:
        """Return what the generated tokens of a step usually take without a prompt beside them."""
        usual = self._usual_s
        if not usual:
            return 0.0
        nearest = min(usual, key=lambda tokens: abs(tokens - step.generated_tokens))
        return usual[nearest] if step.generated_tokens else 0.0
