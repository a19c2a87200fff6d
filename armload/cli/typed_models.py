"""Models that are quantised on demand, as ``--type`` asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armload.runs.session import Request


def models_in(request: Request, names: Sequence[str], types: str) -> tuple[str, ...]:
    """Return the models in each of the types listed; as they are where none is.

    Args:
        request: of the run that they are for.
        types: as it was typed.

    Raises:
        UsageError: there is no such type.
        ArmloadError: a model cannot be quantised.
    """
    if not types:
        return tuple(names)
    from armload.cli import terminal
    from armload.conversion.quantising import quantised_for
    from armload.models.file_types import read_file_types

    return quantised_for(request, names, read_file_types(types), terminal.progress())


def model_in(request: Request, name: str, one_type: str) -> str:
    """Return a model in one type; as it is where none is given.

    Raises:
        UsageError: several types are listed.
        ArmloadError: as for ``models_in``.
    """
    from armload.core.errors import UsageError

    if "," in one_type:
        raise UsageError(f"--type {one_type}: one model is served at a time.", "Give one type.")
    (found,) = models_in(request, [name], one_type)
    return found
