"""Two sides compared, whatever they are: their figures, how sure the ratio is, what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue, computed_field

from armload.analysis.comparison_findings import (
    AnyComparisonFinding,
    ComparisonDoubt,
    ComparisonFinding,
    ComparisonNote,
    ComparisonObstacle,
    SideDifference,
)
from armload.analysis.load.records import Stage
from armload.analysis.ratios import times, times_interval
from armload.analysis.statistics import Ratio, RatioFinding, lower_bound
from armload.core.values import Value, format_seconds, three_figures

OverallFinding = Literal[RatioFinding, "inconclusive", "not comparable"]
"""What a ratio says; nothing where the figures are not valid, or the sides did different work."""


class Subject(Value):
    """One side.

    Attributes:
        names: of its runs; or the id of a load or of a tuning.
        model, board, engine: none where they are not known.
        settings: with which it ran, or which won.
        about: the same in a few words, for people.
    """

    names: tuple[str, ...]
    model: str | None = None
    board: str | None = None
    engine: str | None = None
    settings: Mapping[str, JsonValue] = {}
    about: str

    @property
    def title(self) -> str:
        """Its first name, how many more there are, and what it is."""
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"{self.names[0]}{more}: {self.about}"


class ComparedFigure(Value):
    """One figure of both sides.

    Attributes:
        key: for programs.
        heading: of its row in a table.
        phrase: follows the figure in a sentence; may be empty.
        a, b: medians, in ``unit``: ``s``, ``s/token``, ``J/token``.
        rate_unit: of the inverse, where people speak of that; else empty.
        a_runs, b_runs: that they are medians over.
        ratio: B's over A's: above 1, B is slower, or takes more energy.
        finding: what the ratio's interval says; ``inconclusive``: it rests on too little.
        less, more: what B is called that has less of it, or more.
    """

    key: str
    heading: str
    phrase: Annotated[str, Field(exclude=True)] = ""
    unit: str
    rate_unit: str = ""
    a: float
    b: float
    a_runs: int
    b_runs: int
    ratio: Ratio
    finding: Literal[RatioFinding, "inconclusive"]
    less: Annotated[str, Field(exclude=True)] = "faster"
    more: Annotated[str, Field(exclude=True)] = "slower"

    def low_at(self, tail: float) -> float:
        """Return what the ratio lies below with a given probability, for a small one."""
        if self.finding == "inconclusive":
            return 0.0
        return lower_bound(self.ratio, min(self.a_runs, self.b_runs), tail)

    def words(self, value: float) -> str:
        """Write a side's figure with its unit."""
        if self.rate_unit:
            return f"{three_figures(1 / value)} {self.rate_unit}"
        return f"{three_figures(value)} {self.unit}" if self.is_energy else format_seconds(value)

    @property
    def is_energy(self) -> bool:
        return self.unit.startswith("J")

    @property
    def cells(self) -> tuple[str, str]:
        """The ratio, and its interval."""
        return times(self.ratio.ratio), times_interval(self.ratio.low, self.ratio.high)

    def short_finding(self, finding: str) -> str:
        """Name what a ratio says of this figure."""
        return {"faster": self.less, "slower": self.more}.get(finding, finding)

    def sentence_with(self, who: str, finding: OverallFinding) -> str:
        """Say what B's figure is beside A's, and whether that means something."""
        ratio, interval = self.cells
        figures = " ".join(filter(None, (self.words(self.b), self.phrase)))
        figures += f" against {self.words(self.a)}, {ratio} A's "
        figures += "energy" if self.is_energy else "time"
        takes = f"{who} {'has' if self.rate_unit else 'takes'} {figures}"
        if finding == "not comparable":
            return f"For reference: {takes}."
        if finding == "inconclusive":
            return f"{takes} (95% CI {interval})."
        if finding == "not significant":
            return f"No significant difference: {takes} (95% CI {interval})."
        verb = "takes" if self.is_energy else "is"
        return f"{who} {verb} {self.short_finding(finding)}: {figures} (95% CI {interval})."


