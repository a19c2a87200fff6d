"""A load: its points, what became of each request, and the objectives that it must meet.

All times are seconds on the client's monotonic clock since its load began.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import groupby, pairwise, takewhile
from operator import itemgetter
from typing import Any, Literal

from pydantic import Field

from armload.analysis.statistics import Interval
from armload.core.errors import UsageError
from armload.core.journal import JournalHeader
from armload.core.values import Value

_EXAMPLE = "Example: --slo ttft=2s,tpot=500ms"
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|)")

Objective = Literal["ttft", "tpot", "e2e"]


class Objectives(Value):
    """The most that each latency of a request may be; none where it does not matter.

    Attributes:
        ttft_s: time to first token, from the scheduled time.
        tpot_s: time per output token, without the first.
        e2e_s: end-to-end latency, from the scheduled time.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __str__(self) -> str:
        limits = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}
        return ",".join(f"{name}={each:g}s" for name, each in limits.items() if each is not None)


def read_objectives(text: str) -> Objectives | None:
    """Read what a person typed, such as ``ttft=2s,tpot=500ms``; none of an empty text."""
    if not text:
        return None
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, time = part.strip().partition("=")
        if name not in ("ttft", "tpot", "e2e"):
            raise UsageError(
                f"--slo {text!a}: {name!a} is not a latency metric.",
                f"Use ttft, tpot or e2e. {_EXAMPLE}",
            )
        if f"{name}_s" in limits:
            raise UsageError(f"--slo {text!a}: {name} is given twice.", _EXAMPLE)
        match = _TIME.fullmatch(time.strip())
        limit = float(match[1]) / (1000 if match[2] == "ms" else 1) if match and equals else 0.0
        if limit <= 0:
            raise UsageError(f"--slo {text!a}: {name} must be a time above 0.", _EXAMPLE)
        limits[f"{name}_s"] = limit
    return Objectives(**limits)


Outcome = Literal[
    "ok",
    "client-limit",
    "refused",
    "http",
    "server-error",
    "dropped",
    "timeout",
    "malformed",
    "empty",
    "not-json",
    "schema-mismatch",
    "abandoned",
    "context-full",
    "cancelled",
]
"""How a request ended.

``client-limit``: this machine had no file or port left for a connection; ``refused``: no
connection to the service; ``http``: it answered with a status of 400 to 499; ``server-error``: with
500 or more, or with an error in the stream; ``dropped``: the connection ended before the answer;
``timeout``: the client's limit; ``malformed``: the answer was not of its dialect; ``empty``: it had
neither text nor a tool call; ``not-json``:
the answer to a request for JSON, or the arguments of a tool call, cannot be parsed;
``schema-mismatch``: they do not fit the schema, or a call does not fit the tools; ``abandoned``:
the user had no patience left; ``context-full``: the conversation has become longer than the
context of a slot; ``cancelled``: the client was stopped first. All but ``ok`` are failures.
"""

ENDED_BY_THE_USER = frozenset(("abandoned", "context-full", "cancelled"))
"""Outcomes that are no faults of the service."""


_AT_A_LIMIT = frozenset(("length", "limit", "max_tokens", "model_length"))
"""Finish reasons of an answer that a number of tokens has ended, as OpenAI, llama-server, Anthropic
and Mistral name it."""

_LEAST_TOKENS_PER_WORD = 0.8
"""Of a prompt. A word has one or more, unless the vocabulary has tokens of several words."""


class ServerTimings(Value):
    """What the server says of a request, where it says anything.

    Attributes:
        prompt_tokens: of the prompt, with those that it had in its cache.
        prompt_ms: for the tokens of the prompt that it had not.
        generated_tokens, generated_ms: of the answer.
    """

    prompt_tokens: int | None = None
    prompt_ms: float | None = None
    generated_tokens: int | None = None
    generated_ms: float | None = None


class ToolCall(Value):
    """A call of a tool that an answer makes; ``arguments`` are JSON as the model wrote it."""

    name: str
    arguments: str


