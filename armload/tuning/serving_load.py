"""Measuring settings by a load on a service: its total time, or the rate that it answers."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.findings import AnswersShort, PromptsCut
from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.records import Load, RequestRecord
from armload.analysis.sanity import doubts_about_text
from armload.core.errors import ArmloadError, BusyError, ConnectError, UsageError
from armload.core.values import counted
from armload.engines.job import SweepPoint
from armload.engines.model_program import peak_memory
from armload.engines.server import plan_for, serving_need
from armload.engines.service_plan import ServingPlan
from armload.engines.trace import read_trace
from armload.models.model import Model
from armload.serving.arrivals import Arrivals
from armload.serving.planning import serving_plan_of
from armload.serving.starting import one_request
from armload.tuning.feasibility import SettingPredictor
from armload.tuning.reach import TuningBoard
from armload.tuning.request import TrialLoad, TunedLoad
from armload.tuning.settings import options_of
from armload.tuning.space import Feasibility, Setting
from armload.tuning.trial import Outcome, Status, TrialAttempt

_SHARES = (1 / 4, 1)
"""Of the requests, on each rung."""

_GARBAGE_FROM = 0.5
"""Share of the answers that must be garbage, or a small model's odd one would count."""

_FEWEST = 4


class ServiceLoads:
    """Loads on a model that a board serves, each with a server of its own.

    Args:
        board: with the server.
        requests: a rate for the total time; objectives for the rate.
        seed: of arrivals and requests.
        most_rss_bytes: that a setting may take; none for what the board has.
    """

    rungs = len(_SHARES)

    def __init__(
        self,
        board: TuningBoard,
        model: Model,
        requests: TunedLoad,
        seed: int,
        *,
        most_rss_bytes: int | None,
    ) -> None:
        self._board = board
        self._model = model
        self._requests = requests
        self._seed = seed
        self._count = _count(requests, seed)
        usual = one_request(plan_for(model, ServingPlan()))
        self._predictor = SettingPredictor(board.where, model, usual, most_rss_bytes=most_rss_bytes)

    def prior(self, setting: Setting) -> Feasibility:
        """Say what ``fit`` expects of the memory that a setting takes."""
        try:
            plan = self._plan(setting)
        except UsageError as error:
            return Feasibility(hopeless=error.message.rstrip("."))
        if reason := too_short(plan, self._requests):
            return Feasibility(hopeless=reason)
        one = one_request(plan).model_copy(
            update={
                "batch_tokens": plan.batch_tokens,
                "micro_batch_tokens": plan.micro_batch_tokens,
            }
        )
        return self._predictor.feasibility(one, serving_need(plan, self._model))

    def measure(self, setting: Setting, rung: int, place: SweepPoint) -> TrialAttempt:
        """Serve a model with a setting, and put it under load."""
        count = max(min(_FEWEST, self._count), round(_SHARES[rung] * self._count))
        try:
            one = TrialLoad(
                plan=self._plan(setting), requests=self._requests, count=count, seed=self._seed
            )
            kept = self._board.load(self._model, one, place)
            outcome = outcome_of(
                kept.load, kept.requests(0), self._requests, times=self._count / count
            )
            _, steps = read_trace(kept.trace_file(0))
            memory = peak_memory([step for step in steps if step.model == 0])
            return TrialAttempt(
                outcome=outcome, max_rss_bytes=memory.max_rss_bytes if memory else None
            )
        except (ConnectError, BusyError):
            raise
        except ArmloadError as error:
            return TrialAttempt(outcome=Outcome(status="failed", reason=error.message))

    def _plan(self, setting: Setting) -> ServingPlan:
        given = options_of(setting)
        return plan_for(self._model, serving_plan_of(given, "the setting"))


def too_short(plan: ServingPlan, wanted: TunedLoad) -> str:
    """Say why a slot does not hold a request with its answer; nothing where it does."""
    least = wanted.context_tokens
    if plan.context_tokens >= least:
        return ""
    return (
        f"a context of {plan.context_tokens} tokens would cut off answers: prompt and answer take "
        f"{least}"
    )


def outcome_of(
    load: Load, records: Sequence[RequestRecord], wanted: TunedLoad, *, times: float = 1.0
) -> Outcome:
    """Return what a load of one point says of its setting.

    Args:
        records: of its requests.
        times: how many times as many requests the whole load has.
    """
    found = metrics_of(load.points[0], records, wanted.objectives)
    cost, reason = _cost(found, times, is_rate=wanted.rate is None)
    if cost is None:
        return Outcome(status="failed", reason=reason, evidence=(load.id,))
    of_words = wanted.data is None
    failed = sum(found.failed.values())
    if not failed:
        failures = ""
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in found.failed.items())
        failures = f"{failed} of {counted(found.requests, 'request')} failed ({kinds})"
    reason = failures or _cut_off(found) or _garbage(records, of_words=of_words)
    status: Status = "violates" if reason else "measured"
    return Outcome(status=status, cost=cost, reason=reason, evidence=(load.id,))


def _count(wanted: TunedLoad, seed: int) -> int:
    if wanted.rate is None or wanted.duration_s is None:
        return wanted.requests or 0
    schedule = Arrivals(kind="seed").schedule(
        wanted.rate, duration_s=wanted.duration_s, requests=wanted.requests, seed=seed
    )
    return len(schedule)


def _cost(found: Metrics, times: float, *, is_rate: bool) -> tuple[float | None, str]:
    if not is_rate:
        # A part of the requests takes about that part of the time.
        return found.total_s * times, ""
    good = found.goodput
    if good is None or good.requests_per_s <= 0:
        return None, "no request was within --slo"
    return 1 / good.requests_per_s, ""


def _cut_off(found: Metrics) -> str:
    if found.cut_off:
        return f"{found.cut_off} of {counted(found.ok, 'answer')} ended before their limit"
    less = [each for each in found.findings if isinstance(each, AnswersShort | PromptsCut)]
    return less[0].sentence if less else ""


def _garbage(records: Sequence[RequestRecord], *, of_words: bool) -> str:
    doubts = [
        found[0]
        for each in records
        if each.outcome == "ok" and (found := doubts_about_text(each.text, of_words=of_words))
    ]
    if len(doubts) <= _GARBAGE_FROM * len(records):
        return ""
    of_all = f"{len(doubts)} of {counted(len(records), 'answer')}"
    return f"{of_all} are degenerate: {doubts[0].sentence}"
