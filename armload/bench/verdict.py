"""Whether a run's figures may be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.bench.cpu_set import cpu_numbers
from armload.bench.cpu_share import busy_share, switches_per_token, without_storage
from armload.bench.measures import Cache, Swapped
from armload.bench.plan import Plan
from armload.bench.record import BoardRecord
from armload.bench.run import Exit, Step, Trace, Verdict
from armload.bench.sanity import doubts_about_text
from armload.bench.statistics import FEWEST_TOKENS, median_interval, tokens_to_know
from armload.bench.strangers import Stranger, busiest
from armload.bench.summary import generating, quantile, token_times
from armload.boards.conditions import Conditions
from armload.core.values import format_bytes

UNSTEADY_FROM = 2.0
"""The 90th percentile of the time per token must stay below so many medians."""

CONTENDED_BELOW = 0.80
"""Share of wall time that the engine's threads must run, when nothing is read from storage."""

THROTTLED_BELOW, THROTTLED_FROM = 0.95, 0.10
"""A tenth of the time below 95 % of the frequency that the run has reached is throttling."""

BELOW_THE_MAXIMUM = 0.90
"""A core that never comes nearer to the highest frequency that it has is held back."""

STRANGER_NAMED_FROM = 0.10
"""Share of a core from which a stranger is named as what pushed the engine aside."""

SWAPPED_FROM_BYTES = 1 << 20

MEDIAN_WITHIN = 0.10
"""A median that is not known better than this is no figure to compare."""

_ARM = {"asimd", "neon"}
_SPREAD_NEEDS_STEPS = 10
_SWITCHES_PER_TOKEN = 1
_MORE_TOKENS_HELP = 10  # times as many; a median that takes more than that is disturbed


@dataclass(frozen=True, kw_only=True)
class Around:
    """What was noted on the board around a run; none where that is not known."""

    before: Conditions
    after: Conditions | None = None
    cache: Cache | None = None
    governor: str | None = None
    strangers: Sequence[Stranger] | None = None
    swapped: Swapped | None = None


def judge(
    plan: Plan | None,
    *,
    ended: Exit,
    header: Trace | None,
    steps: tuple[Step, ...],
    text: str | None,
    board: BoardRecord,
    around: Around,
) -> Verdict:
    """Collect every reason to doubt the run; it is valid when there is none.

    Without a plan, as for a foreign program, nobody knows how many tokens were asked for; without
    a text the program was to write none.
    """
    reasons = []
    if ended.status != 0:
        reasons.append(ended.meaning)
    if header is None:
        reasons.append("There is no trace: the program never began to decode.")
    elif ended.status == 0 and plan is not None:
        reasons += _doubts_about_the_count(plan, steps)
    if ended.status == 0 and text is not None:
        of_words = plan is not None and plan.prompt_tokens is not None
        reasons += doubts_about_text(text, of_words=of_words)
    reasons += _doubts_about_frequency(steps)
    if _ARM & set(board.cpu_features):  # elsewhere the maximum is that of one core alone
        reasons += _doubts_from_the_start(steps, around, plan.cpus if plan else None)
    named = _named(around.strangers or ())
    if header is not None:
        reasons += _doubts_about_the_cpu(steps, header, named, board)
    if ended.status == 0:
        reasons += _doubts_about_few(steps)
    reasons += _doubts_about_spread(steps, named, board)
    if plan is not None and plan.cold and header is not None and around.cache in (None, "as found"):
        reasons.append(
            "The run was to be cold, and the board could not be made to forget its files: it needs "
            "the right to write /proc/sys/vm/drop_caches, or a program of ours."
        )
    if around.after is not None and around.after.boot_id != around.before.boot_id:
        reasons.append("The board rebooted during the run.")
    reasons += _doubts_about_swap(around)
    return Verdict(valid=not reasons, reasons=tuple(reasons))


def _doubts_about_the_count(plan: Plan, steps: tuple[Step, ...]) -> list[str]:
    doubts = []
    generated = sum(step.tokens for step in generating(steps))
    # The last token is sampled and never decoded.
    if not plan.stop_at_end and generated != plan.n_predict - 1:
        doubts.append(
            f"{plan.n_predict} tokens were asked for and the trace holds {generated + 1}."
        )
    read = sum(step.tokens for step in steps if step.phase == "prompt")
    if plan.prompt_tokens is not None and read != plan.prompt_tokens:
        doubts.append(
            f"A prompt of {plan.prompt_tokens} tokens was asked for, and {read} were read."
        )
    return doubts


def _named(strangers: Sequence[Stranger]) -> str:
    found = busiest(strangers, share=STRANGER_NAMED_FROM)
    if found is None:
        return ""
    return f"{found.name}{' (the kernel)' if found.kernel else ''}, {found.share:.0%} of a core"


def _doubts_about_swap(around: Around) -> list[str]:
    used = ""
    if around.after is not None:
        total = around.after.swap_total_bytes
        of_all = f" of {format_bytes(total)}" if total else ""
        used = (
            f" ({format_bytes(around.before.swap_used_bytes)} were in use before, "
            f"{format_bytes(around.after.swap_used_bytes)}{of_all} after)"
        )
    moved = around.swapped
    if moved is not None:
        if max(moved.in_bytes, moved.out_bytes) < SWAPPED_FROM_BYTES:
            return []
        return [
            (
                f"The board swapped {format_bytes(moved.out_bytes)} out and "
                f"{format_bytes(moved.in_bytes)} in during the run{used}."
            )
        ]
    if around.after is None:
        return []
    more = around.after.swap_used_bytes - around.before.swap_used_bytes
    if more < SWAPPED_FROM_BYTES:
        return []
    return [f"The board swapped {format_bytes(more)} out during the run{used}."]


