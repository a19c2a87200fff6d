"""Whether something slowed a run: heat, other programs, or weights that came late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from armload.analysis.background import BackgroundProcess, busiest
from armload.analysis.columns import (
    Cores,
    busy_share,
    cores_of,
    prompt_without_storage,
    switches_per_token,
    without_storage,
)
from armload.analysis.conditions_log import RunConditions
from armload.analysis.emulation import doubts_about_the_emulator
from armload.analysis.findings import (
    Contended,
    Figures,
    MoreTokens,
    SlowerThanShown,
    Throttled,
    ThrottledByHardware,
    ThrottledFromStart,
    UnderVoltage,
    Unsteady,
    WideSpread,
)
from armload.analysis.statistics import FEWEST_TOKENS, median_interval, tokens_for_precision
from armload.analysis.streaming import doubts_about_streaming
from armload.analysis.summary import generating, quantile
from armload.analysis.throttling import throttle_events
from armload.boards.conditions import ClusterState, Conditions
from armload.engines.job import BoardRecord, Job
from armload.engines.output import Output
from armload.engines.trace import Step, Trace

UNSTEADY_FROM = 2.0
"""The 90th percentile of the time per token must stay below so many medians."""

CONTENDED_BELOW = 0.80
"""Share of wall time that the engine's threads must run, when nothing is read from storage."""

THROTTLED_BELOW, THROTTLED_FROM = 0.95, 0.10
"""A tenth of the time below 95% of the frequency that the run has reached is throttling."""

BELOW_THE_MAXIMUM = 0.90
"""A core that stays below this share of its maximum frequency is throttled."""

NAMED_FROM_SHARE = 0.10
"""Share of a core from which a process is named as the one that preempted the engine."""

MEDIAN_WITHIN = 0.10
"""A median that is known less precisely than this cannot be compared."""

_ARM = {"asimd", "neon"}
_SPREAD_NEEDS_STEPS = 10
_SWITCHES_PER_TOKEN = 1
_SWITCHES_PER_S = 10
_SHORTEST_PROMPT_S = 0.05
"""In less time, a single preemption decides how much of it the threads had the CPU."""
_MORE_TOKENS_HELP = 10  # times as many; a median that takes more than that is disturbed


def doubts_about_speed(
    job: Job, output: Output, around: RunConditions, *, measures_tokens: bool
) -> list[Figures]:
    """Return what slowed a run.

    Args:
        measures_tokens: times per token are what the run was for.
    """
    steps = output.steps
    process = busiest(around.background or (), share=NAMED_FROM_SHARE)
    cores = cores_of(output.header, job.before, job.plan.cpus if job.plan else None)
    found: list[Figures] = [*_doubts_about_hardware(steps, job.board, around)]
    if not any(isinstance(each, UnderVoltage) for each in found):  # cooling would not help
        found += _doubts_about_clocks(around)
        found += _doubts_about_frequency(steps, cores)
        if _ARM & set(job.board.cpu_features):  # elsewhere the maximum is that of one core alone
            found += _doubts_from_the_start(steps, job.before, around, cores)
    # In a group, the first member's threads pause for the others.
    if output.header is not None and job.spread is None:
        found += _doubts_about_the_cpu(steps, output.header, process, job.board)
    delayed = doubts_about_the_emulator(around.emulation, job.board.cores)
    found += delayed
    if measures_tokens and not delayed:  # which explains any spread
        found += _doubts_about_spread(job, output, process)
    return [*found, *doubts_about_streaming(output.header, steps)]


def _doubts_about_hardware(
    steps: tuple[Step, ...], board: BoardRecord, around: RunConditions
) -> list[UnderVoltage | ThrottledByHardware]:
    return [
        UnderVoltage(event=event, device=board.device)
        if event.cause == "under-voltage"
        else ThrottledByHardware(event=event, celsius=_hottest(steps))
        for event in throttle_events(around.throttling)
    ]


def _doubts_about_clocks(around: RunConditions) -> list[SlowerThanShown]:
    slower = [each for each in around.clocks if each.is_slower_than_shown]
    if not slower:
        return []
    return [SlowerThanShown(clock=min(slower, key=lambda each: each.khz / each.shown_khz))]


def _doubts_from_the_start(
    steps: tuple[Step, ...], before: Conditions, around: RunConditions, cores: Cores
) -> list[ThrottledFromStart]:
    """Hold the fastest cores that the engine may use against the highest frequency they have."""
    usable = [
        cluster
        for cluster in before.clusters
        if cluster.max_khz and (cores.allowed is None or cores.allowed & {*cluster.cores})
    ]
    if not usable:
        return []
    is_slowed = bool(throttle_events(around.throttling))
    # A power mode's limit is how the board is set up; the kernel's thermal limit shows as well.
    highest_of = {
        each.cores: (each.max_khz or 0) if is_slowed else _allowed_khz(each) for each in usable
    }
    fastest = max(highest_of.values())
    usable = [each for each in usable if highest_of[each.cores] == fastest]
    numbers = {n for each in usable for n in each.cores}
    if cores.allowed is not None:
        numbers &= cores.allowed
    known = [step for step in generating(steps) if cores.of(numbers, step)]
    if len(known) < _SPREAD_NEEDS_STEPS:
        return []
    highest = max(cores.of(numbers, step) for step in known)
    if highest >= BELOW_THE_MAXIMUM * fastest:
        return []
    had = {each.governor for each in usable if each.governor}
    governor = around.governor or (had.pop() if len(had) == 1 else None)
    return [
        ThrottledFromStart(
            highest_khz=highest, maximum_khz=fastest, governor=governor, celsius=_hottest(known)
        )
    ]