class RequestRecord(Value):
    """One request, written when it ended.

    Attributes:
        number: its place in the schedule, from 0.
        is_warmup: excluded from the figures.
        conversation: that it is a turn of, from 0; none where it stands alone.
        turn: its place in the conversation, from 0.
        turns: that the conversation was to have.
        scheduled_s: when it was to be sent.
        begun_s: when the client began with it, before it connected; what this is later than
            scheduled, apart from ``held_s``, is the client's own lateness.
        held_s: how long it was held back, with as many requests in flight as there may be.
        sent_s: when its first byte was handed to the system; none if it never was.
        header_s: when the status line and headers of the answer were there.
        chunks: of the answer's stream: when each arrived, and the tokens that the server had
            generated by then; none where it does not say.
        end_s: when it ended, in whichever way; of an answer, when its last bytes arrived.
        outcome: how.
        status: of HTTP.
        error: what the server or the system said of a failure.
        prompt_tokens, generated_tokens: by the server's own count.
        cached_tokens: those of the prompt that it had in its cache, likewise.
        limit_tokens: the most that it was asked to generate.
        is_fixed: it was to generate exactly as many.
        sent_words: of the prompt, with the turns before it.
        image_width, image_height: of the image in it, in pixels; none without.
        refused_counts: by their names, counts of the server that are impossible, as it wrote them.
        finish_reason: in the dialect's word, such as ``stop`` or ``length``; ``unknown`` of an
            answer whose stream was ended properly and gave none.
        is_truncated: the server says that the slot's context was full.
        ignored_lines: of the stream, which were not of its format.
        timings: the server's own.
        dimensions: of an embedding, or how many texts were ranked; none of an answer in words.
        prompt: what was asked; of a chat, its last message.
        text: of the answer, as far as it came, with the thoughts and tool calls in it.
        content: of the text, without those; none where it has none of them.
        tool_calls: of the answer.
    """

    number: int
    is_warmup: bool = False
    conversation: int | None = None
    turn: int = 0
    turns: int = 1
    scheduled_s: float
    begun_s: float | None = None
    held_s: float = 0.0
    sent_s: float | None = None
    header_s: float | None = None
    chunks: tuple[tuple[float, int | None], ...] = ()
    end_s: float
    outcome: Outcome
    status: int | None = None
    error: str = ""
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    cached_tokens: int | None = None
    limit_tokens: int | None = None
    is_fixed: bool = False
    sent_words: int = 0
    image_width: int | None = None
    image_height: int | None = None
    refused_counts: dict[str, str] = Field(default_factory=dict)
    finish_reason: str = ""
    is_truncated: bool = False
    ignored_lines: int = 0
    timings: ServerTimings | None = None
    dimensions: int | None = None
    prompt: str = ""
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    content: str | None = None

    @property
    def answer(self) -> str:
        """What a later turn quotes."""
        return self.text if self.content is None else self.content

    @property
    def chunk_count(self) -> int:
        return len(self.chunks)

    @property
    def first_chunk_s(self) -> float | None:
        """When the first text arrived; none of an answer that has none."""
        return self.chunks[0][0] if self.chunks else None

    def gaps_s(self) -> Iterator[float]:
        """Yield the inter-token latencies: the time from each arrival of text to the next.

        Several tokens that arrive together give several, of equal length; a chunk counts as one
        token where the server does not say how many.
        """
        arrivals = [(at_s, tuple(each)) for at_s, each in groupby(self.chunks, itemgetter(0))]
        for (before_s, before), (after_s, after) in pairwise(arrivals):
            first, last = before[-1][1], after[-1][1]
            tokens = len(after) if first is None or last is None else max(1, last - first)
            for _ in range(tokens):
                yield (after_s - before_s) / tokens

    @property
    def later_tokens(self) -> int | None:
        """Tokens that arrived after the first text; none if that is unknown, or most came with it.

        Where the server does not say how many tokens came first, they are as many as those chunks
        are of all. What arrives at once has no time per token.
        """
        tokens = self.generated_tokens
        if not tokens or not self.chunks:
            return None
        first_s = self.chunks[0][0]
        at_first = sum(1 for _ in takewhile(lambda each: each[0] <= first_s, self.chunks))
        known = self.chunks[at_first - 1][1]
        share = at_first / len(self.chunks)
        first = max(1, round(tokens * share)) if known is None else known
        if tokens == 1:
            return 0 if share == 1 else None
        return tokens - first if 2 * first <= tokens else None

    @property
    def is_at_once(self) -> bool:
        """Whether its tokens are counted, and arrived so that there is no time per token."""
        return (self.generated_tokens or 0) > 1 and self.later_tokens is None

    @property
    def has_uncounted_chunks(self) -> bool:
        """Whether it came in chunks, and the server counts all its tokens but not theirs."""
        return bool(self.later_tokens) and self.chunks[-1][1] is None

    @property
    def has_refused_counts(self) -> bool:
        return bool(self.refused_counts)

    @property
    def is_short(self) -> bool:
        """The answer was to have exactly ``limit_tokens``, and has fewer, or nobody knows."""
        return (
            self.is_fixed
            and not self.is_cut_off
            and self.received_tokens < (self.limit_tokens or 0)
        )

    @property
    def is_prompt_cut(self) -> bool:
        """The server counts fewer tokens of the prompt than the prompt has words."""
        least = _LEAST_TOKENS_PER_WORD * self.sent_words
        return self.prompt_tokens is not None and self.prompt_tokens < math.floor(least)

    @property
    def is_timed(self) -> bool:
        """Whether the server gave timings, so that it is one that tells when a slot began."""
        return self.timings is not None

    @property
    def new_prompt_tokens(self) -> int | None:
        """Tokens of the prompt that the server had to process; none where that is unknown."""
        if self.timings is not None and self.timings.prompt_tokens is not None:
            return self.timings.prompt_tokens - (self.cached_tokens or 0)
        return self.prompt_tokens

    @property
    def received_tokens(self) -> int:
        """As far as the answer came; a chunk counts as one where the server does not say."""
        if self.generated_tokens is not None:
            return self.generated_tokens
        last = self.chunks[-1][1] if self.chunks else None
        return len(self.chunks) if last is None else last

    @property
    def is_cut_off(self) -> bool:
        """The server ended the answer before its limit for want of room, not at its end."""
        return (
            self.finish_reason.lower() in _AT_A_LIMIT
            and None not in (self.generated_tokens, self.limit_tokens)
            and (self.generated_tokens or 0) < (self.limit_tokens or 0)
        )


