"""Measuring settings by runs that continue a text: decode, prefill, first token, and energy."""

from __future__ import annotations

import math
from functools import cached_property

from armload.analysis.energy import FEWEST_SAMPLES
from armload.analysis.finding import Disturbance
from armload.analysis.output_doubts import (
    DegenerateText,
    Failed,
    NoTrace,
    OutputCount,
    OutputMissing,
)
from armload.analysis.run import Run
from armload.analysis.summary import token_times
from armload.bench.combination import Combination, combination
from armload.bench.options import Options
from armload.core.errors import ArmloadError, BusyError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.core.values import counted
from armload.engines.completion import memory_need
from armload.engines.job import SweepPoint
from armload.engines.llama_cpp import whole_plan
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.models.model import Model
from armload.runs.interruption import starts_anew
from armload.runs.reach import EngineBoard
from armload.tuning.feasibility import SettingPredictor
from armload.tuning.settings import options_of
from armload.tuning.space import Feasibility, Setting
from armload.tuning.trial import Outcome, TrialAttempt
from armload.tuning.wanted import Objective

_SHARES = (1 / 4, 1 / 2, 1)
"""Of the tokens to generate, on each rung where decoding is measured."""

LEAST_DECODE_S = 6.0
"""Of a run for energy: a shorter one has too few samples of the meter."""

FEWEST_TOKENS = 9
"""Of fewer, a run has too few times to estimate their spread."""

_ENDED_BADLY: tuple[str, ...] = (Failed.name, NoTrace.name, OutputCount.name, OutputMissing.name)


class Continuations:
    """Runs of a model on a board.

    Args:
        board: with the programs that the settings need.
        work: what each run does, as options with one value each.
        most_rss_bytes: that a setting may take; none for what the board has.
        new: start the first run, even if an interrupted command left the same one there.
    """

    def __init__(
        self,
        board: EngineBoard,
        model: Model,
        objective: Objective,
        work: Options,
        progress: Progress,
        *,
        most_rss_bytes: int | None,
        new: bool,
    ) -> None:
        self._board = board
        self._model = model
        self._objective: Objective = objective
        self._work = work
        self._progress = progress
        self._new = starts_anew(new=new)
        usual = self._plan(Setting(choices={}), self.rungs - 1)
        self._prompt = whole_plan(usual, model).prompt
        self._predictor = SettingPredictor(board.where, model, usual, most_rss_bytes=most_rss_bytes)

    @cached_property
    def rungs(self) -> int:
        """Decoding fewer tokens tells something; a shorter prompt would be another one."""
        return len(_SHARES) if self._objective == "decode" else 1

    def prior(self, setting: Setting) -> Feasibility:
        """Say what ``fit`` expects of a setting."""
        plan = self._plan(setting, self.rungs - 1)
        need = memory_need(plan, self._model)
        return self._predictor.feasibility(plan, need, cost=self._expected_cost)

    def measure(self, setting: Setting, rung: int, place: SweepPoint) -> TrialAttempt:
        """Run a model with a setting once."""
        try:
            plan = self._plan(setting, rung)
            # Making the prompt reads the whole vocabulary.
            plan = plan.model_copy(update={"prompt": self._prompt})
            if plan.draft_model is not None:
                one = combination(self._model, plan, self._progress)
            else:
                one = Combination(model=self._model, draft=None, plan=plan)
            engine = one.engine(self._board.where.binaries)
            run = self._board.run(engine, new=next(self._new), place=place, warns=False)
        except (ConnectError, BusyError):
            raise
        except ArmloadError as error:
            return TrialAttempt(outcome=Outcome(status="failed", reason=error.message))
        if self._objective == "energy":
            require_samples(run)
        return TrialAttempt(
            outcome=outcome_of(run, self._objective),
            text=run.text,
            max_rss_bytes=run.memory.max_rss_bytes if run.memory else None,
        )

    def _plan(self, setting: Setting, rung: int) -> Plan:
        (plan,) = options_of(setting).over(self._work).plans()
        if self._objective != "decode":
            return plan
        tokens = max(FEWEST_TOKENS, round(_SHARES[rung] * plan.n_predict))
        return plan.model_copy(update={"n_predict": min(tokens, plan.n_predict)})

    def _expected_cost(self, found: Prediction) -> float | None:
        expected = found.ttft_s if self._objective == "ttft" else found.token_s
        has_forecast = self._objective in ("decode", "ttft")
        return expected.value if expected and has_forecast else None


def require_samples(run: Run) -> None:
    """Refuse a run that is too short: the search would lose the fastest settings only."""
    decode_s, energy = run.summary.decode_s, run.energy
    if energy is None or energy.joules_per_token is not None or run.exit.status != 0:
        return
    if not decode_s or decode_s >= LEAST_DECODE_S:
        return
    # A meter that misses samples, or shows no more than the idle board draws, needs no longer runs.
    if energy.problem and not decode_s - 2 <= energy.samples < FEWEST_SAMPLES:
        return
    tokens = run.summary.decode_tokens or 0
    enough = math.ceil(2 * LEAST_DECODE_S / decode_s * tokens)
    raise UsageError(
        f"{run.id}: {counted(tokens, 'token')} took {decode_s:.1f} s, too short for the power "
        "meter, which is read once a second.",
        f"Use --n-predict {enough} or more.",
    )


def outcome_of(run: Run, objective: Objective) -> Outcome:
    """Return what a run says of its setting: the time or energy, or why there is none."""
    findings = {each.name: each.sentence for each in run.verdict.findings}
    for name in _ENDED_BADLY:
        if name in findings:
            return Outcome(status="failed", reason=findings[name], evidence=(run.id,))
    summary = run.summary
    samples: tuple[float, ...] = ()
    if objective == "decode":
        cost = 1 / summary.decode_tps if summary.decode_tps else None
        samples = tuple(token_times(run.trace, run.steps))
    elif objective == "prefill":
        cost = 1 / summary.prefill_tps if summary.prefill_tps else None
    elif objective == "energy":
        cost = run.energy.joules_per_token if run.energy else None
    else:
        cost = summary.ttft_s
    if cost is None or cost <= 0:
        reason = f"the run has no {objective} time"
        if objective == "energy":
            problem = run.energy.problem if run.energy else "the power meter was not read"
            short = "decode is too short for the power meter"
            reason = f"the run has no valid energy: {problem or short}"
        return Outcome(status="failed", reason=reason, evidence=(run.id,))
    garbage = findings.get(DegenerateText.name, "")
    disturbing = [
        each.name for each in run.verdict.findings if isinstance(each.figures, Disturbance)
    ]
    return Outcome(
        status="violates" if garbage else "measured",
        cost=cost,
        samples=samples,
        reason=garbage,
        disturbance=findings[disturbing[0]] if disturbing else "",
        evidence=(run.id,),
    )
