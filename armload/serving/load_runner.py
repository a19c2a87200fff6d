"""Load on a service, point by point, and the record of it."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Protocol
from urllib.parse import urlsplit

from armload.analysis.load.records import (
    Load,
    LoadPoint,
    Objectives,
    Outcome,
    RateVerdict,
    RequestRecord,
    Stage,
)
from armload.analysis.statistics import Interval
from armload.core.errors import ConnectError, InterruptionError, RunError
from armload.core.ids import begins_now
from armload.core.progress import Progress
from armload.core.values import counted
from armload.serving.arrivals import Arrivals, repeat_seed
from armload.serving.conversation import Conversation
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.hints import Refusals, remedy_for
from armload.serving.loads import LoadFolder
from armload.serving.observation import Observation
from armload.serving.point_runner import LiveView, PointRunner, TooManyFailedError
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.users import Users
from armload.serving.workload import Workload


class StoppingRule(Protocol):
    """Decides on a rate while it runs.

    Attributes:
        verdict: none before it is decided.
    """

    verdict: RateVerdict | None

    def note(self, record: RequestRecord) -> None:
        """Take a request that ended."""

    def goes_on(self, times: Sequence[float], now_s: float) -> bool:
        """Return whether more requests are to be sent.

        Args:
            times: of all requests.
        """


class AllFailedError(RunError):
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
        observation: of the service meanwhile.
        most_per_s: what the service answers at most, where that was measured before.

    Args:
        arrivals: none for those of a trace.
        seed: of the schedule; the workload has its own.
        objectives: that its requests should stay within; none for none.
        finds_rate: the rates are chosen to find the highest that is sustained.
        subtracts_idle: energies are to be without what the idle board draws.
        users: that send the requests; none for some that each send one.
        percentiles: that the figures are to have; empty for the usual ones.
    """

    most_per_s: Interval | None = None

    def __init__(
        self,
        target: LoadTarget,
        workload: Workload,
        arrivals: Arrivals | None,
        seed: int,
        progress: Progress,
        objectives: Objectives | None = None,
        *,
        finds_rate: bool = False,
        subtracts_idle: bool = False,
        users: Users | None = None,
        percentiles: tuple[float, ...] = (),
    ) -> None:
        self._users = users or Users()
        self._target = target
        self._workload = workload
        self._arrivals = arrivals
        self._seed = seed
        self._objectives = objectives
        self._finds_rate = finds_rate
        self._subtracts_idle = subtracts_idle
        self._percentiles = percentiles
        self._progress = progress
        self.observation = Observation(target, progress)
        self._taken = self._begun = 0
        self._sha = hashlib.sha256()
        self.kept: LoadFolder | None = None

    def run(self, levels: Sequence[LoadLevel], stop: StopCondition, repeats: int = 1) -> LoadFolder:
        """Run a point for each level, in order, and all again with other schedules.

        Raises:
            ArmloadError: the service has ended, or no request of a point succeeded; what was
                measured until then is kept.
        """
        for repeat in range(repeats):
            for level in levels:
                kept = self.point(level, stop, draw=repeat)
        return kept

    def point(
        self,
        level: LoadLevel,
        stop: StopCondition,
        *,
        draw: int = 0,
        judge: StoppingRule | None = None,
    ) -> LoadFolder:
        """Run one point, and return the load with it as its last.

        Args:
            draw: each gives another schedule.
            judge: ends an open loop early, and says what it has shown.

        Raises:
            ArmloadError: as for ``run``.
        """
        times: tuple[float, ...] = ()
        seed = repeat_seed(self._seed, draw)
        if level.rate is not None and self._arrivals is not None:
            times = self._arrivals.schedule(
                level.rate,
                duration_s=stop.duration_s,
                requests=stop.requests,
                seed=seed,
            )
            if stop.warmup_s:
                warmup = sum(each < stop.warmup_s for each in times)
                stop = stop.model_copy(update={"warmup": min(warmup, len(times) - 1)})
        # How many requests a number of conversations has depends on their answers.
        planned = None if self._users.turns else len(times) or stop.requests
        kept = self.kept = self.kept or LoadFolder.begin_on(
            self._described(level), self._target.job
        )
        point = LoadPoint(
            rate=level.rate,
            concurrency=level.concurrency,
            max_concurrency=level.max_concurrency,
            duration_s=stop.duration_s,
            requests=planned or 0,
            started_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            began_client_s=0.0,
            seed=seed if draw else None,
            is_under_way=True,
            clock=self.observation.clock(),
        )

        def begun(began_s: float) -> None:
            known = point.model_copy(update={"began_client_s": began_s})
            kept.update(known, self._sha.hexdigest())

        refusals = Refusals()

        def keep(record: RequestRecord) -> None:
            kept.add(record)
            refusals.add(record)
            if judge is not None:
                judge.note(record)

        kept.add_point(point)
        goes_on = None if judge is None else partial(judge.goes_on, times)
        live = self._live(lambda _: str(level) if level.rate is None else f"{level} asked")
        sending = PointRunner(self._target, stop, keep, begun, live, goes_on)
        try:
            self._send(kept, sending, live, times, level, str(level), planned)
            point = point.model_copy(update=self.observation.left_behind(sending))
        except TooManyFailedError:
            raise
        except (RunError, ConnectError) as error:
            point = point.model_copy(update={"service_ended": error.message})
            raise
        finally:
            is_judged = judge is not None and judge.verdict is not None
            known = {
                "requests": (0 if is_judged or not planned else len(times)) or sending.ended,
                "verdict": judge.verdict if judge is not None else None,
                "began_client_s": sending.began_s,
                "is_under_way": False,
                "refusal": refusals.most_frequent,
            }
            kept.update(point.model_copy(update=known), self._sha.hexdigest())
            number = len(kept.load.points) - 1
            self.observation.keep_trace(kept, number, sending.began_s, sending.last_end_s)
        if not sending.measured["ok"]:
            raise _nothing_succeeded(self._target, str(level), kept, [number], sending.measured)
        return kept

    def staged(
        self,
        stages: Sequence[Stage],
        times: Sequence[float],
        stop: StopCondition,
        max_concurrency: int | None = None,
    ) -> LoadFolder:
        """Run a load whose rate varies, with a point for each stage.

        Args:
            stages: that follow each other without a gap.
            times: of all requests, in order.
            max_concurrency: requests in flight at most; none for any number.
        """
        stage_at = partial(bisect_right, [stage.end_s for stage in stages[:-1]])
        counts = Counter(map(stage_at, times))
        mean = LoadLevel(rate=len(times) / stages[-1].end_s, max_concurrency=max_concurrency)
        kept = self.kept = LoadFolder.begin_on(self._described(mean), self._target.job)
        now, clock = datetime.now(UTC).isoformat(timespec="milliseconds"), self.observation.clock()
        points = tuple(
            LoadPoint(
                rate=stage.mean_per_s,
                max_concurrency=max_concurrency,
                duration_s=stage.duration_s,
                requests=counts[number],
                started_utc=now,
                began_client_s=0.0,
                is_under_way=True,
                stage=stage,
                clock=clock,
            )
            for number, stage in enumerate(stages)
        )

        last_end_s: defaultdict[int, float] = defaultdict(float)
        refusals: defaultdict[int, Refusals] = defaultdict(Refusals)
        cut: set[int] = set()

        def keep(record: RequestRecord) -> None:
            number = stage_at(record.scheduled_s)
            kept.add(record, number)
            refusals[number].add(record)
            last_end_s[number] = max(last_end_s[number], record.end_s)
            if record.outcome == "cancelled":
                cut.add(number)

        def all_with(known: dict[str, object]) -> None:
            changed = tuple(point.model_copy(update=known) for point in points)
            kept.replace_points(changed, self._sha.hexdigest())

        kept.replace_points(points)
        live = self._live(lambda now_s: f"{stages[stage_at(now_s)].rates} requests/s asked")
        sending = PointRunner(
            *(self._target, stop, keep),
            lambda began_s: all_with({"began_client_s": began_s}),
            live,
        )
        name = "Replaying" if stages[0].is_replay else counted(len(stages), "stage")
        ended = ""
        try:
            self._send(kept, sending, live, times, mean, name, len(times))
        except TooManyFailedError:
            raise
        except (RunError, ConnectError) as error:
            ended = error.message
            raise
        finally:
            points = tuple(
                point.model_copy(
                    update={
                        "service_ended": ended if number in cut else "",
                        "refusal": refusals[number].most_frequent,
                    }
                )
                for number, point in enumerate(points)
            )
            all_with({"began_client_s": sending.began_s, "is_under_way": False})
            self.observation.divide(kept, sending.began_s, last_end_s)
        if not sending.measured["ok"]:
            numbers = range(len(points))
            raise _nothing_succeeded(self._target, str(mean), kept, numbers, sending.measured)
        return kept

    def _live(self, level: Callable[[float], str]) -> LiveView:
        return LiveView(level, (self._target.settings or {}).get("slots"))

    def _send(
        self,
        kept: LoadFolder,
        sending: PointRunner,
        live: LiveView,
        times: Sequence[float],
        level: LoadLevel,
        name: str,
        total: int | None,
    ) -> None:
        number = 0 if kept.is_staged else len(kept.load.points) - 1
        with (
            self.observation.recorded(kept, number, live),
            self._progress.step(name, total=total, unit="requests") as step,
            _short_collections(),
        ):
            asyncio.run(sending.send(self._take, times, level, step))

    def _take(self) -> Conversation:
        conversation = self._users.conversation(self._begun, self._ask)
        self._begun += 1
        for request in conversation.requests:
            self._sha.update(request.model_dump_json().encode())
        return conversation

    def _ask(self) -> CompletionRequest:
        self._taken += 1
        return self._workload.request(self._taken - 1)

    def _described(self, level: LoadLevel) -> Load:
        target = self._target
        where = target.board or urlsplit(target.url).hostname or "service"
        return Load(
            **begins_now("load", where),
            url=target.url,
            board=target.board,
            run=target.run,
            installed=target.installed,
            model=target.model,
            service=target.settings,
            dialect=target.dialect.name,
            arrivals="closed" if level.rate is None else str(self._arrivals or "trace"),
            seed=self._seed,
            requests_from="; ".join(filter(None, (self._workload.described, str(self._users)))),
            objectives=self._objectives,
            finds_rate=self._finds_rate,
            subtracts_idle=self._subtracts_idle,
            percentiles=self._percentiles,
            most_per_s=self.most_per_s,
        )


