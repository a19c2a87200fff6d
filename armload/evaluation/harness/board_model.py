"""A model on a board, as lm-evaluation-harness knows models.

It needs the extra ``lm-eval``. From Python::

    lm_eval.simple_evaluate(model=BoardModel(request, model, way, progress), tasks=["piqa"])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.engines.answers import Answer
from armload.evaluation.answering import answer_items
from armload.evaluation.harness.requests import (
    Item,
    answers_in,
    generation_items,
    likelihood_items,
    likelihoods,
    texts,
)
from armload.evaluation.way import Way
from armload.models.model import Model
from armload.runs.pipeline import Request


class BoardModel(LM):  # type: ignore[misc] # the package has no types
    """Answers all requests of one kind in one run of the scorer.

    Attributes:
        folders: of the runs, in their order.

    Args:
        request: on which board.
        way: how the scorer runs there.
    """

    def __init__(self, request: Request, model: Model, way: Way, progress: Progress) -> None:
        super().__init__()
        self._request = request
        self._model = model
        self._way = way
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
        """Refuse: texts longer than the context would have to be cut into windows.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{requests[0].task_name}: tasks that measure perplexity are not supported.",
            "Choose a task of multiple choice or of generation.",
        )

    def _answers(self, items: Sequence[Item]) -> dict[str, Answer]:
        folder = answer_items(self._request, self._model, items, self._way, self._progress)
        self.folders.append(folder)
        return answers_in(folder)
