"""The bases of findings: what was found, in figures and in the finding's own words."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce
from typing import Annotated, Any

from pydantic import Field, computed_field

from armload.core.values import Value


class Finding(Value):
    """Something that was found; a class of its own for each ``kind``, with its figures."""

    def fact(self) -> str:
        """Say what was found."""
        raise NotImplementedError

    def advice(self) -> str:
        """Say what to do about it; nothing where the fact says enough."""
        return ""

    @property
    def sentence(self) -> str:
        """For people: what was found, and what to do about it."""
        return " ".join(filter(None, (self.fact(), self.advice())))


class ToldFinding(Finding):
    """A finding of a document that is made when it is asked for, and holds its sentence."""

    kind: str

    @computed_field
    @property
    def sentence(self) -> str:
        """For people: what was found, and what to do about it."""
        return super().sentence


def kinds_of(family: type[Finding]) -> Iterator[type[Finding]]:
    """Yield the classes of a family that are declared so far and have a kind."""
    for each in family.__subclasses__():
        kind = each.model_fields.get("kind")
        if kind is not None and not kind.is_required():
            yield each
        yield from kinds_of(each)


def any_of(family: type[Finding]) -> Any:
    """Return the type of any finding of a family, which pydantic tells apart by their kinds."""
    return Annotated[reduce(operator.or_, kinds_of(family)), Field(discriminator="kind")]
