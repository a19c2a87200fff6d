"""Reasons to doubt the figures of a load: what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from armload.analysis.finding import ToldFinding, any_of
from armload.analysis.load.quantiles import Distribution
from armload.analysis.load.records import LoadPoint, Objectives
from armload.analysis.load.request_columns import EndedRequest, has_filled
from armload.core.values import counted

MOST_LATENESS_S = 0.010
"""What a client may be late for 99% of its requests without a doubt about the figures..."""

MOST_LATENESS_SHARE = 0.05
"""...or as a share of the median time from sending to the first token, where that is more."""


class LoadFinding(ToldFinding):
    """A reason to doubt the figures of a load."""


class NoneSucceeded(LoadFinding):
    """No request succeeded."""

    kind: Literal["none succeeded"] = "none succeeded"

    def fact(self) -> str:
        return "No request succeeded."


class ClientLate(LoadFinding):
    """The client sent 1% of the requests ``late_s`` or more after they were scheduled."""

    kind: Literal["client late"] = "client late"
    late_s: float
    allowed_s: float

    def fact(self) -> str:
        return (
            f"The client was late: 1% of the requests began {self.late_s * 1000:.0f} ms or more "
            f"behind schedule; up to {self.allowed_s * 1000:.0f} ms is acceptable. This machine is "
            "too busy, or too slow for this rate."
        )


class OfRequests(LoadFinding):
    """So many of a load's requests; of all it is 0 where their number was not fixed."""

    count: int
    requests: int


class ClientLimited(OfRequests):
    """This machine had no file or port left for the connections of some requests."""

    kind: Literal["client limited"] = "client limited"

    def fact(self) -> str:
        return (
            f"{self.count:,} of {counted(self.requests, 'request')} were not sent: this machine "
            "had no open files or ports left."
        )

    def advice(self) -> str:
        return "Raise its limit (ulimit -n), or use a lower rate."


class Cancelled(OfRequests):
    """The load was ended before all requests were answered."""

    kind: Literal["cancelled"] = "cancelled"

    def fact(self) -> str:
        return f"Ended early: {self.count:,} of {self.requests:,} requests were cancelled."


class Incomplete(OfRequests):
    """Only so many requests have a record."""

    kind: Literal["incomplete"] = "incomplete"

    def fact(self) -> str:
        of_all = f" of {self.requests:,}" if self.requests else ""
        return (
            f"Incomplete: only {self.count:,}{of_all} requests were recorded. The load is still "
            "running, or its command was killed."
        )


class ServiceEnded(LoadFinding):
    """The service ended, or could no longer be reached; ``reason`` is a sentence."""

    kind: Literal["service ended"] = "service ended"
    reason: str

    def fact(self) -> str:
        return f"The service ended before the load did. {self.reason}"


class LinesIgnored(LoadFinding):
    """Streams of ``answers`` had lines that are not of their format."""

    kind: Literal["lines ignored"] = "lines ignored"
    lines: int
    answers: int

    def fact(self) -> str:
        answers, lines = counted(self.answers, "answer"), counted(self.lines, "line")
        return f"Ignored {lines} in the streams of {answers} that are not events."

    def advice(self) -> str:
        return "Text may be missing: check the service, and any proxy in front of it."


class OfAnswers(LoadFinding):
    """So many of a load's answers."""

    count: int
    answers: int

    @property
    def some(self) -> str:
        return f"{self.count:,} of {counted(self.answers, 'answer')}"


class AnswersCutOff(OfAnswers):
    """Answers ended before their limit; ``filled`` of them are known to have filled the context."""

    kind: Literal["answers cut off"] = "answers cut off"
    filled: int

    def fact(self) -> str:
        fewer = "the server generated fewer tokens than requested"
        if self.filled == self.count:
            return (
                f"{self.some} ended before the limit, because prompt and answer filled the "
                f"context: {fewer}."
            )
        full = f", {self.filled:,} because the context was full" if self.filled else ""
        return (
            f"{self.some} ended before the limit{full}: {fewer} and gives the length as the reason."
        )

    def advice(self) -> str:
        if self.filled == self.count:
            return "Use a larger --context, or shorter requests."
        return "It may have its own limit, or too small a context."


class AnswersShort(OfAnswers):
    """Answers have fewer tokens than were demanded (``ignore_eos``); ``fewest`` of them."""

    kind: Literal["answers short"] = "answers short"
    fewest: int

    def fact(self) -> str:
        return (
            f"{self.some} have fewer tokens than demanded, down to {self.fewest:,}, and count as "
            "outside the SLO. The service seems to ignore ignore_eos (llama-server, vLLM and "
            "SGLang support it)."
        )

    def advice(self) -> str:
        return "Let answers end where the model does: --stop-at-end."


class PromptsCut(OfAnswers):
    """The service counts fewer tokens of prompts than they have words; at most ``most_tokens``."""

    kind: Literal["prompts cut"] = "prompts cut"
    most_tokens: int

    def fact(self) -> str:
        return (
            f"The prompts of {self.some} seem to be cut: the service counts fewer tokens than they "
            f"have words, at most {self.most_tokens:,}. These answers count as outside the SLO."
        )

    def advice(self) -> str:
        return "Give the service a larger context, or use shorter prompts."


class CountsRefused(OfAnswers):
    """The service reported token counts that are impossible."""

    kind: Literal["counts refused"] = "counts refused"

    def fact(self) -> str:
        return (
            f"The service's token counts of {self.some} are not used: they are impossible, such as "
            "negative, not whole, more than the request allows, or fewer than the parts in which "
            "the text arrived. The records have them as refused_counts."
        )


class TokensUncounted(OfAnswers):
    """The service reported no token count for some answers."""

    kind: Literal["tokens uncounted"] = "tokens uncounted"

    def fact(self) -> str:
        return (
            f"The service reported no token count for {self.some}. These have no time per output "
            "token and count as outside the SLO: remove tpot from --slo."
        )


class AnswersAtOnce(OfAnswers):
    """Answers arrived so that they have no time per output token, which has an objective."""

    kind: Literal["answers at once"] = "answers at once"

    def fact(self) -> str:
        return (
            f"{self.some} arrived in one piece, or most of their tokens with the first one. Their "
            "time per output token was not observed, and they count as outside the SLO: the "
            "service does not stream, or a proxy in front of it collects what it sends."
        )

    def advice(self) -> str:
        return "Remove tpot from --slo."


if TYPE_CHECKING:
    AnyLoadFinding = LoadFinding
else:
    AnyLoadFinding = any_of(LoadFinding)


def about_client(lateness: Distribution | None, answer: Distribution | None) -> list[LoadFinding]:
    """Compare how late requests were sent with how long their answers took.

    Args:
        answer: from sending to the first token, or to an embedding; none where no request
            succeeded.
    """
    if answer is None:
        return [NoneSucceeded()]
    allowed_s = max(MOST_LATENESS_S, MOST_LATENESS_SHARE * answer.median.value_s)
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
