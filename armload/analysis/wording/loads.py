"""What a service sustains under load, and why requests were slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.analysis.load.findings import (
    AnswersAtOnce,
    AnswersCutOff,
    AnswersShort,
    Cancelled,
    ClientLate,
    ClientLimited,
    CountsRefused,
    Incomplete,
    LinesIgnored,
    LoadFigures,
    NoneSucceeded,
    PromptsCut,
    ServiceEnded,
    TokensUncounted,
)
from armload.core.values import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from armload.analysis.load.assessed import AssessedPoint, Cause
    from armload.analysis.load.metrics import Metrics
    from armload.analysis.statistics import Interval

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def doubt(found: LoadFigures) -> str:
    match found:
        case NoneSucceeded():
            return "No request succeeded."
        case ClientLate():
            return (
                f"The client was late: 1% of the requests began {found.late_s * 1000:.0f} ms or "
                f"more behind schedule; up to {found.allowed_s * 1000:.0f} ms is acceptable. This "
                "machine is too busy, or too slow for this rate."
            )
        case ClientLimited():
            return (
                f"{found.limited:,} of {counted(found.requests, 'request')} were not sent: this "
                "machine had no open files or ports left. Raise its limit (ulimit -n), or use a "
                "lower rate."
            )
        case Cancelled():
            return (
                f"Ended early: {found.cancelled:,} of {found.requests:,} requests were cancelled."
            )
        case Incomplete():
            of_all = f" of {found.requests:,}" if found.requests else ""
            return (
                f"Incomplete: only {found.recorded:,}{of_all} requests were recorded. The load is "
                "still running, or its command was killed."
            )
        case ServiceEnded():
            return f"The service ended before the load did. {found.reason}"
        case AnswersCutOff() | LinesIgnored() | AnswersShort() | PromptsCut():
            return _about_answers(found)
        case TokensUncounted() | CountsRefused() | AnswersAtOnce():
            return _about_figures(found)


def _about_answers(found: AnswersCutOff | LinesIgnored | AnswersShort | PromptsCut) -> str:
    match found:
        case AnswersCutOff():
            ended = (
                f"{found.cut_off:,} of {counted(found.answers, 'answer')} ended before the limit"
            )
            if found.filled == found.cut_off:
                return (
                    f"{ended}, because prompt and answer filled the context: the server generated "
                    "fewer tokens than requested. Use a larger --context, or shorter requests."
                )
            full = f", {found.filled:,} because the context was full" if found.filled else ""
            return (
                f"{ended}{full}: the server generated fewer tokens than requested and gives the "
                "length as the reason. It may have its own limit, or too small a context."
            )
        case LinesIgnored():
            answers, lines = counted(found.answers, "answer"), counted(found.lines, "line")
            return (
                f"Ignored {lines} in the streams of {answers} that are not events. Text may be "
                "missing: check the service, and any proxy in front of it."
            )
        case AnswersShort():
            return (
                f"{found.short:,} of {counted(found.answers, 'answer')} have fewer tokens than "
                f"demanded, down to {found.fewest:,}, and count as outside the SLO. The service "
                "seems to ignore ignore_eos (llama-server, vLLM and SGLang support it). Let "
                "answers end where the model does: --stop-at-end."
            )
        case PromptsCut():
            return (
                f"The prompts of {found.cut:,} of {counted(found.answers, 'answer')} seem to be "
                f"cut: the service counts fewer tokens than they have words, at most "
                f"{found.most_tokens:,}. These answers count as outside the SLO. Give the service "
                "a larger context, or use shorter prompts."
            )


def _about_figures(found: TokensUncounted | CountsRefused | AnswersAtOnce) -> str:
    match found:
        case CountsRefused():
            return (
                f"The service's token counts of {found.refused:,} of "
                f"{counted(found.answers, 'answer')} are not used: they are impossible, such as "
                "negative, not whole, more than the request allows, or fewer than the parts "
                "in which the text arrived. The records have them as refused_counts."
            )
        case AnswersAtOnce():
            return (
                f"{found.at_once:,} of {counted(found.answers, 'answer')} arrived in one piece, or "
                "most of their tokens with the first one. Their time per output token was not "
                "observed, and they count as outside the SLO: the service does not stream, or a "
                "proxy in front of it collects what it sends. Remove tpot from --slo."
            )
        case TokensUncounted():
            return (
                f"The service reported no token count for {found.uncounted:,} of "
                f"{counted(found.answers, 'answer')}. These have no time per output token and "
                "count as outside the SLO: remove tpot from --slo."
            )


def capacity_headline(
    best: AssessedPoint | None, undecided: AssessedPoint | None, refuted: AssessedPoint | None
) -> str:
    """Say in a few words what a service sustains, after its name."""
    if best is not None:
        return f"sustains {best.label} within the SLO"
    if undecided is not None:
        return f"may or may not sustain {undecided.label} within the SLO"
    assert refuted is not None  # noqa: S101 - there is a point
    return f"does not sustain {refuted.label} within the SLO"


def capacity(
    best: AssessedPoint | None,
    undecided: AssessedPoint | None,
    refuted: AssessedPoint | None,
    cause: Cause | None,
    failure: str,
    most_per_s: Interval | None,
) -> str:
    """Say what a service sustains, what is not known, and why it does not sustain more.

    Args:
        best: the highest point that is sustained.
        undecided: the lowest above it of which that is not known.
        refuted: the lowest that is not sustained.
        cause: of most of its slow requests.
        failure: the most frequent kind, where failures outnumber slow requests; else empty.
        most_per_s: requests/s with all slots busy.
    """
    said = []
    if best is not None:
        more = " or more" if undecided is None and refuted is None and not most_per_s else ""
        said.append(
            f"Sustains {best.label}{more} within the SLO, with 95% confidence ({_share(best)})."
        )
    if undecided is not None:
        upper = _upper(refuted, most_per_s)
        between = f"between {best.label} and {upper}" if best and upper else f"at {undecided.label}"
        said.append(
            f"Undecided {between}: {_share(undecided)} at {undecided.pace:g} are within the SLO, "
            "too few independent observations to tell."
        )
    if refuted is not None:
        reason = _why_not(refuted, cause, failure)
        if best is None:
            said.append(f"Does not sustain {refuted.label} within the SLO ({_share(refuted)}).")
            said += [_sentence(reason)] if reason else []
        else:
            said.append(
                f"At {refuted.label} ({_share(refuted)}), {reason or 'the SLO is not met'}."
            )
    if most_per_s is not None:
        said.append(
            f"With all slots busy, it answers {most_per_s.low:.3g} to {most_per_s.high:.3g} "
            "requests/s (95% confidence), and no higher rate is stable."
        )
    return " ".join(said)


def _upper(refuted: AssessedPoint | None, most_per_s: Interval | None) -> str:
    if refuted is not None:
        return refuted.label
    return "" if most_per_s is None else f"{most_per_s.high:.3g} requests/s"


def _why_not(point: AssessedPoint, cause: Cause | None, failure: str) -> str:
    steady = point.metrics.steady
    if failure:
        failed = sum(point.metrics.failed.values())
        if failure == "abandoned":
            left = point.metrics.failed[failure]
            return f"users give up: {left} of {point.metrics.requests} requests"
        return f"requests fail: {failed} of {point.metrics.requests}, most often as {failure}"
    if steady is not None and steady.stability == "overloaded" and cause in (None, "unexplained"):
        return (
            f"the backlog grows: {counted(steady.open_at_end, 'request')} had no answer when the "
            "last one was sent"
        )
    return "" if cause is None else _reason(point, cause)


def held_back(metrics: Metrics) -> str:
    """Say how many requests of a point waited for the client's cap; nothing where none did."""
    if metrics.held is None:
        return ""
    return (
        f"{metrics.held.count:,} of {counted(metrics.requests, 'request')} waited for "
        f"--max-concurrency, up to {format_seconds(metrics.held.max_s)}. Latencies count from the "
        "scheduled time, and include that wait."
    )


