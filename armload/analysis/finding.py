"""The bases of findings: what was found, in figures and in the finding's own words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar

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


class RunFinding(Finding):
    """A reason to doubt a run; several kinds may have one ``name``, which tables show."""

    name: ClassVar[str]


class Disturbance(RunFinding):
    """Something from outside slowed a run down; a repeat may be without it."""


class ToldFinding(Finding):
    """A finding of a document that is made when it is asked for, with its sentence."""

    kind: str

    @computed_field
    @property
    def sentence(self) -> str:
        """For people: what was found, and what to do about it."""
        return super().sentence


def kinds_of(family: type[Finding]) -> list[type[Finding]]:
    """Return the classes of a family that have a kind, in the order of their kinds."""
    return sorted(_kinds(family), key=lambda each: str(each.model_fields["kind"].default))


def _kinds(family: type[Finding]) -> Iterator[type[Finding]]:
    for each in family.__subclasses__():
        kind = each.model_fields.get("kind")
        if kind is not None and not kind.is_required():
            yield each
        yield from _kinds(each)


def any_of(family: type[Finding]) -> Any:
    """Return the type of any finding of a family, which pydantic tells apart by their kinds."""
    return Annotated[reduce(or_, kinds_of(family)), Field(discriminator="kind")]
