"""Whether something slowed a run: heat, other programs, or weights that came late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from armload.analysis.columns import (
    Cores,
    busy_share,
    cores_of,
    prompt_without_storage,
    switches_per_token,
    without_storage,
)
from armload.analysis.conditions_log import Around, BackgroundProcess, busiest
from armload.analysis.run import FindingName
from armload.analysis.statistics import FEWEST_TOKENS, median_interval, tokens_to_know
from armload.analysis.streaming import doubts_about_streaming
from armload.analysis.summary import generating, quantile
from armload.boards.conditions import Conditions
from armload.core.values import counted
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
    job: Job, output: Output, around: Around, *, measures_tokens: bool
) -> list[tuple[FindingName, str]]:
    """Return what slowed a run, by the names of the findings.

    Args:
        measures_tokens: times per token are what the run was for.
    """
    steps = output.steps
    named = _named(around.background or ())
    cores = cores_of(output.header, job.before, job.plan.cpus if job.plan else None)
    slowed = _doubts_about_frequency(steps, cores)
    if _ARM & set(job.board.cpu_features):  # elsewhere the maximum is that of one core alone
        slowed += _doubts_from_the_start(steps, job.before, around, cores)
    contended = (
        []
        if output.header is None
        else _doubts_about_the_cpu(steps, output.header, named, job.board)
    )
    return [
        *(("throttled", doubt) for doubt in slowed),
        *(("contended", doubt) for doubt in contended),
        *(_doubts_about_spread(job, output, named) if measures_tokens else ()),
        *(("streaming", doubt) for doubt in doubts_about_streaming(output.header, steps)),
    ]


def _named(background_processes: Sequence[BackgroundProcess]) -> str:
    found = busiest(background_processes, share=NAMED_FROM_SHARE)
    if found is None:
        return ""
    return f"{found.name}{' (the kernel)' if found.kernel else ''}, {found.share:.0%} of a core"


def _doubts_from_the_start(
    steps: tuple[Step, ...], before: Conditions, around: Around, cores: Cores
) -> list[str]:
    """Hold the fastest cores that the engine may use against the highest frequency they have."""
    usable = [
        cluster
        for cluster in before.clusters
        if cluster.max_khz and (cores.allowed is None or cores.allowed & {*cluster.cores})
    ]
    if not usable:
        return []
    fastest = max(cluster.max_khz or 0 for cluster in usable)
    numbers = {n for each in usable if each.max_khz == fastest for n in each.cores}
    if cores.allowed is not None:
        numbers &= cores.allowed
    known = [step for step in generating(steps) if cores.of(numbers, step)]
    if len(known) < _SPREAD_NEEDS_STEPS:
        return []
    highest = max(cores.of(numbers, step) for step in known)
    if highest >= BELOW_THE_MAXIMUM * fastest:
        return []
    had = {each.governor for each in usable if each.max_khz == fastest and each.governor}
    governor = around.governor or (had.pop() if len(had) == 1 else None)
    governed = f" under the governor {governor}" if governor else ""
    or_set_it = "" if governor == "performance" else ", or use --governor performance"
    degrees = [step.celsius for step in known if step.celsius is not None]
    heat = f", at up to {max(degrees):.0f} °C" if degrees else ""
    return [
        (
            f"Throttled from the start: the fastest cores never ran above {highest / 1e6:.2f} of "
            f"their {fastest / 1e6:.2f} GHz{governed}{heat}. Let the board cool first "
            f"(--cool-to){or_set_it}."
        )
    ]


def _doubts_about_frequency(steps: tuple[Step, ...], cores: Cores) -> list[str]:
    # The fastest core counts: the engine is on it, and slower clusters never reach it.
    known = [(step, khz) for step in generating(steps) if (khz := cores.khz(step))]
    if len(known) < _SPREAD_NEEDS_STEPS:
        return []
    highest = max(khz for _, khz in known)
    slowed = [(step, khz) for step, khz in known if khz < THROTTLED_BELOW * highest]
    share = sum(step.duration_s for step, _ in slowed) / sum(step.duration_s for step, _ in known)
    if not slowed or share < THROTTLED_FROM:
        return []
    lowest = min(khz for _, khz in slowed)
    degrees = [step.celsius for step, _ in slowed if step.celsius is not None]
    heat = f", at up to {max(degrees):.0f} °C" if degrees else ""
    return [
        (
            f"Throttled: for {share:.0%} of the time none of the run's cores was above "
            f"{THROTTLED_BELOW * highest / 1e6:.2f} GHz, down to {lowest / 1e6:.2f} of "
            f"{highest / 1e6:.2f} GHz{heat}. Let the board cool first (--cool-to), or use "
            "--governor performance."
        )
    ]


def _doubts_about_the_cpu(
    steps: tuple[Step, ...], header: Trace, named: str, board: BoardRecord
) -> list[str]:
    if header.threads is None:
        return []
    prompt, quiet = prompt_without_storage(steps), without_storage(steps)
    if sum(step.duration_s for step in prompt) >= _SHORTEST_PROMPT_S:
        busy, preempted = busy_share(prompt, header.threads), _preempted_in_prompt(prompt)
    elif len(quiet) >= _SPREAD_NEEDS_STEPS and sum(step.duration_s for step in quiet) > 0:
        busy, preempted = busy_share(quiet, header.threads), _preempted_per_token(quiet)
    else:
        return []
    if busy >= CONTENDED_BELOW or not preempted:
        return []
    threads = counted(header.threads, "thread")
    by = f", mostly by {named}" if named else ""
    return [
        (
            f"Contended: the engine's {threads} had the CPU for {busy:.0%} of the time and were "
            f"preempted {preempted}{by}. End other programs {_where_else(board)}, or use fewer "
            "threads."
        )
    ]


def _preempted_per_token(steps: Sequence[Step]) -> str:
    switches = switches_per_token(steps)
    often = switches >= _SWITCHES_PER_TOKEN
    return f"{counted(round(switches), 'time')} per token" if often else ""


def _preempted_in_prompt(steps: Sequence[Step]) -> str:
    switches = sum(step.involuntary_switches or 0 for step in steps)
    often = switches >= _SWITCHES_PER_S * sum(step.duration_s for step in steps)
    return f"{counted(switches, 'time')} while they read the prompt" if often else ""


def _where_else(board: BoardRecord) -> str:
    workstation = board.workstation
    if workstation is None:
        return "there"
    return (
        "on this machine, whose CPU the virtual board shares (its load was "
        f"{workstation.load:.1f} on {counted(workstation.cores, 'core')} when the run began)"
    )


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


def more_tokens(job: Job, output: Output, wanted: int) -> str:
    """Say how to have so many tokens timed, without the sentence's end."""
    tokens = ended_after(job, output)
    if tokens is not None:
        without = ", or omit --stop-at-end" if job.plan is not None else ""
        return (
            f"The model ended its answer after {counted(tokens, 'token')}: "
            f"use a --prompt with a longer answer{without}"
        )
    if job.watched is not None and job.watched.n_predict is None:
        return f"Let the program generate {wanted} tokens or more"
    return f"Use -n {wanted} or more"


