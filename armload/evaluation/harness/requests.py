"""The harness's requests as the scorer's items, and the scorer's answers as the harness's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from armload.core.errors import RunError
from armload.core.values import counted
from armload.engines.answers import (
    Answer,
    FailedAnswer,
    GeneratedAnswer,
    LikelihoodAnswer,
    TokenizedAnswer,
)

DEFAULT_TOKENS = 256
"""What the harness's own models generate at most, where a task does not say."""

_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_SAMPLING = ("temperature", "top_p", "top_k")

_SHOWN = 60
"""Characters of a request that has no answer."""

_Kind = TypeVar("_Kind", LikelihoodAnswer, TokenizedAnswer, GeneratedAnswer)

Item = dict[str, object]

Window = tuple[list[int], list[int]]
"""Of a long text: the tokens that are scored, after those of its context."""


def likelihood_items(pairs: Sequence[tuple[str, str]]) -> list[Item]:
    """Return an item for each context, with all the continuations that are asked of it."""
    by_context: dict[str, dict[str, None]] = {}
    for context, continuation in pairs:
        by_context.setdefault(context, {})[continuation] = None
    return [
        {
            "id": str(number),
            "kind": "likelihood",
            "context": context,
            "continuations": list(continuations),
        }
        for number, (context, continuations) in enumerate(by_context.items())
    ]


def likelihoods(
    pairs: Sequence[tuple[str, str]], items: Sequence[Item], answers: Mapping[str, Answer]
) -> list[tuple[float, bool]]:
    """Return each pair's log-likelihood, and whether its continuation is the greedy one."""
    found: dict[tuple[str, str], tuple[float, bool]] = {}
    for item, answer in zip(items, _answered(items, answers, LikelihoodAnswer), strict=True):
        continuations = cast("list[str]", item["continuations"])
        for text, each in zip(continuations, answer.continuations, strict=True):
            found[str(item["context"]), text] = (each.log_likelihood, each.is_greedy)
    return [found[pair] for pair in pairs]


def tokenizing_items(strings: Sequence[str]) -> list[Item]:
    """Return an item for each text, and one for the empty text, which ``tokens_of`` needs."""
    return [
        {"id": str(number), "kind": "tokenize", "text": text}
        for number, text in enumerate([*strings, ""])
    ]


def tokens_of(items: Sequence[Item], answers: Mapping[str, Answer]) -> list[list[int]]:
    """Return each text's tokens, without what the model puts before every text."""
    found = _answered(items, answers, TokenizedAnswer)
    *texts_tokens, before = (list(answer.tokens) for answer in found)
    return [
        tokens[len(before) :] if tokens[: len(before)] == before else tokens
        for tokens in texts_tokens
    ]


def window_items(windows: Sequence[Sequence[Window]]) -> list[Item]:
    """Return an item for each window of each text."""
    return [
        {
            "id": f"{text}-{number}",
            "kind": "likelihood",
            "context": context,
            "continuations": [continuation],
        }
        for text, its_windows in enumerate(windows)
        for number, (context, continuation) in enumerate(its_windows)
    ]


def window_sums(
    windows: Sequence[Sequence[Window]], items: Sequence[Item], answers: Mapping[str, Answer]
) -> list[float]:
    """Return each text's log-likelihood, which is the sum over its windows."""
    sums = [0.0] * len(windows)
    for item, answer in zip(items, _answered(items, answers, LikelihoodAnswer), strict=True):
        text, _, _ = str(item["id"]).partition("-")
        sums[int(text)] += answer.continuations[0].log_likelihood
    return sums


def generation_items(requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Item]:
    """Return an item for each context and the harness's arguments of generating."""
    return [_generation(str(number), *each) for number, each in enumerate(requests)]


def texts(items: Sequence[Item], answers: Mapping[str, Answer]) -> list[str]:
    """Return the text that was generated for each item."""
    return [answer.text for answer in _answered(items, answers, GeneratedAnswer)]


def _generation(name: str, context: str, arguments: Mapping[str, Any]) -> Item:
    until = arguments.get("until") or []
    item: Item = {
        "id": name,
        "kind": "generate",
        "prompt": context,
        "max_tokens": next((arguments[key] for key in _LIMITS if key in arguments), DEFAULT_TOKENS),
        "stop": [until] if isinstance(until, str) else list(until),
    }
    if arguments.get("do_sample"):
        item |= {key: arguments[key] for key in _SAMPLING if key in arguments}
    return item


def _answered(
    items: Sequence[Item], answers: Mapping[str, Answer], kind: type[_Kind]
) -> list[_Kind]:
    """Return each item's answer, in order."""
    found = [answers.get(str(item["id"])) for item in items]
    known = [answer for answer in found if isinstance(answer, kind)]
    if len(known) == len(found):
        return known
    item, answer = next(
        (item, answer)
        for item, answer in zip(items, found, strict=True)
        if not isinstance(answer, kind)
    )
    why = answer.error if isinstance(answer, FailedAnswer) else "the scorer gave no answer"
    text = next(str(item[key]) for key in ("prompt", "context", "text") if key in item)
    raise RunError(
        f"No answer to {len(found) - len(known)} of {counted(len(found), 'request')} of the "
        f"harness. The first begins with {text[:_SHOWN]!r}: {why}.",
        "If the context is too short for it, use --context with more tokens. If the model was "
        "not trained for more, use --limit to end before it.",
    )
