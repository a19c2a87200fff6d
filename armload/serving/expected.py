"""How long a load will take, by what the beginning of one request takes alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean

from armload.analysis.load.latency import tpot_s
from armload.core.progress import Progress
from armload.core.values import Value, format_duration, two_figures
from armload.serving.arrivals import Arrivals
from armload.serving.conversation import Conversation
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.readiness import answer_alone
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.users import Users
from armload.serving.workload import Lengths, Workload

MEASURED_TOKENS = 8
"""Of the answer that is measured: on a slow board a whole one may take as long as the load."""

_ANSWERED = ("ok", "not-json", "schema-mismatch")
"""An answer that is cut short does not fit a schema."""

_SAMPLED_REQUESTS = 200
_CHARACTERS_PER_TOKEN = 4
_FITS_WITHIN = 1.5
_LEAST_TOKENS, _LEAST_REQUESTS = 8, 4
"""Of shorter prompts and answers, or fewer requests, a load shows little."""


WARMUP_SHARE = 1 / 6
"""Of a rate's time."""

MOST_POINT_S = 600.0
_LEAST_POINT_S, _POINT_REQUESTS = 60.0, 1000
"""How long a rate lasts: many times what a request takes, since a queue forgets slowly."""


class AloneRequest(Value):
    """What a request takes that a service answers alone.

    Attributes:
        prompt_s: until its first token.
        prompt_characters: of its prompt.
        token_s: for each further token.
    """

    prompt_s: float
    prompt_characters: int
    token_s: float

    def request_s(self, request: CompletionRequest) -> float:
        """Return how long a request takes; less where the model ends its answer early."""
        share = _characters(request) / self.prompt_characters
        return share * self.prompt_s + (request.max_tokens - 1) * self.token_s

    def conversation_s(self, conversation: Conversation) -> float:
        """Return how long a conversation takes, without the pauses between its turns.

        What it quotes is counted in full: a server that caches prompts takes less.
        """
        seconds, quoted = 0.0, 0
        for request in conversation.requests:
            seconds += self.request_s(request) + quoted / self.prompt_characters * self.prompt_s
            quoted += _characters(request) + _CHARACTERS_PER_TOKEN * request.max_tokens
        return seconds


class LoadDuration(Value):
    """How long a load takes.

    Attributes:
        unit: what is sent: requests, or conversations.
        request_s: one of these alone, on average.
        duration_s: in which its requests are sent; none where their number alone ends it.
        least_s: if requests that are answered together take no longer than one alone.
        most_s: if together they take as long as one after another.
        knows_slots: how many requests the service answers at a time is known.
    """

    unit: str
    request_s: float
    duration_s: float | None
    least_s: float
    most_s: float
    knows_slots: bool

    @property
    def fitting_share(self) -> float:
        """The share of the work that is done within the duration; 1 where about all of it is."""
        if self.duration_s is None or self.most_s <= _FITS_WITHIN * self.duration_s:
            return 1.0
        return self.duration_s / self.most_s


def measure_alone(
    target: LoadTarget, workload: Workload, timeout_s: float, progress: Progress
) -> AloneRequest | None:
    """Send a request that is none of the load's, for a short answer.

    Returns:
        None where it is not answered: the load says why.
    """
    whole = workload.request(-1)
    request = whole.model_copy(update={"max_tokens": min(whole.max_tokens, MEASURED_TOKENS)})

    with progress.step("Measuring one request"):
        record = answer_alone(target, request, timeout_s)
    if record.outcome not in _ANSWERED or record.sent_s is None:
        return None
    if record.dimensions is not None:
        answer_s = record.end_s - record.sent_s
        return AloneRequest(prompt_s=answer_s, prompt_characters=_characters(request), token_s=0.0)
    if not record.chunks:
        return None
    token_s = tpot_s(record)
    first_s = record.chunks[0][0] - record.sent_s
    if record.received_tokens > 1 and token_s is None:
        # It came at once: how its time is divided is not known, and it grows with the tokens.
        first_s = token_s = (record.end_s - record.sent_s) / record.received_tokens
    return AloneRequest(
        prompt_s=first_s, prompt_characters=_characters(request), token_s=token_s or 0.0
    )


def sized(
    stop: StopCondition, alone: AloneRequest | None, workload: Workload, users: Users
) -> StopCondition:
    """Return a stop condition that fits what a request takes, and lasts no longer than before."""
    most_s = stop.duration_s or MOST_POINT_S
    request_s = 0.0 if alone is None else sum(_means_s(alone, workload, users))
    duration_s = min(max(_LEAST_POINT_S, _POINT_REQUESTS * request_s), most_s)
    share = stop.warmup_s / most_s
    return stop.model_copy(update={"duration_s": duration_s, "warmup_s": share * duration_s})


def point_duration_sentence(stop: StopCondition) -> str:
    """Say how long each rate lasts."""
    duration, warmup = format_duration(stop.duration_s or 0.0), format_duration(stop.warmup_s)
    return f"Each rate lasts {duration}, of which the first {warmup} are warm-up (not counted)."