def _doubts_about_spread(job: Job, output: Output, named: str) -> list[tuple[FindingName, str]]:
    board, quiet = job.board, _of_one_width(without_storage(output.steps))
    samples = [step.duration_s / step.generated_tokens for step in quiet]
    if len(samples) < FEWEST_TOKENS:
        return []
    median, slow = quantile(samples, 50), quantile(samples, 90)
    if not median:  # a clock that stands still
        return []
    if len(samples) >= _SPREAD_NEEDS_STEPS and slow >= UNSTEADY_FROM * median:
        doubt = (
            f"Unsteady: one token in ten took {slow / median:.1f} times the median or more, "
            "without reading from storage. "
            + (f"Another program used the CPU ({named}). " if named else "")
            + f"End other programs {_where_else(board)}, and run it again."
        )
        return [("unsteady", doubt)]
    interval = median_interval(samples)
    if interval is None:
        return []
    off = max(interval.high / median - 1, 1 - interval.low / median)
    if off <= MEDIAN_WITHIN:
        return []
    wanted = tokens_to_know(samples, MEDIAN_WITHIN / 2)
    repeats = "" if job.plan is None else ", or allow more time for repeats (--precision-time)"
    advice = (
        f"{more_tokens(job, output, wanted)}{repeats}."
        if wanted <= _MORE_TOKENS_HELP * len(samples)
        else f"Stop other processes {_where_else(board)}, or use --repeats."
    )
    doubt = f"Too few tokens for their spread: the median is known only within {off:.0%}. {advice}"
    return [("few tokens", doubt)]
