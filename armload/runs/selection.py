"""Which of many runs are meant: by board, model and date, without opening them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from armload.core.ids import time_of_id
from armload.core.workspace import data_names


class Selection:
    """Chooses runs by their ids.

    Args:
        boards: names; empty for all.
        model: what a model's name contains; empty for all.
        since, until: from when, and before when a run began, in UTC; none for no bound.
    """

    def __init__(
        self,
        *,
        boards: Iterable[str] = (),
        model: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        self._boards = {name: longer_names(name) for name in boards}
        self._model = model.removesuffix(".gguf").lower()
        self._since = time_of_id(since) if since else ""
        self._until = time_of_id(until) if until else "~"

    def holds(self, run_id: str) -> bool:
        """Say whether a run is one of them; an id whose board has no file any more may deceive."""
        time, _, rest = run_id.partition("-")
        if not self._since <= time < self._until:
            return False
        if not self._boards:
            return self._model in rest.lower()
        models = (model_on(board, run_id, longer) for board, longer in self._boards.items())
        return any(model is not None and self._model in model.lower() for model in models)


def longer_names(board: str) -> tuple[str, ...]:
    """Return the names of other boards that begin with this one's and a hyphen."""
    return tuple(f"{name}-" for name in data_names("boards") if name.startswith(f"{board}-"))


def model_on(board: str, run_id: str, longer: tuple[str, ...]) -> str | None:
    """Return the model of a run of a board as its id has it; none for a run of another board.

    Args:
        longer: as ``longer_names`` returns them: "virtual" also begins "virtual-dayu200".
    """
    _, _, rest = run_id.partition("-")
    named, _, _ = rest.rpartition("-")
    if not named.startswith(f"{board}-") or named.startswith(longer):
        return None
    return named.removeprefix(f"{board}-")
