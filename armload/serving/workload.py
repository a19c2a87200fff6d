"""Which requests are sent: from a file, or synthetic ones of drawn lengths."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.models.vocabulary import english_words
from armload.serving.dialects.dialect import CompletionRequest, Dialect
from armload.serving.request_file import DEFAULT_LIMIT, LONGEST, requests_of
from armload.serving.tokenizer import ServiceApi

_EXAMPLES = "Examples: 128, uniform:16-128, lognormal:100:0.8 (median and sigma)"


class Lengths(Value):
    """A distribution of lengths.

    Attributes:
        kind: all alike, evenly between two, or lognormal around a median.
        low, high: of ``uniform``; both are the length where all are alike.
        median, sigma: of ``lognormal``; sigma is the standard deviation of the logarithm.
    """

    kind: Literal["constant", "uniform", "lognormal"]
    low: int = 1
    high: int = LONGEST
    median: float = 0.0
    sigma: float = 0.0

    def __str__(self) -> str:
        match self.kind:
            case "constant":
                return str(self.low)
            case "uniform":
                return f"uniform:{self.low}-{self.high}"
            case "lognormal":
                return f"lognormal:{self.median:g}:{self.sigma:g}"

    @property
    def usual_most(self) -> int:
        """The longest; of a lognormal distribution, which has none, the median."""
        return round(self.median) if self.kind == "lognormal" else self.high

    def scaled(self, share: float) -> Lengths:
        """Return lengths that are shorter by a share, and 1 or more."""
        return self.model_copy(
            update={
                "low": max(1, int(self.low * share)),
                "high": max(1, int(self.high * share)),
                "median": max(1, round(self.median * share)),
            }
        )

    def draw(self, generator: random.Random) -> int:
        """Draw a length of 1 or more."""
        if self.kind == "lognormal":
            drawn = round(self.median * math.exp(generator.gauss(0.0, self.sigma)))
            return min(max(drawn, self.low), self.high)
        return generator.randint(self.low, self.high)


def read_lengths(option: str, text: str) -> Lengths:
    """Read what a person typed, such as ``128`` or ``uniform:16-128``."""
    if (match := re.fullmatch(r"(\d{1,9})|uniform:(\d{1,9})-(\d{1,9})", text)) is not None:
        low, high = (int(match[1]),) * 2 if match[1] else (int(match[2]), int(match[3]))
        if 1 <= low <= high <= LONGEST:
            return Lengths(kind="constant" if match[1] else "uniform", low=low, high=high)
    elif (match := re.fullmatch(r"lognormal:([\d.]+):([\d.]+)", text)) is not None:
        try:
            median, sigma = float(match[1]), float(match[2])
        except ValueError:
            median = sigma = 0.0
        if 1 <= median <= LONGEST and 0 < sigma <= 5:
            return Lengths(kind="lognormal", median=median, sigma=sigma)
    raise UsageError(f"--{option} {text!a}: must be a number, or a distribution.", _EXAMPLES)


_FEWEST_WORDS = 4


class Workload(Protocol):
    """An endless sequence of requests, the same for the same seed."""

    @property
    def described(self) -> str:
        """Name the file, or the lengths."""

    def request(self, number: int) -> CompletionRequest:
        """Return a request by its number from 0."""


class Synthetic:
    """Random common words, a token each.

    Attributes:
        unit: what a word is for the service.

    Args:
        prompt: lengths of prompts, without the special tokens that a model puts around them.
        answer: lengths of answers.
        stops_at_end: end an answer at the model's end-of-text token, too.
        words: to draw from.
    """

    def __init__(
        self,
        *,
        prompt: Lengths,
        answer: Lengths,
        stops_at_end: bool,
        seed: int,
        words: Sequence[str],
        unit: str,
    ) -> None:
        self._prompt = prompt
        self._answer = answer
        self._seed = seed
        self._words = words
        self._stops_at_end = stops_at_end
        self.unit = unit
        upto = "up to " if stops_at_end else ""
        self.described = f"synthetic: prompts of {prompt} {unit}, answers of {upto}{answer} tokens"

    def request(self, number: int) -> CompletionRequest:
        generator = random.Random(f"{self._seed}/{number}")  # noqa: S311 - no secret
        count = self._prompt.draw(generator)
        text = " ".join(generator.choices(self._words, k=count))
        return CompletionRequest(
            prompt=text,
            max_tokens=self._answer.draw(generator),
            ignores_end=not self._stops_at_end,
        )


class Listed:
    """The requests of a file, in order, and from the start again after the last."""

    def __init__(self, requests: Sequence[CompletionRequest], described: str) -> None:
        self._requests = requests
        self.described = described

    def request(self, number: int) -> CompletionRequest:
        return self._requests[number % len(self._requests)]


def synthetic(
    *,
    prompt: Lengths,
    answer: Lengths | None,
    stops_at_end: bool,
    seed: int,
    api: ServiceApi,
    progress: Progress,
) -> Synthetic:
    """Return synthetic requests for a service; words are tokens of its own where it tells."""
    words, unit = words_of(api, progress)
    answer = answer or Lengths(kind="constant", low=DEFAULT_LIMIT, high=DEFAULT_LIMIT)
    return Synthetic(
        prompt=prompt,
        answer=answer,
        stops_at_end=stops_at_end,
        seed=seed,
        words=words,
        unit=unit,
    )


def words_of(api: ServiceApi, progress: Progress) -> tuple[list[str], str]:
    """Return common words to make prompts of, and what each is for the service."""
    words, unit = api.whole_words(english_words()), "tokens"
    if words is None:
        words, unit = list(english_words()), "words"
        progress.say("The service has no /tokenize: prompts have that many words, not tokens.")
    if len(words) < _FEWEST_WORDS:
        raise UsageError(
            "The vocabulary of the model has too few common English words for synthetic prompts.",
            "Give the requests with --data FILE.",
        )
    return words, unit


def listed(
    path: Path,
    *,
    answer: Lengths | None,
    seed: int,
    most: int | None,
    api: ServiceApi,
    progress: Progress,
) -> Listed:
    """Read requests from a file, in one of the forms of ``requests_of``.

    Args:
        answer: limits that override those of the file.
        most: as many are needed; none for all.

    Raises:
        UsageError, DataError, DiskError: as for ``requests_of``.
    """
    draw = None if answer is None else _drawing(answer, seed)
    requests = []
    with progress.step("Preparing requests", total=most, unit="requests") as step:
        for request in requests_of(path, most=most, draw=draw, count=api.count):
            requests.append(request)
            step.update(len(requests))
    return Listed(requests, str(path))


def check_data(
    path: Path, dialect: Dialect, *, answer: Lengths | None, most: int | None
) -> CompletionRequest:
    """Refuse a file whose requests cannot be sent, and return the first of them.

    This needs no service, so lengths that a service counts are not in it.

    Args:
        answer, most: as for ``listed``.
    """
    draw = None if answer is None else _drawing(answer, 0)
    first: CompletionRequest | None = None
    for request in requests_of(path, most=most, draw=draw, count=lambda _: 1):
        dialect.body(request, "")
        first = first or request
    assert first is not None  # noqa: S101 - a file without requests is refused
    return first


def workload_of(
    api: ServiceApi,
    data: Path | None,
    *,
    prompt: Lengths,
    answer: Lengths | None,
    stops_at_end: bool,
    seed: int,
    most: int | None,
    progress: Progress,
) -> Workload:
    """Return the requests of a file, or synthetic ones.

    Args:
        api: of the service.
        prompt, answer: lengths; none for those of the file.
        stops_at_end: end synthetic answers at the model's end-of-text token, too.
        most: as many are needed; none where that is not known.
    """
    if data is None:
        return synthetic(
            prompt=prompt,
            answer=answer,
            stops_at_end=stops_at_end,
            seed=seed,
            api=api,
            progress=progress,
        )
    return listed(data, answer=answer, seed=seed, most=most, api=api, progress=progress)


def _drawing(lengths: Lengths, seed: int) -> Callable[[], int]:
    generator = random.Random(seed)  # noqa: S311 - no secret
    return lambda: lengths.draw(generator)
