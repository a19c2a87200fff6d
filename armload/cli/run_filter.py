"""Options that choose among the runs of this machine."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator

from armload.cli.options import BOARDS
from armload.core.options import FILTER, Names, Option, OptionGroup

if TYPE_CHECKING:
    from armload.runs.selection import RunSelection

_AGO = re.compile(r"(\d{1,5})([dh])", re.ASCII)
_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1)}
_WHEN = "a date in UTC, such as 2026-11-20 or 2026-11-20T14:30, or how long ago: 7d or 12h"


def _when(value: object, *, is_end: bool) -> object:
    text = str(value)
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - int(ago[1]) * _UNITS[ago[2]]
    try:
        when = datetime.fromisoformat(text)
        if is_end and len(text) <= len("2026-11-20"):
            when += timedelta(days=1)
    except (ValueError, OverflowError):
        raise ValueError(f"must be {_WHEN}, but is {text!a:.60}") from None
    return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)


Since = Annotated[datetime, BeforeValidator(lambda value: _when(value, is_end=False))]
Until = Annotated[datetime, BeforeValidator(lambda value: _when(value, is_end=True))]


class RunFilter(OptionGroup):
    """Which runs are taken."""

    heading = FILTER

    board: Annotated[
        Names,
        Option(f"only runs on {BOARDS}", "BOARD", "all", several="commas", harmless="in a plan"),
    ] = ()
    model: Annotated[
        str,
        Option(
            "only runs of models whose name contains this text",
            "TEXT",
            "all",
            is_unlike_llama_cpp=True,
            harmless="in a plan",
        ),
    ] = ""
    since: Annotated[
        Since | None, Option(f"only runs started at or after this time: {_WHEN}", "DATE")
    ] = None
    until: Annotated[
        Until | None,
        Option(
            "only runs started by this time, in the same forms as --since; a date "
            "includes that day",
            "DATE",
        ),
    ] = None

    def refuse_filter(self, place: str) -> Self:
        """Refuse a filter of what are no runs, such as ``a load``; return the other options.

        Raises:
            UsageError: one was given.
        """
        return self.refuse(RunFilter.model_fields, place, "Only runs can be filtered: remove it.")

    def selection(self) -> RunSelection | None:
        """Return the runs that are meant; none for all.

        Raises:
            UsageError: no board is meant by what was typed.
        """
        if not self.model_fields_set & RunFilter.model_fields.keys():
            return None
        from armload.boards.naming import boards_called, is_name
        from armload.core.workspace import data_names, spelled_name
        from armload.runs.selection import RunSelection
        from armload.runs.store import boards_of_runs

        words = [word.strip() for word in self.board]
        known = set(data_names("boards"))
        names = {word: spelled_name("boards", word) for word in filter(is_name, words)}
        unknown = {word for word, name in names.items() if name not in known}
        deleted = {board for word in unknown for board in boards_of_runs(word)}
        # The file of a board whose name is given is not read: it may not be trusted.
        named = {name for name in names.values() if name in known or name in deleted}
        left = [word for word in words if names.get(word) not in named]
        return RunSelection(
            boards=(*named, *(boards_called(left) if left else ())),
            deleted=deleted,
            model=self.model,
            since=self.since,
            until=self.until,
        )