@contextmanager
def _short_collections() -> Iterator[None]:
    """Keep the garbage collector from what was there before: nothing is sent while it works."""
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


def _nothing_succeeded(
    target: LoadTarget,
    level: str,
    kept: LoadFolder,
    points: Iterable[int],
    outcomes: Counter[Outcome],
) -> AllFailedError:
    if not outcomes:
        return AllFailedError(
            f"{target.url}: all requests at {level} were warm-up.",
            "Give a longer --duration, or a smaller --warmup.",
            outcomes,
        )
    records = chain.from_iterable(map(kept.each_request, points))
    errors = Counter(each.error for each in records if each.error and not each.is_warmup)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    most_often = errors.most_common(1)[0][0] if errors else ""
    why = f" Most often: {most_often.rstrip('.')}." if errors else ""
    return AllFailedError(
        f"{target.url}: no request succeeded at {level} ({counts}).{why}",
        f"{remedy_for(most_often)} The records of the requests are kept.",
        outcomes,
    )


def interruption(kept: LoadFolder | None, probe: LoadFolder | None) -> InterruptionError:
    """Say what Ctrl-C left of a load, and of the probe that a search begins with."""
    if kept is not None:
        again = "to start the search over" if kept.load.finds_rate else "to start over"
        return InterruptionError(
            "Interrupted. The records of all requests are kept.",
            f"Run the command again {again}. To show them: armload show {kept.load.id}",
        )
    if probe is not None:
        return InterruptionError(
            "Interrupted. The records of the probe are kept; no rate was tried yet.",
            f"Run the command again to start over. To show them: armload show {probe.load.id}",
        )
    return InterruptionError("Interrupted before any request was sent.")
