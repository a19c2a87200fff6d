"""What a search may choose from: configurations, by the names of a plan file's options."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from armload.core.values import Value


class Feasibility(Value):
    """What a prediction says about a setting.

    Attributes:
        hopeless: why it need not be tried, such as weights that do not fit into memory; empty where
            it may be.
        cost: that is predicted; none where nothing is known.
    """

    hopeless: str = ""
    cost: float | None = None


Choice = str | int | float | bool | None
"""A value of an option; none leaves it to the engine."""


Key = tuple[tuple[str, Choice], ...]
"""The same for equal settings, whatever the order of their choices."""


class Setting(Value):
    """One combination of choices.

    Attributes:
        choices: by the names of options as a plan file has them, such as ``micro_batch``.
    """

    choices: dict[str, Choice]

    @property
    def key(self) -> Key:
        return tuple(sorted(self.choices.items()))


class Parameter(Value):
    """An option and what it may be.

    Attributes:
        name: of the option.
        choices: each once; numbers in ascending order.
        is_ordered: neighbours among the choices behave alike, as thread counts do.
    """

    name: str
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)]
    is_ordered: bool = False


class Space(Value):
    """All settings that a search may try.

    Attributes:
        parameters: every combination of their choices is a setting.
        defaults: what runs without a search; its choices need not be among the parameters'.
    """

    parameters: tuple[Parameter, ...]
    defaults: Setting

    @property
    def size(self) -> int:
        """How many settings there are."""
        return math.prod(len(parameter.choices) for parameter in self.parameters)

    def settings(self) -> Iterator[Setting]:
        names = [parameter.name for parameter in self.parameters]
        for chosen in itertools.product(*(each.choices for each in self.parameters)):
            yield Setting(choices=dict(zip(names, chosen, strict=True)))