def _doubts_from_the_start(steps: tuple[Step, ...], around: Around, cpus: str | None) -> list[str]:
    """Hold the fastest cores that the engine may use against the highest frequency they have."""
    numbers = [core for cluster in around.before.clusters for core in cluster.cores]
    known = [step for step in generating(steps) if len(step.cpu_khz) == len(numbers)]
    allowed = set(numbers if cpus is None else cpu_numbers(cpus))
    usable = [
        cluster
        for cluster in around.before.clusters
        if cluster.max_khz and allowed & {*cluster.cores}
    ]
    if len(known) < _SPREAD_NEEDS_STEPS or not usable:
        return []
    fastest = max(cluster.max_khz or 0 for cluster in usable)
    cores = {n for each in usable if each.max_khz == fastest for n in each.cores} & allowed
    places = [place for place, number in enumerate(sorted(numbers)) if number in cores]
    highest = max(step.cpu_khz[place] for step in known for place in places)
    if not 0 < highest < BELOW_THE_MAXIMUM * fastest:
        return []
    had = {each.governor for each in usable if each.max_khz == fastest and each.governor}
    governor = around.governor or (had.pop() if len(had) == 1 else None)
    governed = f" under the governor {governor}" if governor else ""
    or_set_it = "" if governor == "performance" else ", or say --governor performance"
    degrees = [step.celsius for step in known if step.celsius is not None]
    heat = f", at up to {max(degrees):.0f} °C" if degrees else ""
    return [
        (
            f"Throttled from the start: the fastest cores never ran above {highest / 1e6:.2f} of "
            f"their {fastest / 1e6:.2f} GHz{governed}{heat}. Let the board cool with --cool-to"
            f"{or_set_it}."
        )
    ]


def _doubts_about_frequency(steps: tuple[Step, ...]) -> list[str]:
    # The fastest core counts: the engine is on it, and slower clusters never reach it.
    known = [(step, max(step.cpu_khz)) for step in generating(steps) if any(step.cpu_khz)]
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
            f"Throttled: for {share:.0%} of the time no core ran above "
            f"{THROTTLED_BELOW * highest / 1e6:.2f} GHz, down to {lowest / 1e6:.2f} of "
            f"{highest / 1e6:.2f} GHz{heat}. Let it cool with --cool-to, or say "
            "--governor performance."
        )
    ]


def _doubts_about_the_cpu(
    steps: tuple[Step, ...], header: Trace, named: str, board: BoardRecord
) -> list[str]:
    quiet = without_storage(steps)
    wall_s = sum(step.duration_s for step in quiet)
    if header.threads is None or len(quiet) < _SPREAD_NEEDS_STEPS or wall_s <= 0:
        return []
    busy, switches = busy_share(quiet, header.threads), switches_per_token(quiet)
    if busy >= CONTENDED_BELOW or switches < _SWITCHES_PER_TOKEN:
        return []
    threads = f"{header.threads} thread{'s' if header.threads > 1 else ''}"
    by = f", mostly by {named}" if named else ""
    return [
        (
            f"Contended: the engine's {threads} had the CPU for {busy:.0%} of the time and were "
            f"pushed aside {switches:.0f} times per token{by}. End what else runs "
            f"{_where_else(board)}, or take fewer threads."
        )
    ]


def _where_else(board: BoardRecord) -> str:
    laptop = board.laptop
    if laptop is None:
        return "there"
    return (
        f"on this laptop, whose CPU the virtual board shares (its load was {laptop.load:.1f} on "
        f"{laptop.cores} core{'s' if laptop.cores > 1 else ''} when the run began)"
    )


def _doubts_about_few(steps: tuple[Step, ...]) -> list[str]:
    timed = len(token_times(steps))
    if not 0 < timed < FEWEST_TOKENS:
        return []
    return [
        (
            f"Too few tokens: {timed} after the first {'was' if timed == 1 else 'were'} timed, and "
            f"fewer than {FEWEST_TOKENS} do not show their own spread. Ask for "
            f"{FEWEST_TOKENS + 1} or more with -n."
        )
    ]


def _doubts_about_spread(steps: tuple[Step, ...], named: str, board: BoardRecord) -> list[str]:
    quiet = without_storage(steps)
    samples = [step.duration_s / step.tokens for step in quiet]
    if len(samples) < FEWEST_TOKENS:
        return []
    median, slow = quantile(samples, 50), quantile(samples, 90)
    if len(samples) >= _SPREAD_NEEDS_STEPS and slow >= UNSTEADY_FROM * median:
        by = f" ({named})" if named else ""
        return [
            (
                f"Unsteady: one token in ten took {slow / median:.1f} times the median or more, "
                f"without reading storage. Something else used the CPU{by}. End what else runs "
                f"{_where_else(board)}, and run it again."
            )
        ]
    interval = median_interval(samples)
    if interval is None:
        return []
    off = max(interval.high / median - 1, 1 - interval.low / median)
    if off <= MEDIAN_WITHIN:
        return []
    wanted = tokens_to_know(samples, MEDIAN_WITHIN / 2)
    advice = (
        f"About {wanted} would do: say so with -n, or repeat the run."
        if wanted <= _MORE_TOKENS_HELP * len(samples)
        else f"End what else runs {_where_else(board)}, or run it several times, with --repeats."
    )
    return [f"Too few tokens for their spread: the median is known to {off:.0%} only. {advice}"]
