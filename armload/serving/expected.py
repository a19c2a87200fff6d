"""How long a load will take, by what the beginning of one request takes alone."""

from __future__ import annotations

from collections.abc import Sequence

from armload.core.progress import Progress
from armload.core.values import Value
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.readiness import answer_alone
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.workload import Lengths, Workload

MEASURED_TOKENS = 8
"""Of the answer that is measured: on a slow board a whole one may take as long as the load."""

_SAMPLED_REQUESTS = 200
_FITS_WITHIN = 1.5
_LEAST_TOKENS, _LEAST_REQUESTS = 8, 4
"""Of shorter prompts and answers, or fewer requests, a load shows little."""


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

    def request_s(self, ask: CompletionRequest) -> float:
        """Return how long a request takes; less where the model ends its answer early."""
        share = _characters(ask) / self.prompt_characters
        return share * self.prompt_s + (ask.max_tokens - 1) * self.token_s


class LoadDuration(Value):
    """How long a load takes.

    Attributes:
        request_s: one of its requests alone, on average.
        duration_s: in which its requests are sent; none where their number alone ends it.
        least_s: if requests that are answered together take no longer than one alone.
        most_s: if together they take as long as one after another.
    """

    request_s: float
    duration_s: float | None
    least_s: float
    most_s: float

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
    whole = workload.ask(-1)
    ask = whole.model_copy(update={"max_tokens": min(whole.max_tokens, MEASURED_TOKENS)})

    with progress.step("Measuring one request"):
        record = answer_alone(target, ask, timeout_s)
    if record.outcome != "ok" or record.sent_s is None or not record.chunks:
        return None
    (first_s, first_tokens), (last_s, _) = record.chunks[0], record.chunks[-1]
    further = (record.generated_tokens or len(record.chunks)) - (first_tokens or 1)
    return AloneRequest(
        prompt_s=first_s - record.sent_s,
        prompt_characters=_characters(ask),
        token_s=(last_s - first_s) / further if further > 0 else 0.0,
    )


def expected(
    alone: AloneRequest,
    workload: Workload,
    paces: Sequence[LoadLevel],
    extent: StopCondition,
    arrivals: Arrivals,
    seed: int,
    *,
    slots: int | None,
) -> LoadDuration:
    """Return how long a load takes.

    Args:
        slots: requests that the service answers at a time; none for as many as come.
    """
    asks = [workload.ask(number) for number in range(_SAMPLED_REQUESTS)]
    request_s = sum(map(alone.request_s, asks)) / len(asks)
    spans = [_span_s(pace, extent, arrivals, seed, request_s, slots) for pace in paces]
    return LoadDuration(
        request_s=request_s,
        duration_s=None if extent.duration_s is None else len(paces) * extent.duration_s,
        least_s=sum(least_s for least_s, _ in spans),
        most_s=sum(most_s for _, most_s in spans),
    )


def told(
    found: LoadDuration, paces: Sequence[LoadLevel], lengths: tuple[Lengths, Lengths] | None
) -> str:
    """Say how long a load takes, and what would end in about its duration if it does not.

    Args:
        lengths: of synthetic prompts and answers; none for requests of a file.
    """
    least, most = _time(found.least_s), _time(found.most_s)
    said = (
        f"One request takes about {_time(found.request_s)} alone; the load takes about "
        f"{most if least == most else f'{least} to {most}'}."
    )
    offered = _offered(found, paces, lengths)
    return f"{said} To end in about its duration: {offered}." if offered else said


def _offered(
    found: LoadDuration, paces: Sequence[LoadLevel], lengths: tuple[Lengths, Lengths] | None
) -> str:
    share, words = found.fitting_share, []
    if found.duration_s is None or share == 1:
        return ""
    if lengths is not None:
        shortest = min(each.usual_most for each in lengths)
        shorter = min(1.0, max(share, _LEAST_TOKENS / shortest))
        prompt, answer = (each.scaled(shorter) for each in lengths)
        words.append(f"--prompt-tokens {prompt} --n-predict {answer}")
        share /= shorter
    if share * _FITS_WITHIN < 1:
        first, *others = paces
        if first.rate is None:
            words.append("a longer --duration")
        elif others:
            words.append("lower rates (--rate)")
        else:
            rate = first.rate * share
            words.append(f"--rate {_two_figures(rate)}")
            if rate * found.duration_s < _LEAST_REQUESTS:
                words.append(f"--duration {_LEAST_REQUESTS / rate:.0f}")
    return " ".join(words)


def _span_s(
    pace: LoadLevel,
    extent: StopCondition,
    arrivals: Arrivals,
    seed: int,
    request_s: float,
    slots: int | None,
) -> tuple[float, float]:
    count, duration_s = extent.requests, extent.duration_s
    times: tuple[float, ...] = ()
    if pace.rate is not None:
        times = arrivals.schedule(pace.rate, duration_s=duration_s, requests=count, seed=seed)
    clients = pace.concurrency or len(times)

    def span_s(at_a_time: int) -> float:
        if times:
            return max(times[-1] + request_s, len(times) * request_s / at_a_time)
        ends_s = [] if count is None else [count * request_s / at_a_time]
        if duration_s is not None:
            ends_s.append(duration_s + clients * request_s / at_a_time)
        return min(ends_s)

    most_at_a_time = min(clients, slots or clients)
    return span_s(most_at_a_time), span_s(1 if slots else most_at_a_time)


def _characters(ask: CompletionRequest) -> int:
    return sum(len(message.content) for message in ask.chat) or 1


def _time(seconds: float) -> str:
    for unit, scale in (("h", 3600), ("min", 60)):
        if seconds >= 2 * scale:
            return f"{_two_figures(seconds / scale)} {unit}"
    return f"{_two_figures(seconds)} s"


def _two_figures(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"
