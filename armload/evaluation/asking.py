"""A run of the scorer as an evaluation sees it: with its accuracy so far, and an end in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from armload.build.binary import Binary
from armload.core.ids import fingerprint_of
from armload.deploy.follow import Growth
from armload.engines.answers import Answer, parse_answers
from armload.engines.scorer import Scoring, ScoringPlan
from armload.models.model import Model

Note = Callable[[Sequence[Answer]], str]
"""Given the answers since the last time, says in a few words how all of them stand."""


class Asking(Scoring):
    """The scorer, stopped when its time is up.

    Attributes:
        time_is_up: it was stopped for that.

    Args:
        evaluation: its id; a run that another one has left on the board is none of its own.
        note: is given this run's answers; after a lost connection, some of them again.
        max_time_s: from the first answer looked for; none for no limit.
    """

    def __init__(
        self,
        plan: ScoringPlan,
        binary: Binary,
        model: Model,
        items: Path,
        *,
        evaluation: str,
        note: Note,
        max_time_s: float | None,
    ) -> None:
        super().__init__(plan, binary, model, items)
        self._evaluation = evaluation
        self._note = note
        self._max_time_s = max_time_s
        self._began_s: float | None = None
        self.time_is_up = False

    @property
    def fingerprint(self) -> str:
        """A checksum over what is asked, and for which evaluation."""
        return fingerprint_of((super().fingerprint, self._evaluation))

    @property
    def total(self) -> int | None:
        """The items; none where time decides how many are answered."""
        return super().total if self._max_time_s is None else None

    def note(self, now: Growth) -> str:
        """Return the accuracy so far."""
        return self._note(parse_answers(now.new_lines))

    def is_done(self, now: Growth) -> bool:
        """Say whether its time is up; never before an answer, or repeating it would add nothing."""
        if self._max_time_s is None or now.steps == 0:
            return False
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        self.time_is_up = now.lines > 0 and now_s - self._began_s >= self._max_time_s
        return self.time_is_up
