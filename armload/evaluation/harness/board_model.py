"""A model on a board, as lm-evaluation-harness knows models.

It needs the extra ``lm-eval``. From Python::

    lm_eval.simple_evaluate(model=BoardModel(request, model, settings, progress), tasks=["piqa"])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from armload.core.progress import Progress
from armload.engines.answers import Answer
from armload.evaluation.harness.requests import (
    Item,
    Window,
    generation_items,
    likelihood_items,
    likelihoods,
    texts,
    tokenizing_items,
    tokens_of,
    window_items,
    window_sums,
)
from armload.evaluation.scorer_run import answer_items, answers_in
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.model import Model
from armload.runs.reach import CONNECTED, Reach
from armload.runs.request import Request

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
        reach: how the board is reached.
    """

    def __init__(
        self,
        request: Request,
        model: Model,
        settings: ScorerSettings,
        progress: Progress,
        *,
        reach: Reach = CONNECTED,
    ) -> None:
        super().__init__()
        self._request = request
        self._model = model
        self._settings = settings
        self._progress = progress
        self._reach = reach
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
            *(self._request, self._model, items, settings or self._settings, self._progress),
            reach=self._reach,
        )
        self.folders.append(folder)
        return answers_in(folder)


def _disjoint(window: Window) -> Window:
    context, continuation = make_disjoint_window(window)
    return ([] if context == [_BEGIN] else context), continuation
