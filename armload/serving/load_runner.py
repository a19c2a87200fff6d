"""Load on a service, point by point, and the record of it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from armload import __version__
from armload.analysis.load.records import (
    ClockOffset,
    Load,
    LoadPoint,
    Objectives,
    Outcome,
    RateVerdict,
    RequestRecord,
)
from armload.analysis.statistics import Interval
from armload.core.errors import ConnectError, RunError
from armload.core.ids import new_id
from armload.core.progress import Progress
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.loads import LoadFolder
from armload.serving.point_runner import LiveView, PointRunner, TooManyFailedError
from armload.serving.scraping import Scraper
from armload.serving.target import LoadLevel, LoadTarget, StopCondition, keep_trace, sampled
from armload.serving.workload import Workload


class StoppingRule(Protocol):
    """Decides on a rate while it runs.

    Attributes:
        verdict: none before it is decided.
    """

    verdict: RateVerdict | None

    def goes_on(
        self, times: Sequence[float], records: Sequence[RequestRecord], now_s: float
    ) -> bool:
        """Return whether more requests are to be sent.

        Args:
            times: of all requests.
            records: of those that ended.
        """


class NothingSucceededError(RunError):
    """No request of a point succeeded.

    Attributes:
        outcomes: of its requests after the warm-up; empty if there were none.
    """

    def __init__(self, message: str, remedy: str, outcomes: Counter[Outcome]) -> None:
        super().__init__(message, remedy)
        self.outcomes = outcomes


class LoadRunner:
    """A load that is under way.

    Attributes:
        kept: its folder.
        scraper: of the service's own metrics.
        most_per_s: what the service answers at most, where that was measured before.

    Args:
        seed: of the schedule; the workload has its own.
        objectives: that its requests should stay within; none for none.
        finds_rate: the rates are chosen to find the highest that is sustained.
        percentiles: that the figures are to have; empty for the usual ones.
    """

    most_per_s: Interval | None = None

    def __init__(
        self,
        target: LoadTarget,
        workload: Workload,
        arrivals: Arrivals,
        seed: int,
        progress: Progress,
        objectives: Objectives | None = None,
        *,
        finds_rate: bool = False,
        percentiles: tuple[float, ...] = (),
    ) -> None:
        self._target = target
        self._workload = workload
        self._arrivals = arrivals
        self._seed = seed
        self._objectives = objectives
        self._finds_rate = finds_rate
        self._percentiles = percentiles
        self._progress = progress
        self.scraper = Scraper(target.url, target.api_key, progress)
        self._taken = 0
        self._sha = hashlib.sha256()
        self.kept: LoadFolder | None = None

    def run(
        self, paces: Sequence[LoadLevel], extent: StopCondition, repeats: int = 1
    ) -> LoadFolder:
        """Run a point for each pace, in order, and all again with other schedules.

        Raises:
            ArmloadError: the service has ended, or no request of a point succeeded; what was
                measured until then is kept.
        """
        for repeat in range(repeats):
            for pace in paces:
                kept, _ = self.point(pace, extent, draw=repeat)
        return kept

    def point(
        self,
        pace: LoadLevel,
        extent: StopCondition,
        *,
        draw: int = 0,
        judge: StoppingRule | None = None,
    ) -> tuple[LoadFolder, list[RequestRecord]]:
        """Run one point, and return the load with what became of the point's requests.

        Args:
            draw: each gives another schedule.
            judge: ends an open loop early, and says what it has shown.

        Raises:
            ArmloadError: as for ``run``.
        """
        times: tuple[float, ...] = ()
        seed = (self._seed + draw) % 2**32
        if pace.rate is not None:
            times = self._arrivals.schedule(
                pace.rate,
                duration_s=extent.duration_s,
                requests=extent.requests,
                seed=seed,
            )
            if extent.warmup_s:
                warmup = sum(each < extent.warmup_s for each in times)
                extent = extent.model_copy(update={"warmup": min(warmup, len(times) - 1)})
        kept = self.kept = self.kept or LoadFolder.begin_on(self._described(pace), self._target.job)
        number = len(kept.load.points)
        point = LoadPoint(
            rate=pace.rate,
            concurrency=pace.concurrency,
            max_concurrency=pace.max_concurrency,
            duration_s=extent.duration_s,
            requests=len(times) or extent.requests or 0,
            started_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            began_client_s=0.0,
            seed=seed if draw else None,
            is_under_way=True,
            clock=self._clock(),
        )

        def begun(began_s: float) -> None:
            known = point.model_copy(update={"began_client_s": began_s})
            kept.update(known, self._sha.hexdigest())

        kept.add_point(point)
        goes_on = None if judge is None else partial(judge.goes_on, times)
        live = LiveView(pace, (self._target.settings or {}).get("slots"))
        sending = PointRunner(self._target, extent, kept.add, begun, live, goes_on)
        total = len(times) or extent.requests
        try:
            with (
                self._observed(kept, number, live),
                self._progress.step(str(pace), total=total, unit="requests") as step,
                _short_collections(),
            ):
                asyncio.run(sending.send(self._take, times, pace, step))
        except TooManyFailedError:
            raise
        except (RunError, ConnectError) as error:
            point = point.model_copy(update={"service_ended": error.message})
            raise
        finally:
            is_judged = judge is not None and judge.verdict is not None
            known = {
                "requests": (0 if is_judged else len(times)) or len(sending.records),
                "verdict": judge.verdict if judge is not None else None,
                "began_client_s": sending.began_s,
                "is_under_way": False,
            }
            kept.update(point.model_copy(update=known), self._sha.hexdigest())
            self._keep_trace(kept, number, sending)
        measured = [record for record in sending.records if not record.is_warmup]
        if not any(record.outcome == "ok" for record in measured):
            raise _nothing_succeeded(self._target, pace, measured)
        return kept, sorted(sending.records, key=lambda record: record.number)

    def _take(self) -> CompletionRequest:
        ask = self._workload.ask(self._taken)
        self._taken += 1
        self._sha.update(ask.model_dump_json().encode())
        return ask

    def _described(self, pace: LoadLevel) -> Load:
        now = datetime.now(UTC)
        target = self._target
        where = target.board or urlsplit(target.url).hostname or "service"
        return Load(
            id=new_id(now, "load", where),
            started_utc=now.isoformat(timespec="seconds"),
            armload=__version__,
            url=target.url,
            board=target.board,
            run=target.run,
            model=target.model,
            service=target.settings,
            dialect=target.dialect.name,
            arrivals="closed" if pace.rate is None else str(self._arrivals),
            seed=self._seed,
            requests_from=self._workload.described,
            objectives=self._objectives,
            finds_rate=self._finds_rate,
            percentiles=self._percentiles,
            most_per_s=self.most_per_s,
        )

    def _clock(self) -> ClockOffset | None:
        return None if self._target.service is None else self._target.service.clock()

    @contextmanager
    def _observed(self, kept: LoadFolder, number: int, live: LiveView) -> Iterator[None]:
        with ExitStack() as stack:
            path = kept.metrics_file(number)
            stack.enter_context(self.scraper.running(path, live.window.server))
            if (service := self._target.service) is not None:
                path = kept.board_file(number)
                stack.enter_context(sampled(service, path, live.window.board))
            yield

    def _keep_trace(self, kept: LoadFolder, number: int, sending: PointRunner) -> None:
        clock = kept.load.points[number].clock
        if self._target.service is None or clock is None or not sending.records:
            return
        offset_s = sending.began_s + clock.board_minus_client_s
        keep_trace(
            self._target.service,
            kept.trace_file(number),
            from_board_s=offset_s,
            to_board_s=offset_s + max(record.end_s for record in sending.records),
            progress=self._progress,
        )


@contextmanager
def _short_collections() -> Iterator[None]:
    """Keep the garbage collector from what was there before: nothing is sent while it works."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _nothing_succeeded(
    target: LoadTarget, pace: LoadLevel, records: Sequence[RequestRecord]
) -> NothingSucceededError:
    outcomes = Counter(record.outcome for record in records)
    if not records:
        return NothingSucceededError(
            f"{target.url}: all requests at {pace} were warm-up.",
            "Give a longer --duration, or a smaller --warmup.",
            outcomes,
        )
    errors = Counter(record.error for record in records if record.error)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    why = f" Most often: {errors.most_common(1)[0][0]}." if errors else ""
    return NothingSucceededError(
        f"{target.url}: no request succeeded at {pace} ({counts}).{why}",
        "See the service's log. The records of the requests are kept.",
        outcomes,
    )
