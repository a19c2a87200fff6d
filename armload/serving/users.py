"""How the users behave that send requests: turns, pauses, patience, and shared prefixes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Literal

from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.serving.conversation import Conversation
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.target import LoadTarget
from armload.serving.tokenizer import ServiceApi
from armload.serving.workload import Lengths, synthetic

_LONGEST_S = 1e6
_NUMBER_OF_PREFIX = -2
"""Of the synthetic request whose prompt it is; those that are sent have others."""

_MOST_SIGMA = 5.0
_EXAMPLES = "Examples: 5, uniform:2-10, exponential:5, lognormal:5:0.8 (median and sigma)"


class Seconds(Value):
    """A distribution of times.

    Attributes:
        kind: all alike, evenly between two, exponential, or lognormal around a median.
        first: the time; or the least, the mean, or the median.
        second: the most of ``uniform``; sigma of ``lognormal``.
    """

    kind: Literal["constant", "uniform", "exponential", "lognormal"] = "constant"
    first: float
    second: float = 0.0

    def __str__(self) -> str:
        match self.kind:
            case "constant":
                return f"{self.first:g}"
            case "uniform":
                return f"uniform:{self.first:g}-{self.second:g}"
            case "exponential":
                return f"exponential:{self.first:g}"
            case "lognormal":
                return f"lognormal:{self.first:g}:{self.second:g}"

    def draw(self, generator: random.Random) -> float:
        match self.kind:
            case "constant":
                return self.first
            case "uniform":
                return generator.uniform(self.first, self.second)
            case "exponential":
                return generator.expovariate(1 / self.first)
            case "lognormal":
                return self.first * math.exp(generator.gauss(0.0, self.second))


def read_seconds(option: str, text: str) -> Seconds:
    """Read what a person typed, such as ``5`` or ``exponential:5``."""
    match text.split(":"):
        case [one]:
            found = Seconds(first=_time(one))
        case ["uniform", between] if between.count("-") == 1:
            low, high = map(_time, between.split("-"))
            found = Seconds(kind="uniform", first=low, second=high if high >= low else math.nan)
        case ["exponential", mean]:
            found = Seconds(kind="exponential", first=_time(mean))
        case ["lognormal", median, sigma]:
            found = Seconds(kind="lognormal", first=_time(median), second=_time(sigma, _MOST_SIGMA))
        case _:
            found = Seconds(first=math.nan)
    if math.isnan(found.first) or math.isnan(found.second):
        raise UsageError(
            f"--{option} {text!a}: must be a number of seconds above 0, or a distribution.",
            _EXAMPLES,
        )
    return found


def _time(text: str, most: float = _LONGEST_S) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if 0 < number <= most else math.nan


class Users(Value):
    """How users behave; by default each sends one request, and waits for its answer.

    Attributes:
        turns: of a conversation; none where requests stand alone.
        think: from the end of an answer to the next turn; none for none.
        patience: from a request's scheduled time until its user gives it up; none for ever.
        prefix: text that some conversations, or requests, begin with; empty for none.
        prefix_share: of those.
        prefix_length: of the text, for people.
        seed: of all that is drawn.
    """

    turns: Lengths | None = None
    think: Seconds | None = None
    patience: Seconds | None = None
    prefix: str = ""
    prefix_share: float = 1.0
    prefix_length: str = ""
    seed: int = 1

    def __str__(self) -> str:
        words = []
        if self.prefix:
            begun = "conversations" if self.turns else "requests"
            words.append(
                f"{100 * self.prefix_share:g}% of {begun} begin with the same {self.prefix_length}"
            )
        if self.turns:
            pause = f", {self.think} s between them" if self.think else ""
            words.append(f"conversations of {self.turns} turns{pause}")
        if self.patience:
            words.append(f"patience of {self.patience} s")
        return "; ".join(words)

    @property
    def repeat_prompts(self) -> bool:
        """Whether prompts begin with what the server may have processed before."""
        return self.turns is not None or bool(self.prefix)

    def conversation(self, number: int, take: Callable[[], CompletionRequest]) -> Conversation:
        """Draw a conversation, of one request where requests stand alone.

        Args:
            number: of the conversation, from 0.
            take: gives the next request.
        """
        generator = random.Random(f"{self.seed}/user/{number}")  # noqa: S311 - no secret
        count = self.turns.draw(generator) if self.turns else 1
        requests = [take() for _ in range(count)]
        if self.repeat_prompts:
            requests = [request.model_copy(update={"may_reuse": True}) for request in requests]
        if self.prefix and generator.random() < self.prefix_share:
            requests[0] = requests[0].begun_with(self.prefix)
        thinks = [self.think.draw(generator) if self.think else 0.0 for _ in requests[1:]]
        patiences = [self.patience.draw(generator) if self.patience else math.inf for _ in requests]
        return Conversation(
            requests=tuple(requests),
            think_s=tuple(thinks),
            patience_s=tuple(patiences),
            stands_alone=self.turns is None,
        )


def with_prefix(
    users: Users,
    tokens: int | None,
    target: LoadTarget,
    api: ServiceApi,
    progress: Progress,
) -> Users:
    """Return users whose prompts share a prefix of so many tokens; none for no prefix.

    Where prompts repeat, and the service caches none, that is said.
    """
    if tokens is not None:
        length = Lengths(kind="constant", low=tokens, high=tokens)
        words = synthetic(
            prompt=length,
            answer=None,
            stops_at_end=False,
            seed=users.seed,
            api=api,
            progress=progress,
        )
        prefix = words.request(_NUMBER_OF_PREFIX).prompt
        users = users.model_copy(
            update={"prefix": prefix, "prefix_length": f"{tokens} {words.unit}"}
        )
    if users.repeat_prompts and (target.settings or {}).get("prompt_cache_bytes") == 0:
        progress.say(
            "The service has no prompt cache: text that prompts repeat is processed again each "
            "time. To cache it, serve the model with --prompt-cache."
        )
    return users