def _allowed_khz(cluster: ClusterState) -> int:
    return min(cluster.max_khz or 0, cluster.limit_khz or cluster.max_khz or 0)


def _hottest(steps: Sequence[Step]) -> float | None:
    return max((step.celsius for step in steps if step.celsius is not None), default=None)


def _doubts_about_frequency(steps: tuple[Step, ...], cores: Cores) -> list[Throttled]:
    # The fastest core counts: the engine is on it, and slower clusters never reach it.
    known = [(step, khz) for step in generating(steps) if (khz := cores.khz(step))]
    if len(known) < _SPREAD_NEEDS_STEPS:
        return []
    highest = max(khz for _, khz in known)
    slowed = [(step, khz) for step, khz in known if khz < THROTTLED_BELOW * highest]
    share = sum(step.duration_s for step, _ in slowed) / sum(step.duration_s for step, _ in known)
    if not slowed or share < THROTTLED_FROM:
        return []
    return [
        Throttled(
            time_share=share,
            below_khz=THROTTLED_BELOW * highest,
            lowest_khz=min(khz for _, khz in slowed),
            peak_khz=highest,
            celsius=_hottest([step for step, _ in slowed]),
        )
    ]


def _doubts_about_the_cpu(
    steps: tuple[Step, ...], header: Trace, process: BackgroundProcess | None, board: BoardRecord
) -> list[Contended]:
    if header.threads is None:
        return []
    per: Literal["token", "prompt"]
    prompt, quiet = prompt_without_storage(steps), without_storage(steps)
    if sum(step.duration_s for step in prompt) >= _SHORTEST_PROMPT_S:
        per, busy = "prompt", busy_share(prompt, header.threads)
        switches: float = sum(step.involuntary_switches or 0 for step in prompt)
        often = switches >= _SWITCHES_PER_S * sum(step.duration_s for step in prompt)
    elif len(quiet) >= _SPREAD_NEEDS_STEPS and sum(step.duration_s for step in quiet) > 0:
        per, busy = "token", busy_share(quiet, header.threads)
        switches = switches_per_token(quiet)
        often = switches >= _SWITCHES_PER_TOKEN
    else:
        return []
    if busy >= CONTENDED_BELOW or not often:
        return []
    return [
        Contended(
            threads=header.threads,
            busy_share=busy,
            switches=round(switches),
            per=per,
            process=process,
            workstation=board.workstation,
        )
    ]


def _of_one_width(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of as many drafts as most have: with more of them a step takes longer."""
    widths = Counter(step.speculated_tokens for step in steps)
    return [step for step in steps if step.speculated_tokens == widths.most_common(1)[0][0]]


def ended_after(job: Job, output: Output) -> int | None:
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


def more_tokens(job: Job, output: Output, wanted: int) -> MoreTokens:
    """Return what is known of how to have so many tokens timed."""
    return MoreTokens(
        wanted_tokens=wanted,
        answer_tokens=ended_after(job, output),
        has_plan=job.plan is not None,
        has_count=job.watched is None or job.watched.n_predict is not None,
    )


def _doubts_about_spread(
    job: Job, output: Output, process: BackgroundProcess | None
) -> list[Unsteady | WideSpread]:
    workstation, quiet = job.board.workstation, _of_one_width(without_storage(output.steps))
    samples = [step.duration_s / step.generated_tokens for step in quiet]
    if len(samples) < FEWEST_TOKENS:
        return []
    median, slow = quantile(samples, 50), quantile(samples, 90)
    if not median:  # a clock that stands still
        return []
    if len(samples) >= _SPREAD_NEEDS_STEPS and slow >= UNSTEADY_FROM * median:
        return [Unsteady(times_median=slow / median, process=process, workstation=workstation)]
    interval = median_interval(samples)
    if interval is None:
        return []
    off = max(interval.high / median - 1, 1 - interval.low / median)
    if off <= MEDIAN_WITHIN:
        return []
    wanted = tokens_for_precision(samples, MEDIAN_WITHIN / 2)
    helps = wanted <= _MORE_TOKENS_HELP * len(samples)
    more = more_tokens(job, output, wanted) if helps else None
    adds_repeats = job.place is not None and job.place.precision is not None
    return [WideSpread(within=off, more=more, adds_repeats=adds_repeats, workstation=workstation)]
