"""How precisely a run, or its repeats, determine the median time per token."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

from armload.analysis.background import BackgroundProcess
from armload.analysis.columns import without_storage
from armload.analysis.contention import Unsteady, stop_others
from armload.analysis.finding import RunFinding
from armload.analysis.statistics import FEWEST_TOKENS, median_interval, tokens_for_precision
from armload.analysis.summary import generating, quantile, token_times
from armload.core.values import Value, counted
from armload.engines.job import Job, Workstation
from armload.engines.output import Output

MEDIAN_WITHIN = 0.10
"""A median that is known less precisely than this cannot be compared."""

UNSTEADY_FROM = 2.0
"""The 90th percentile of the time per token must stay below so many medians."""

MOST_MORE_RUNS = 100
"""Where more than so many would be needed, the runs differ too much, and that is what to mend."""

_FEWEST_STEPS = 10
_MORE_TOKENS_HELP = 10  # times as many; a median that takes more than that is disturbed


class Imprecise(RunFinding):
    """The median time per token is not known well enough; more tokens or repeats may help."""

    name: ClassVar[str] = "imprecise"


class MoreTokens(Value):
    """How more tokens can be timed.

    Attributes:
        wanted_tokens: to be generated.
        answer_tokens: after which the model ended its answer; none if it did not.
        has_plan: armload's own engine ran, which need not stop at the answer's end.
        has_count: the number of tokens can be set.
    """

    wanted_tokens: int
    answer_tokens: int | None
    has_plan: bool
    has_count: bool

    @property
    def advice(self) -> str:
        if self.answer_tokens is not None:
            without = ", or omit --stop-at-end" if self.has_plan else ""
            return (
                f"The model ended its answer after {counted(self.answer_tokens, 'token')}: "
                f"use a --prompt with a longer answer{without}."
            )
        if not self.has_count:
            return f"Let the program generate {self.wanted_tokens} tokens or more."
        return f"Use -n {self.wanted_tokens} or more."


class TooFewTokens(Imprecise):
    """Too few tokens to estimate their spread."""

    kind: Literal["too few tokens"] = "too few tokens"
    timed_tokens: int
    needed_tokens: int
    more: MoreTokens

    def fact(self) -> str:
        timed = self.timed_tokens
        return (
            f"Imprecise: {timed} {'token was' if timed == 1 else 'tokens were'} timed after "
            f"the first, and estimating their spread takes {self.needed_tokens}."
        )

    def advice(self) -> str:
        return self.more.advice


class WideSpread(Imprecise):
    """The median of the tokens' times is not known well enough.

    Attributes:
        within: share of the median that its interval reaches from it.
        more: what would narrow it; none where more tokens would not.
        adds_repeats: the run is repeated until the time for repeats is used up.
    """

    kind: Literal["wide spread"] = "wide spread"
    within: float
    more: MoreTokens | None
    adds_repeats: bool = False
    workstation: Workstation | None

    def fact(self) -> str:
        return f"Imprecise: the median is known only within {self.within:.0%}."

    def advice(self) -> str:
        if self.adds_repeats:
            return "Allow more time for repeats (--precision-time)."
        return self.more.advice if self.more else f"{stop_others(self.workstation)}."


class TooFewRepeats(Imprecise):
    """Too few repeats for an interval of their median."""

    kind: Literal["too few repeats"] = "too few repeats"
    runs: int
    needed_runs: int

    def fact(self) -> str:
        return f"Imprecise: only {self.runs} of at least {self.needed_runs} repeats."

    def advice(self) -> str:
        return "Allow more (--precision-time)."


class WideSpreadOfRepeats(Imprecise):
    """The median over the repeats is not known well enough; ``within`` is a share of it.

    Attributes:
        more_runs: that would be needed.
        adds_repeats: armload repeats until the time for that is used up; otherwise their number
            was fixed.
        workstation: that a virtual board shares its CPU with.
    """

    kind: Literal["wide spread of repeats"] = "wide spread of repeats"
    runs: int
    within: float
    more_runs: int
    adds_repeats: bool = True
    workstation: Workstation | None

    def fact(self) -> str:
        return f"Imprecise: the median of {self.runs} runs is known only within {self.within:.1%}."

    def advice(self) -> str:
        if self.more_runs > MOST_MORE_RUNS:
            return too_different(self.workstation)
        if self.adds_repeats:
            return "Allow more (--precision-time)."
        return f"Use --repeats {self.runs + self.more_runs} or more."


def too_different(workstation: Workstation | None) -> str:
    """Say that more runs would not help, and what would."""
    helps = less_varied(is_emulated=workstation is not None)
    return f"The runs differ too much for more of them to help: {helps}, and repeat them."


def less_varied(*, is_emulated: bool) -> str:
    """Say what makes runs differ less."""
    if is_emulated:
        return "stop other programs on the workstation that emulates the board"
    return (
        "stop other programs on the board, fix its clock (--governor performance), let it cool "
        "(--cool-to)"
    )


def doubts_about_few(job: Job, output: Output) -> list[TooFewTokens]:
    """Return that too few tokens were timed, if that is so."""
    timed = len(token_times(output.header, output.steps))
    if timed >= FEWEST_TOKENS or not (timed or _ended_after(job, output)):
        return []
    more = _more_tokens(job, output, FEWEST_TOKENS + 1)
    return [TooFewTokens(timed_tokens=timed, needed_tokens=FEWEST_TOKENS, more=more)]


def doubts_about_spread(
    job: Job, output: Output, process: BackgroundProcess | None
) -> list[Unsteady | WideSpread]:
    """Return that the tokens' times differ too much, in the main or to determine their median.

    Args:
        process: the busiest in the background, where it was busy enough to be named.
    """
    workstation, steps = job.board.workstation, without_storage(output.steps)
    # A step takes longer with more drafts: those of as many as most have are compared.
    widths = Counter(step.speculated_tokens for step in steps)
    quiet = [step for step in steps if step.speculated_tokens == widths.most_common(1)[0][0]]
    samples = [step.duration_s / step.generated_tokens for step in quiet]
    if len(samples) < FEWEST_TOKENS:
        return []
    median, slow = quantile(samples, 50), quantile(samples, 90)
    if not median:  # a clock that stands still
        return []
    if len(samples) >= _FEWEST_STEPS and slow >= UNSTEADY_FROM * median:
        return [Unsteady(times_median=slow / median, process=process, workstation=workstation)]
    interval = median_interval(samples)
    if interval is None:
        return []
    off = max(interval.high / median - 1, 1 - interval.low / median)
    if off <= MEDIAN_WITHIN:
        return []
    wanted = tokens_for_precision(samples, MEDIAN_WITHIN / 2)
    helps = wanted <= _MORE_TOKENS_HELP * len(samples)
    more = _more_tokens(job, output, wanted) if helps else None
    adds_repeats = job.place is not None and job.place.precision is not None
    return [WideSpread(within=off, more=more, adds_repeats=adds_repeats, workstation=workstation)]


def _ended_after(job: Job, output: Output) -> int | None:
    """Return how many tokens the model's answer had; none if it was as long as it might be."""
    most = job.watched.n_predict if job.watched else None
    if job.plan is not None and job.plan.stop_at_end:
        most = job.plan.n_predict
    generated = output.reported.decode_tokens if output.reported else None
    if generated is None:
        drafts = output.header.last_accepted_tokens if output.header else 0
        # The last token is sampled and never decoded.
        generated = sum(step.output_tokens for step in generating(output.steps)) + drafts + 1
    return generated if most is not None and generated < most else None


def _more_tokens(job: Job, output: Output, wanted: int) -> MoreTokens:
    return MoreTokens(
        wanted_tokens=wanted,
        answer_tokens=_ended_after(job, output),
        has_plan=job.plan is not None,
        has_count=job.watched is None or job.watched.n_predict is not None,
    )
