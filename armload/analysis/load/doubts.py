"""What makes the figures of a load doubtful: a client that was too slow, or answers cut off."""

from __future__ import annotations

from collections.abc import Sequence

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
    LoadFinding,
    NoneSucceeded,
    PromptsCut,
    ServiceEnded,
    TokensUncounted,
)
from armload.analysis.load.quantiles import Distribution
from armload.analysis.load.records import LoadPoint, Objectives
from armload.analysis.load.request_columns import EndedRequest, has_filled

MOST_LATENESS_S = 0.010
"""What a client may be late for 99% of its requests without a doubt about the figures..."""

MOST_LATENESS_SHARE = 0.05
"""...or as a share of the median time from sending to the first token, where that is more."""


def about_client(lateness: Distribution | None, answer: Distribution | None) -> list[LoadFinding]:
    """Compare how late requests were sent with how long their answers took.

    Args:
        answer: from sending to the first token, or to an embedding; none where no request
            succeeded.
    """
    if answer is None:
        return [NoneSucceeded()]
    allowed_s = max(MOST_LATENESS_S, MOST_LATENESS_SHARE * answer.p50.value_s)
    if lateness is None or lateness.p99.value_s <= allowed_s:
        return []
    return [ClientLate(late_s=lateness.p99.value_s, allowed_s=allowed_s)]


def about_requests(
    point: LoadPoint, records: Sequence[EndedRequest], measured: Sequence[EndedRequest]
) -> list[LoadFinding]:
    """Return why requests have no answer of the service, or no record.

    Args:
        records: of all requests.
        measured: of those after the warm-up.
    """
    doubts: list[LoadFinding] = []
    if limited := sum(each.outcome == "client-limit" for each in measured):
        doubts.append(ClientLimited(count=limited, requests=len(measured)))
    if point.service_ended:
        doubts.append(ServiceEnded(reason=point.service_ended))
    if cancelled := sum(each.outcome == "cancelled" for each in records):
        doubts.append(Cancelled(count=cancelled, requests=point.requests))
    elif point.is_under_way or len(records) < point.requests:
        doubts.append(Incomplete(count=len(records), requests=point.requests))
    return doubts


def about_answers(
    ok: Sequence[EndedRequest], context_tokens: int | None, objectives: Objectives | None
) -> list[LoadFinding]:
    """Return why answers are not what was asked for, or cannot be judged.

    Args:
        ok: the answered requests after the warm-up.
        context_tokens: of each slot; none where they are not known.
    """
    doubts: list[LoadFinding] = []
    if cut_off := [record for record in ok if record.is_cut_off]:
        filled = sum(has_filled(record, context_tokens) for record in cut_off)
        doubts.append(AnswersCutOff(count=len(cut_off), filled=filled, answers=len(ok)))
    if ignored := [record.ignored_lines for record in ok if record.ignored_lines]:
        doubts.append(LinesIgnored(lines=sum(ignored), answers=len(ignored)))
    if short := [record.received_tokens for record in ok if record.is_short]:
        doubts.append(AnswersShort(count=len(short), fewest=min(short), answers=len(ok)))
    if cut := [record.prompt_tokens or 0 for record in ok if record.is_prompt_cut]:
        doubts.append(PromptsCut(count=len(cut), most_tokens=max(cut), answers=len(ok)))
    if refused := sum(record.has_refused_counts for record in ok):
        doubts.append(CountsRefused(count=refused, answers=len(ok)))
    if objectives is not None and objectives.tpot_s is not None:
        texts = [record for record in ok if record.dimensions is None]
        if uncounted := sum(record.generated_tokens is None for record in texts):
            doubts.append(TokensUncounted(count=uncounted, answers=len(ok)))
        if at_once := sum(record.is_at_once for record in texts):
            doubts.append(AnswersAtOnce(count=at_once, answers=len(ok)))
    return doubts