def refused(metrics: Metrics) -> str:
    """Say with what a service refused requests, and what to do; nothing where it refused none."""
    found = metrics.refusal
    if found is None:
        return ""
    message = found.message.rstrip(".")
    return (
        f"{counted(found.requests, 'request')} refused with status {found.status}: {message}. "
        f"{found.remedy}"
    )


def about_chunks(metrics: Metrics) -> list[str]:
    """Say where the times of chunks are not those of tokens."""
    said = []
    if metrics.at_once and not any(isinstance(f.figures, AnswersAtOnce) for f in metrics.findings):
        said.append(
            f"{metrics.at_once:,} of {counted(metrics.ok, 'answer')} arrived in one piece, or most "
            "of their tokens with the first one: these have no time per output token."
        )
    if metrics.tokens_per_chunk is not None:
        said.append(
            f"a chunk has {metrics.tokens_per_chunk:.1f} tokens on average, as with speculative "
            "decoding: inter-token latencies are those between chunks."
        )
    return said


def why_slow(point: AssessedPoint) -> str:
    """Say what made most of a point's slow requests slow; nothing where none was."""
    cause = point.main_cause
    return "" if cause is None else _sentence(_reason(point, cause))


def _share(point: AssessedPoint) -> str:
    found = point.metrics.goodput
    assert found is not None  # noqa: S101 - points without objectives have no capacity
    return f"{found.share:.0%} of {counted(point.metrics.requests, 'request')}"


