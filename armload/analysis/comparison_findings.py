"""What a comparison of two sides found beside its figures: kinds with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from armload.analysis.load.findings import AnyLoadFinding
from armload.analysis.sanity import Departure
from armload.analysis.statistics import RatioFinding
from armload.boards.power import EnergyBasis
from armload.core.values import Value

SideLabel = Literal["A", "B"]

ComparisonFinding = Literal[RatioFinding, "inconclusive", "not comparable"]
"""What a ratio says; nothing where the figures are not valid, or the sides did different work."""


def overall_finding(
    against: Sequence[object], findings: Sequence[ComparisonFinding], *, is_valid: bool
) -> ComparisonFinding:
    """Return what a comparison says: what its first figure does, if that may be believed.

    Args:
        against: what stands against comparing the sides; not empty where they share no figure.
        findings: of the figures that both sides have.
        is_valid: nothing speaks against these figures.
    """
    if against:
        return "not comparable"
    return findings[0] if is_valid else "inconclusive"


class OfBothSides(Value):
    """A name, and what each side has for it."""

    name: str
    a: JsonValue
    b: JsonValue


class OfOneSide(Value):
    """Which side this is about."""

    side: SideLabel


class Differs(OfBothSides):
    """A fact; none where a side's is unknown."""

    kind: Literal["differs"] = "differs"


class SettingDiffers(OfBothSides):
    """A setting; none where a side has the default."""

    kind: Literal["setting differs"] = "setting differs"


def differing_facts(facts: Iterable[tuple[str, JsonValue, JsonValue]]) -> list[Differs]:
    """Return those of some facts, each with its name, that the sides do not share."""
    return [Differs(name=name, a=a, b=b) for name, a, b in facts if a != b]


def differing_settings(
    a: Mapping[str, JsonValue], b: Mapping[str, JsonValue]
) -> list[SettingDiffers]:
    """Return the settings of two sides, by their names, that are not the same."""
    return [
        SettingDiffers(name=name.replace("_", " "), a=a.get(name), b=b.get(name))
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    ]


class OnlyOneSide(OfOneSide):
    """Only one side has runs of this plan."""

    kind: Literal["only one side"] = "only one side"


class DegenerateOutput(OfOneSide):
    """A side's output is degenerate; ``faults`` say of each of its runs in what way."""

    kind: Literal["degenerate output"] = "degenerate output"
    faults: str


class NothingInCommon(Value):
    """There is nothing to compare."""

    kind: Literal["nothing in common"] = "nothing in common"
    what: Literal["figure", "load level", "answered request"]


class RequestsDiffer(Value):
    """Two files of requests have one name, and different content."""

    kind: Literal["requests differ"] = "requests differ"


class Excluded(OfOneSide):
    """Disturbed runs of a side, which has others."""

    kind: Literal["excluded"] = "excluded"
    names: tuple[str, ...]


class ModelUnverified(Value):
    """The files' sums do not tell whether the model is the same."""

    kind: Literal["model unverified"] = "model unverified"
    a: str | None
    b: str | None


class EqualBoardsDiffer(Value):
    """The sides ran on two boards that are declared identical, and differ by more than repeats do.

    Attributes:
        a, b: the boards.
        called: what calls them equal.
    """

    kind: Literal["equal boards differ"] = "equal boards differ"
    a: str
    b: str
    called: str


class TooFewRuns(Value):
    """The interval allows for a variation between runs that was not measured."""

    kind: Literal["too few runs"] = "too few runs"
    needed_runs: int


class EnergyPerToken(Value):
    """The sides' medians of joules per token; only those of one basis can be compared."""

    kind: Literal["energy per token"] = "energy per token"
    a_j: float
    b_j: float
    a_basis: EnergyBasis
    b_basis: EnergyBasis


class EnergyMixed(OfOneSide):
    """Energies of a side have different bases; only those that have the first one's count."""

    kind: Literal["energy mixed"] = "energy mixed"
    basis: EnergyBasis
    left_out: int


class OutputDiffers(Value):
    """B's text departs from A's."""

    kind: Literal["output differs"] = "output differs"
    departure: Departure


class ConstraintsDiffer(Value):
    """Two tunings had different constraints."""

    kind: Literal["constraints differ"] = "constraints differ"


class SpacesDiffer(Value):
    """Two tunings searched different values of these options."""

    kind: Literal["spaces differ"] = "spaces differ"
    options: tuple[str, ...]


class NotInterleaved(OfOneSide):
    """A tuning's figures are those of its trials, which did not alternate with the defaults."""

    kind: Literal["not interleaved"] = "not interleaved"
    was_disturbed: bool


class DoubtfulLoad(OfOneSide):
    """A reason to doubt a side's figures under load."""

    kind: Literal["doubtful load"] = "doubtful load"
    figures: AnyLoadFinding


class FailedRequests(OfOneSide):
    """Requests of a side failed."""

    kind: Literal["failed requests"] = "failed requests"
    failed: int
    requests: int


class Disturbed(OfOneSide):
    """Runs of a side were disturbed, in the words of their verdicts."""

    kind: Literal["disturbed"] = "disturbed"
    reason: str


ComparisonFigures = Annotated[
    Differs
    | SettingDiffers
    | OnlyOneSide
    | DegenerateOutput
    | NothingInCommon
    | RequestsDiffer
    | Excluded
    | ModelUnverified
    | EqualBoardsDiffer
    | TooFewRuns
    | EnergyPerToken
    | EnergyMixed
    | OutputDiffers
    | ConstraintsDiffer
    | SpacesDiffer
    | NotInterleaved
    | DoubtfulLoad
    | FailedRequests
    | Disturbed,
    Field(discriminator="kind"),
]


class Remark(Value):
    """What a comparison found beside its figures.

    Attributes:
        figures: in numbers.
        sentence: for people.
    """

    figures: ComparisonFigures
    sentence: str