RateVerdict = Literal["sustained", "not sustained", "undecided"]
"""Whether a service sustains a rate, or a number of clients, with 95% confidence."""


class ClockOffset(Value):
    """How to convert between this machine's monotonic clock and the board's.

    Attributes:
        board_minus_client_s: what to add to a time on the client's clock.
        error_s: the offset is known within this, to either side.
        boot_id: the boot of the board that it holds for.
    """

    board_minus_client_s: float
    error_s: float
    boot_id: str


class Stage(Value):
    """A part of a load whose rate varies; the next one follows without a pause.

    Its requests may meet those of the stage before, so it has no steady state of its own.

    Attributes:
        start_s, end_s: since the load began.
        first_per_s, last_per_s: its rate at the start and at the end; in between it is linear.
        is_replay: the times are those of a trace, and the rate is their mean.
    """

    start_s: float
    end_s: float
    first_per_s: float
    last_per_s: float
    is_replay: bool = False

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def mean_per_s(self) -> float:
        return (self.first_per_s + self.last_per_s) / 2

    @property
    def rates(self) -> str:
        """The rate, or the rates between which it changes, without a unit."""
        if self.first_per_s == self.last_per_s:
            return f"{self.first_per_s:.3g}"
        return f"{self.first_per_s:.3g} to {self.last_per_s:.3g}"

    @property
    def span(self) -> str:
        return "trace" if self.is_replay else f"{self.start_s:g} to {self.end_s:g} s"