def _reason(point: AssessedPoint, cause: Cause) -> str:
    board = point.telemetry
    said = {
        "client late": "the client sent requests late",
        "held back": "requests wait for --max-concurrency",
        "queued": "requests queue",
        "blocked by a prompt": "prompts of other requests hold up answers",
        "shared steps": "requests slow each other down",
        "paging": "the server waits for storage",
        "throttling": "the cores are throttled",
        "own length": "the requests are too long for the SLO even when served alone",
        "unexplained": "the records do not show why requests are slow",
    }[cause]
    facts = []
    if cause == "queued" and board.slots and board.all_busy_share is not None:
        facts.append(f"{_slots(board.slots)} busy {board.all_busy_share:.0%} of the time")
    if cause == "blocked by a prompt" and board.prompt_share is not None:
        facts.append(f"steps with prompts took {board.prompt_share:.0%} of the server's time")
    if cause == "throttling" and board.throttled_share is not None:
        hottest = f", at up to {board.celsius_max:.0f} °C" if board.celsius_max else ""
        facts.append(
            f"{board.throttled_share:.0%} of the time they ran below their highest "
            f"frequency{hottest}"
        )
    if cause == "paging" and board.storage_share is not None:
        read = f", reading {format_bytes(board.read_bytes)}" if board.read_bytes else ""
        facts.append(f"{board.storage_share:.0%} of the steps' time{read}")
    if cause in ("queued", "shared steps", "own length"):
        facts += _decode_facts(point)
    return f"{said}: {', and '.join(facts)}" if facts else said


def _decode_facts(point: AssessedPoint) -> list[str]:
    board, limit = point.telemetry, point.limit
    if limit is not None and limit.cause != "unknown":
        return [f"decode steps were limited by {limit.cause}"]
    if board.decode_step_s is None or board.sequences_per_step is None:
        return []
    step_ms, requests = board.decode_step_s * 1000, board.sequences_per_step
    return [f"a decode step took {step_ms:.3g} ms for {requests:.1f} requests"]


def _slots(count: int) -> str:
    if count == 1:
        return "the only slot was"
    if count == 2:
        return "both slots were"
    return f"all {_NUMBERS[count] if count < len(_NUMBERS) else count} slots were"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
