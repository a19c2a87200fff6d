"""The trained models that armload ships, small enough to be package data."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from armload.core.errors import UsageError

WORD_PROBLEMS = "word-problems:"
"""What the name of a model begins with that was trained on generated word problems."""

QUANTISATIONS = ("Q8_0", "Q2_K")


def word_problems_model(reference: str) -> Path:
    """Return the file of ``word-problems:TYPE``.

    Raises:
        UsageError: the model is not shipped in that type.
    """
    quantisation = reference.removeprefix(WORD_PROBLEMS).upper()
    if quantisation not in QUANTISATIONS:
        names = ", ".join(WORD_PROBLEMS + each for each in QUANTISATIONS)
        raise UsageError(f"There is no model {reference!r}.", f"Available: {names}.")
    folder = resources.files("armload.models").joinpath("trained")
    return Path(str(folder.joinpath(f"word-problems-{quantisation}.gguf")))
