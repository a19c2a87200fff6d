"""The search for the highest rate at which a service meets its objectives, on a real service.

A closed loop with as many clients as slots shows first what the service can do at most, and how
long a request takes. Where the slots are not known, the clients are doubled until more of them
get no more answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.evidence import Evidence, evidence_of, saturated
from armload.analysis.load.findings import (
    AnswersAtOnce,
    AnswersCutOff,
    AnswersShort,
    ClientLate,
    ClientLimited,
    PromptsCut,
    TokensUncounted,
)
from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.queue_model import SaturatedRun
from armload.analysis.load.rate_search import (
    BUDGET_SERVICE_TIMES,
    Attempt,
    RateSearch,
    probed_per_client,
)
from armload.analysis.load.records import Objectives, RateVerdict, RequestRecord
from armload.analysis.load.request_columns import RequestColumns
from armload.core.errors import RunError
from armload.core.progress import Progress
from armload.core.values import counted, format_duration
from armload.serving.load_runner import AllFailedError, LoadRunner
from armload.serving.loads import LoadFolder
from armload.serving.target import LoadLevel, StopCondition

_MOST_CLIENTS = 256
_MORE_FROM = 1.2
"""Times as many answers by twice the clients, or the slots were all busy before."""

_FIRST_PER_CLIENT = 3


def find_rate(
    probing: LoadRunner,
    loading: LoadRunner,
    objectives: Objectives,
    stop: StopCondition,
    *,
    slots: int | None,
    max_time_s: float | None,
    progress: Progress,
) -> LoadFolder:
    """Search, and return the load with a point for each rate that was tried.

    Args:
        probing: for the closed loop, which is a load of its own.
        slots: of the service; none where they are not known.
        max_time_s: in which the search ends; none for 3,000 times a request's.
    """
    loop, spent_s, budget_s = _probe(probing, objectives, stop, slots, max_time_s, progress)
    _check_judged(probing, objectives)
    loading.most_per_s = loop.per_s
    # It may have said that there are no metrics.
    loading.observation.scraper = probing.observation.scraper
    search = RateSearch(loop, budget_s - spent_s)
    number = 0
    while (attempt := search.next()) is not None:
        number += 1
        judge = RateJudge(search, attempt, objectives, slots, progress)
        planned = stop.model_copy(
            update={
                "duration_s": attempt.length_s,
                "requests": None,
                "warmup_s": attempt.warmup_s,
            }
        )
        try:
            kept = loading.point(LoadLevel(rate=attempt.rate), planned, draw=number, judge=judge)
        except AllFailedError as error:
            progress.say(error.message)
            is_clients = error.outcomes.keys() <= {"client-limit"}
            verdict: RateVerdict = "undecided" if is_clients else "not sustained"
            search.done(attempt, verdict, None, judge.seen_s)
            continue
        records = kept.columns(len(kept.load.points) - 1)
        took_s = max(record.end_s for record in records)
        point = kept.load.points[-1]
        verdict, evidence = judge.verdict or "undecided", judge.evidence
        why = _spoilt_by_the_client(metrics_of(point, records, objectives, slots=slots))
        if why and verdict != "sustained":
            verdict, evidence = "undecided", None
            progress.say(f"Discarded the {attempt.rate:g} requests/s result: {why}")
        search.done(attempt, verdict, evidence, took_s)
    if loading.kept is None:
        raise RunError(
            f"The closed loop took {spent_s:.0f} s, and --max-time leaves no time to try a rate.",
            f"Give a longer --max-time; {10 * spent_s:.0f} s is a minimum, and 3,000 times "
            f"{loop.service_s:.2g} s is usual.",
        )
    return loading.kept


def _check_judged(probed: LoadRunner, objectives: Objectives) -> None:
    """Refuse a search in which no request could be found to be within the objectives."""
    if (kept := probed.kept) is None:
        return
    number = len(kept.load.points) - 1
    found = metrics_of(kept.load.points[number], kept.columns(number), objectives)
    if found.ok and found.goodput is not None and not found.goodput.good:
        for each in found.findings:
            if isinstance(each, _UNJUDGED):
                raise RunError(
                    f"No answer of the closed loop can be within the SLO. {each.sentence}",
                    "Change the requests or --slo, or use --rate to measure the rest.",
                )


_UNJUDGED = AnswersAtOnce | AnswersShort | AnswersCutOff | PromptsCut | TokensUncounted


def _spoilt_by_the_client(found: Metrics) -> str:
    """Say how this machine spoilt a point, and what to do; nothing where it did not."""
    kinds = {type(each) for each in found.findings}
    if ClientLimited in kinds:
        return "this machine had no open files or ports left. Raise its limit (ulimit -n)."
    if ClientLate in kinds:
        return "this client fell behind schedule. Stop other programs on this machine."
    return ""


class RateJudge:
    """Decides on one rate while it runs.

    Attributes:
        verdict: none before it is decided.
        evidence: of its last look.
        seen_s: when that was.
    """

    def __init__(
        self,
        search: RateSearch,
        attempt: Attempt,
        objectives: Objectives,
        slots: int | None,
        progress: Progress,
    ) -> None:
        self._search = search
        self._attempt = attempt
        self._objectives = objectives
        self._slots = slots
        self._progress = progress
        self._looks_s = attempt.looks_s()
        self._ended = RequestColumns()
        self._number = 0
        self.verdict: RateVerdict | None = None
        self.evidence: Evidence | None = None
        self.seen_s = 0.0

    def note(self, record: RequestRecord) -> None:
        """Take a request that ended."""
        self._ended.add(record)

    def goes_on(self, times: Sequence[float], now_s: float) -> bool:
        """Judge the rate when its time has come; return whether that decided nothing."""
        is_last_request = now_s >= times[-1]
        while self.verdict is None and self._number < len(self._looks_s):
            if now_s < self._looks_s[self._number] and not is_last_request:
                break
            self._look(times, now_s)
        return self.verdict is None

    def _look(self, times: Sequence[float], now_s: float) -> None:
        number, self._number, self.seen_s = self._number, self._number + 1, now_s
        ended = {record.number for record in self._ended}
        from_s = self._attempt.warmup_s
        open_since_s = [
            due_s
            for place, due_s in enumerate(times)
            if from_s <= due_s < now_s and place not in ended
        ]
        measured = sorted(
            (record for record in self._ended if not record.is_warmup), key=lambda each: each.number
        )
        found = evidence_of(
            *(measured, open_since_s, self._attempt.rate, self._slots, self._objectives, now_s)
        )
        if found is None:
            return
        self.evidence = found
        self.verdict = self._search.look(self._attempt, number, found)
        within = sum(each <= 1 for each in found.severities) / len(found.severities)
        decided = self.verdict or "not decided yet"
        self._progress.say(
            f"{self._attempt.rate:g} requests/s: {within:.0%} of "
            f"{counted(len(found.severities), 'request')} within the SLO, {decided}."
        )


def _probe(
    probing: LoadRunner,
    objectives: Objectives,
    stop: StopCondition,
    slots: int | None,
    max_time_s: float | None,
    progress: Progress,
) -> tuple[SaturatedRun, float, float]:
    """Return what the closed loops show, how long they took, and how long the search may take."""
    clients, spent_s = slots or 1, 0.0

    def run(clients: int, per_client: int) -> SaturatedRun:
        nonlocal spent_s
        planned = stop.model_copy(
            update={"requests": per_client * clients, "warmup": 0, "duration_s": None}
        )
        kept = probing.point(LoadLevel(concurrency=clients), planned)
        records = kept.columns(len(kept.load.points) - 1)
        spent_s += max(record.end_s for record in records)
        return saturated(records, clients, objectives, knows_slots=slots is not None)

    loop = run(clients, _FIRST_PER_CLIENT)
    while slots is None and clients < _MOST_CLIENTS:
        more = run(2 * clients, _FIRST_PER_CLIENT)
        if more.per_s.middle < _MORE_FROM * loop.per_s.middle:
            break
        clients, loop = 2 * clients, more
    budget_s = max_time_s or BUDGET_SERVICE_TIMES * loop.service_s
    per_client = probed_per_client(clients, budget_s / loop.service_s)
    if per_client > _FIRST_PER_CLIENT:
        loop = run(clients, per_client)
    progress.say(
        f"{counted(clients, 'client')} at a time: {loop.per_s.middle:.3g} requests/s "
        f"({loop.per_s.low:.3g} to {loop.per_s.high:.3g}, 95% confidence) with all slots busy, "
        f"{loop.service_s:.2g} s each. No rate above that is stable. The search takes up to "
        f"{format_duration(max(0.0, budget_s - spent_s))}."
    )
    return loop, spent_s, budget_s
