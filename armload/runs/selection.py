"""Which of many runs are meant: by board, model and date, without opening them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from armload.core.files import file_name_of
from armload.core.ids import time_of_id
from armload.core.workspace import data_names


class RunSelection:
    """Chooses runs by their ids.

    Args:
        boards: names, also of boards whose files were deleted; empty for all.
        deleted: names of such boards, which tell their runs from those of ``boards``.
        model: what a model's name contains; empty for all.
        since, until: from when, and before when a run began, in UTC; none for no bound.
    """

    def __init__(
        self,
        *,
        boards: Iterable[str] = (),
        deleted: Iterable[str] = (),
        model: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        self._boards = frozenset(boards)
        self._model = model_in_id(model).lower()
        self._since = time_of_id(since) if since else ""
        self._until = time_of_id(until) if until else "~"
        # The longest first: "virtual" also begins "virtual-dayu200".
        known = {*data_names("boards"), *self._boards, *deleted}
        self._known = sorted(known, key=len, reverse=True)

    def holds(self, run_id: str) -> bool:
        if not self._since <= run_id.partition("-")[0] < self._until:
            return False
        names = names_in_id(run_id)
        board = next((each for each in self._known if names.startswith(f"{each}-")), "")
        if self._boards and board not in self._boards:
            return False
        return self._model in names.removeprefix(f"{board}-").lower()


def names_in_id(run_id: str) -> str:
    """Return the part of a run's id that names its board and its model."""
    return run_id.partition("-")[2].rpartition("-")[0]


def model_in_id(name: str) -> str:
    """Return the name of a model, or of its file, as the ids of its runs have it."""
    return file_name_of(name.removesuffix(".gguf"))
