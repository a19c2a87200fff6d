"""A model on a board, as lm-evaluation-harness knows models: its requests are our items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from armload.core.errors import RunError
from armload.core.progress import Progress
from armload.core.values import counted
from armload.engines.answers import (
    Answer,
    FailedAnswer,
    GeneratedAnswer,
    LikelihoodAnswer,
    TokenizedAnswer,
)
from armload.evaluation.scorer_run import answer_items, answers_in
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.model import Model
from armload.runs.request import Request

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
    """Return each pair's log-likelihood, and whether its continuation is the greedy one.

    Raises:
        RunError: an item has no answer.
    """
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
    """Return each text's tokens, without what the model puts before every text.

    Raises:
        RunError: an item has no answer.
    """
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
    """Return each text's log-likelihood, which is the sum over its windows.

    Raises:
        RunError: an item has no answer.
    """
    sums = [0.0] * len(windows)
    for item, answer in zip(items, _answered(items, answers, LikelihoodAnswer), strict=True):
        text, _, _ = str(item["id"]).partition("-")
        sums[int(text)] += answer.continuations[0].log_likelihood
    return sums


def generation_items(requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Item]:
    """Return an item for each context and the harness's arguments of generating."""
    return [_generation(str(number), *each) for number, each in enumerate(requests)]


def texts(items: Sequence[Item], answers: Mapping[str, Answer]) -> list[str]:
    """Return the text that was generated for each item.

    Raises:
        RunError: an item has no answer.
    """
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


WINDOW_TOKENS = 2048
"""Of long texts, unless a context is asked for: models are trained for more than a board holds."""

_BEGIN = -1
"""In place of the token that begins a text: the scorer puts it before an empty context."""


class BoardModel(LM):  # type: ignore[misc] # the package has no types
    """Answers all requests of one kind in one run of the scorer.

    Attributes:
        folders: of the runs, in their order.

    Args:
        request: on which board.
        settings: how the scorer runs there.
    """

    def __init__(
        self, request: Request, model: Model, settings: ScorerSettings, progress: Progress
    ) -> None:
        super().__init__()
        self._request = request
        self._model = model
        self._settings = settings
        self._progress = progress
        self.folders: list[Path] = []

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Return each continuation's log-likelihood, and whether it is the greedy one."""
        pairs = [(str(context), str(after)) for context, after in (each.args for each in requests)]
        items = likelihood_items(pairs)
        return likelihoods(pairs, items, self._answers(items))

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Return the text that each request asks for."""
        items = generation_items([each.args for each in requests])
        return texts(items, self._answers(items))

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """Return each text's log-likelihood, computed in the harness's windows.

        A window is as long as the context that was asked for, or else as the one that the model
        was trained for, up to ``WINDOW_TOKENS``. Each token is scored once. The first window
        begins with the token that begins a text, the others with the token before them.
        """
        strings = [str(each.args[0]) for each in requests]
        if not strings:
            return []
        items = tokenizing_items(strings)
        longest = self._settings.context_tokens or min(self._model.context_length, WINDOW_TOKENS)
        windows = [
            [_disjoint(window) for window in get_rolling_token_windows(tokens, _BEGIN, longest, 1)]
            for tokens in tokens_of(items, self._answers(items))
        ]
        self._progress.say(f"Scoring long texts in windows of {longest} tokens (--context)")
        items = window_items(windows)
        settings = self._settings.model_copy(update={"context_tokens": longest})
        return window_sums(windows, items, self._answers(items, settings) if items else {})

    def _answers(
        self, items: Sequence[Item], settings: ScorerSettings | None = None
    ) -> dict[str, Answer]:
        folder = answer_items(
            self._request, self._model, items, settings or self._settings, self._progress
        )
        self.folders.append(folder)
        return answers_in(folder)


def _disjoint(window: Window) -> Window:
    context, continuation = make_disjoint_window(window)
    return ([] if context == [_BEGIN] else context), continuation