def expected(
    alone: AloneRequest,
    workload: Workload,
    levels: Sequence[LoadLevel],
    stop: StopCondition,
    arrivals: Arrivals,
    seed: int,
    *,
    slots: int | None,
    users: Users | None = None,
    times: Sequence[float] = (),
) -> LoadDuration:
    """Return how long a load takes.

    Args:
        slots: requests that the service answers at a time; none where that is unknown.
        users: that send the requests; none for some that each send one.
        times: of all requests, of a load whose rate varies; else none.
    """
    request_s, pauses_s = _means_s(alone, workload, users)
    if times:
        at_a_time = min(len(times), slots or len(times))
        spans = [
            (
                pauses_s + _of_times_s(times, request_s, at_a_time),
                pauses_s + _of_times_s(times, request_s, 1),
            )
        ]
    else:
        spans = [
            _span_s(level, stop, arrivals, seed, request_s, pauses_s, slots) for level in levels
        ]
    return LoadDuration(
        unit="conversation" if users and users.turns else "request",
        request_s=request_s,
        duration_s=len(levels) * stop.duration_s if stop.duration_s and not times else None,
        least_s=sum(least_s for least_s, _ in spans),
        most_s=sum(most_s for _, most_s in spans),
        knows_slots=slots is not None,
    )


def _of_times_s(times: Sequence[float], request_s: float, at_a_time: int) -> float:
    return max(times[-1] + request_s, len(times) * request_s / at_a_time)


def duration_sentence(
    found: LoadDuration, levels: Sequence[LoadLevel], lengths: tuple[Lengths, Lengths] | None
) -> str:
    """Say how long a load takes, and what would end in about its duration if it does not.

    Args:
        lengths: of synthetic prompts and answers; none for requests of a file.
    """
    one, least, most = map(format_duration, (found.request_s, found.least_s, found.most_s))
    if least == most:
        takes = most
    elif found.knows_slots:
        takes = f"{least} to {most}"
    else:
        takes = f"{least}, or {most} if the service answers one request at a time"
    said = f"One {found.unit} takes about {one} alone; the load takes about {takes}."
    words, duration_s = _offered(found, levels, lengths)
    if not words:
        return said
    planned = "the planned duration" if duration_s is None else f"{duration_s} s"
    even_then = "" if found.knows_slots else " even then"
    return f"{said} To finish in about {planned}{even_then}, use {' '.join(words)}."


def _offered(
    found: LoadDuration, levels: Sequence[LoadLevel], lengths: tuple[Lengths, Lengths] | None
) -> tuple[list[str], int | None]:
    """Return the options that differ from those of the load, and the duration if it is another."""
    share, words, longer_s = found.fitting_share, [], None
    if found.duration_s is None or share == 1:
        return [], None
    if lengths is not None:
        shortest = min(each.usual_most for each in lengths)
        shorter = min(1.0, max(share, _LEAST_TOKENS / shortest))
        if shorter < 1:
            prompt, answer = (each.scaled(shorter) for each in lengths)
            words.append(f"--prompt-tokens {prompt} --n-predict {answer}")
        share /= shorter
    if share * _FITS_WITHIN < 1:
        first, *others = levels
        if first.rate is None:
            words.append("a longer --duration")
        elif others:
            words.append("lower rates (--rate)")
        else:
            rate = first.rate * share
            words.append(f"--rate {two_figures(rate)}")
            if rate * found.duration_s < _LEAST_REQUESTS:
                longer_s = round(_LEAST_REQUESTS / rate)
                words.append(f"--duration {longer_s}")
    return words, longer_s


def _span_s(
    level: LoadLevel,
    stop: StopCondition,
    arrivals: Arrivals,
    seed: int,
    request_s: float,
    pauses_s: float,
    slots: int | None,
) -> tuple[float, float]:
    count, duration_s = stop.requests, stop.duration_s
    times: tuple[float, ...] = ()
    if level.rate is not None:
        times = arrivals.schedule(level.rate, duration_s=duration_s, requests=count, seed=seed)
    clients = level.concurrency or len(times)

    def span_s(at_a_time: int) -> float:
        if times:
            return max(_of_times_s(times, request_s, at_a_time), times[-1] + pauses_s + request_s)
        of_all_s = max(request_s / at_a_time, (request_s + pauses_s) / clients)
        ends_s = [] if count is None else [count * of_all_s]
        if duration_s is not None:
            ends_s.append(duration_s + pauses_s + clients * request_s / at_a_time)
        return min(ends_s)

    most_at_a_time = min(clients, slots or clients)
    return span_s(most_at_a_time), span_s(1)


def _means_s(alone: AloneRequest, workload: Workload, users: Users | None) -> tuple[float, float]:
    """Return what the requests of a conversation take on average, and the pauses between them."""
    numbers = itertools.count()
    begun = [
        (users or Users()).conversation(number, lambda: workload.request(next(numbers)))
        for number in range(_SAMPLED_REQUESTS)
    ]
    return fmean(map(alone.conversation_s, begun)), fmean(sum(each.think_s) for each in begun)


def _characters(request: CompletionRequest) -> int:
    return sum(len(message.text) for message in request.chat) or 1