class Refusal(Value):
    """With what a service refused requests.

    Attributes:
        status: of HTTP, below 500.
        message: its own.
        requests: that were refused so.
        remedy: what to do.
    """

    status: int
    message: str
    requests: int
    remedy: str


class LoadPoint(Value):
    """One step of a sweep, or a stage of a load whose rate varies.

    Attributes:
        rate: requests/s, or conversations/s, on average, in an open loop.
        concurrency: clients that each wait for an answer before they send again, in a closed loop.
        max_concurrency: requests in flight at most, in an open loop; none for any number.
        duration_s: in which requests are scheduled; none where a number of requests ends it.
        requests: that were scheduled.
        started_utc: when.
        began_client_s: the client's monotonic clock at time 0 of the requests; 0 before that.
        seed: of its schedule; none for the load's own.
        verdict: of a search for the highest rate.
        service_ended: what ended the service, or its connection, within the point; else empty.
        refusal: the most frequent one; none where no request was refused.
        freed_s: where users gave up: how long after the last request the service had none left;
            none where it does not tell.
        left_busy: requests that it had then still not let go of.
        is_under_way: it has not ended; of a load that nobody runs, its command was killed.
        stage: of a load whose rate varies; none of a rate that is constant.
        clock: of the board; none for a service that is reached by its URL alone.
    """

    rate: float | None = None
    concurrency: int | None = None
    max_concurrency: int | None = None
    duration_s: float | None = None
    requests: int
    started_utc: str
    began_client_s: float
    seed: int | None = None
    verdict: RateVerdict | None = None
    service_ended: str = ""
    refusal: Refusal | None = None
    freed_s: float | None = None
    left_busy: int = 0
    is_under_way: bool = False
    stage: Stage | None = None
    clock: ClockOffset | None = None


class Load(JournalHeader):
    """What was sent to which service; it lies in ``loads/<id>/load.json``.

    The requests of point *k* are lines of ``requests-<k>.jsonl`` beside it, the trace of the
    server in that time ``trace-<k>.jsonl``, what was sampled of the board ``board-<k>.jsonl``, of
    its power meter ``power-<k>.jsonl``, and the server's own metrics ``metrics-<k>.jsonl``.

    Attributes:
        url: of the service, without a key.
        board, run: where armload serves the model, and the run's id there; empty for another
            service.
        installed: name of the board's installed service that was loaded, which others may have
            asked meanwhile; empty for a service that was started for the load, or any other.
        model: by its name.
        service: the settings that it is served with, where they are known.
        dialect: that the client spoke.
        arrivals: ``poisson``, ``constant``, ``gamma:SHAPE``, ``seed``, ``trace`` or ``closed``.
        seed: of the schedule and of the synthetic requests.
        requests_from: the file, or the lengths of synthetic requests.
        requests_sha256: of what was sent.
        objectives: that its requests were to stay within; none where none were given.
        finds_rate: its rates were chosen to find the highest that is sustained for sure.
        subtracts_idle: its energies are without what the idle board draws.
        most_per_s: requests/s that were answered in a closed loop with all slots busy, before the
            search for the highest rate; with 95% confidence.
        percentiles: that a person has chosen to see; empty for the usual ones.
        points: in the order in which they were run; several of one rate are repeats.
    """

    format: Literal[1] = 1
    url: str
    board: str = ""
    run: str = ""
    installed: str = ""
    model: str = ""
    service: dict[str, Any] | None = None
    dialect: str
    arrivals: str
    seed: int
    requests_from: str
    requests_sha256: str = ""
    objectives: Objectives | None = None
    finds_rate: bool = False
    subtracts_idle: bool = False
    most_per_s: Interval | None = None
    percentiles: tuple[float, ...] = ()
    points: tuple[LoadPoint, ...] = ()