class ComparedLevel(Value):
    """The point of two loads that is compared.

    Attributes:
        label: the level with its unit.
        rate, concurrency, stage: as in the point.
        requests: that both answered.
        repeats: of the point, on the side that has fewer.
        independent: observations that one repeat is worth, on the side that has fewer.
    """

    label: str
    rate: float | None
    concurrency: int | None
    stage: Stage | None
    requests: int
    repeats: int
    independent: float


class Comparison(Value):
    """Two sides that did the same work, or what of it they did not do the same.

    Attributes:
        kind: of the sides.
        finding: of the first figure that both have; ``not comparable`` if an obstacle stands
            against it; ``inconclusive`` if a figure is not valid, or rests on too little.
        reason: why it is inconclusive: a part of a sentence.
        figures: every one that both have, the most important first.
        basis: what the figures are: heads the table.
        differences: what the sides do not share.
        findings: what else was found.
        level: of loads, the point; none of anything else.
        lead: a sentence that comes before the finding; may be empty.
        who: what of B has the figures.
        advice: how to learn more; may be empty.
        runs_to_see_3_percent: repeats a side that it would take, from the spread seen; none where
            there are too few to see a spread.
    """

    kind: Literal["runs", "load", "tuning"]
    a: Subject
    b: Subject
    finding: OverallFinding
    reason: str = ""
    figures: tuple[ComparedFigure, ...]
    basis: Annotated[str, Field(exclude=True)] = ""
    differences: tuple[SideDifference, ...] = ()
    findings: tuple[AnyComparisonFinding, ...] = ()
    level: ComparedLevel | None = None
    lead: Annotated[str, Field(exclude=True)] = ""
    who: Annotated[str, Field(exclude=True)] = "B"
    advice: str = ""
    runs_to_see_3_percent: int | None = None

    @property
    def subjects(self) -> list[str]:
        """What the sides differ in while they did the same, as parts of a sentence."""
        return [each.phrase for each in self.differences if each.role == "subject"]

    @property
    def obstacles(self) -> list[str]:
        """What stands against comparing the sides, as parts of a sentence."""
        return obstacles_in(self.findings, self.differences)

    @property
    def notes(self) -> list[str]:
        """What else a reader should know, as sentences."""
        return [
            *(each.sentence for each in self.findings if isinstance(each, ComparisonNote)),
            *(each.sentence for each in self.differences if each.role == "setting"),
        ]

    @property
    def doubts(self) -> list[str]:
        """What speaks against single figures, each with whose it is."""
        return [each.sentence for each in self.findings if isinstance(each, ComparisonDoubt)]

    @computed_field
    @property
    def sentence(self) -> str:
        """For people: the finding with its figures, and what the sides differ in."""
        level = f"{self.level.label}: " if self.level else ""
        said = [self.lead] if self.lead else []
        if self.obstacles:
            said = [not_comparable(self.obstacles)]
        if self.finding == "inconclusive":
            said.append(f"Inconclusive: {self.reason}.")
        if self.figures:
            said.append(self.figures[0].sentence_with(self.who, self.finding))
            if self.subjects:
                said.append(f"The sides differ in {'; '.join(self.subjects)}.")
        return f"{level}{' '.join(said)}"

    @property
    def is_gated(self) -> bool:
        """Whether a gate may judge it: the sides are the same in all but how it was done."""
        return self.finding != "not comparable" and not self.subjects


def not_comparable(phrases: Iterable[str]) -> str:
    return f"Not comparable: {'; '.join(phrases)}."


def obstacles_in(
    findings: Iterable[ComparisonFinding], differences: Iterable[SideDifference]
) -> list[str]:
    """Return what stands against comparing two sides, as parts of a sentence."""
    return [
        *(each.fact() for each in findings if isinstance(each, ComparisonObstacle)),
        *(each.phrase for each in differences if each.role == "obstacle"),
    ]


def overall_finding(
    findings: Iterable[ComparisonFinding],
    differences: Iterable[SideDifference],
    figures: tuple[ComparedFigure, ...],
    *,
    is_valid: bool,
) -> OverallFinding:
    """Return what a comparison says: what its first figure does, if that may be believed.

    Args:
        findings: an obstacle among them where the sides share no figure.
        is_valid: nothing speaks against the figures.
    """
    if obstacles_in(findings, differences):
        return "not comparable"
    return figures[0].finding if is_valid else "inconclusive"
