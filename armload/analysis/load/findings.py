"""Reasons to doubt the figures of a load, each a kind with its numbers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from armload.core.values import Value


class NoneSucceeded(Value):
    """No request succeeded."""

    kind: Literal["none succeeded"] = "none succeeded"


class ClientLate(Value):
    """The client sent 1% of the requests ``late_s`` or more after they were scheduled."""

    kind: Literal["client late"] = "client late"
    late_s: float
    allowed_s: float


class Cancelled(Value):
    """The load was ended before all requests were answered."""

    kind: Literal["cancelled"] = "cancelled"
    cancelled: int
    requests: int


class Incomplete(Value):
    """Requests have no record; ``requests`` is 0 where their number was not fixed."""

    kind: Literal["incomplete"] = "incomplete"
    recorded: int
    requests: int


class ClientLimited(Value):
    """This machine had no file or port left for the connections of some requests."""

    kind: Literal["client limited"] = "client limited"
    limited: int
    requests: int


class ServiceEnded(Value):
    """The service ended, or could no longer be reached; ``reason`` is a sentence."""

    kind: Literal["service ended"] = "service ended"
    reason: str


class AnswersCutOff(Value):
    """Answers ended before their limit; ``filled`` of them are known to have filled the context."""

    kind: Literal["answers cut off"] = "answers cut off"
    cut_off: int
    filled: int
    answers: int


class LinesIgnored(Value):
    """Streams of ``answers`` had lines that are not of their format."""

    kind: Literal["lines ignored"] = "lines ignored"
    lines: int
    answers: int


class TokensUncounted(Value):
    """The service reported no token count for some answers."""

    kind: Literal["tokens uncounted"] = "tokens uncounted"
    uncounted: int
    answers: int


class AnswersShort(Value):
    """Answers have fewer tokens than were demanded (``ignore_eos``); ``fewest`` of them."""

    kind: Literal["answers short"] = "answers short"
    short: int
    fewest: int
    answers: int


class PromptsCut(Value):
    """The service counts fewer tokens of prompts than they have words; at most ``most_tokens``."""

    kind: Literal["prompts cut"] = "prompts cut"
    cut: int
    most_tokens: int
    answers: int


class CountsRefused(Value):
    """The service reported token counts that are impossible."""

    kind: Literal["counts refused"] = "counts refused"
    refused: int
    answers: int


class AnswersAtOnce(Value):
    """Answers arrived so that they have no time per output token, which has an objective."""

    kind: Literal["answers at once"] = "answers at once"
    at_once: int
    answers: int


LoadFigures = Annotated[
    NoneSucceeded
    | ClientLate
    | ClientLimited
    | Cancelled
    | Incomplete
    | ServiceEnded
    | AnswersCutOff
    | LinesIgnored
    | TokensUncounted
    | AnswersShort
    | PromptsCut
    | CountsRefused
    | AnswersAtOnce,
    Field(discriminator="kind"),
]


class LoadFinding(Value):
    """A reason to doubt the figures of a load.

    Attributes:
        figures: what was found, in numbers.
        sentence: for people.
    """

    figures: LoadFigures
    sentence: str
