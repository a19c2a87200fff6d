"""Accuracy at equal latency: in words for a terminal, and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from armload import __version__
from armload.analysis.tradeoff import Answers, AtDeadline, BudgetPoint, by_budget
from armload.core.columns import Column
from armload.core.files import file_name_of
from armload.core.values import ValueList, counted
from armload.core.workspace import reports_folder
from armload.evaluation.answer_energy import SystemEnergy
from armload.evaluation.sides import TradeoffSide
from armload.evaluation.tradeoff import SharedAxis, Tradeoff
from armload.report import formatting as words
from armload.report.evaluation.figures import deadline_figure, energy_figure
from armload.report.evaluation.series import variant_heading
from armload.report.evaluation.table import ACCURACY, BOXED, BUDGET, MEAN_TIME, estimate_of
from armload.report.figures.figure import Figure
from armload.report.layout import Prose, Table
from armload.report.pages import Page
from armload.report.result import Part, Result, labelled


@dataclass(frozen=True, kw_only=True)
class _Way:
    """What a page says of one way in which both models were asked."""

    title: str
    accuracy: Figure
    lines: Sequence[str]
    table: Table
    energy: Figure | None
    energy_lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class TradeoffResult(Result):
    """Which of two models is more accurate in the same time."""

    sides: tuple[TradeoffSide, TradeoffSide]
    found: tuple[Tradeoff, ...]

    @property
    def home(self) -> Path:
        return reports_folder()

    def page(self, _folder: Path) -> Page:
        ways = []
        for number, each in enumerate(self.found):
            figure = deadline_figure((each.a, each.b), each.crossover)
            known = [(one, found.joules) for one, found in _with_energy(each) if found]
            lines = (each.sentence, *(deadline_line(each, one) for one in each.deadlines))
            ways.append(
                _Way(
                    title=variant_line(each),
                    accuracy=figure.model_copy(update={"name": f"{figure.name}-{number}"}),
                    lines=(*lines, axis_line(each.axis) if each.axis else ""),
                    table=_table(each),
                    energy=energy_figure(
                        [(one, joules) for one, joules in known if joules],
                        name=f"accuracy-joules-{number}",
                    ),
                    energy_lines=energy_lines(each),
                )
            )
        names = "-".join(side.model.removesuffix(".gguf") for side in self.sides)
        return Page(
            template="evaluation/tradeoff.html.j2",
            headline=f"{self.sides[0].task}: {self.found[0].a.name} or {self.found[0].b.name}",
            version=__version__,
            figures=[
                *(way.accuracy for way in ways),
                *(way.energy for way in ways if way.energy),
            ],
            name=file_name_of(f"tradeoff-{self.sides[0].task}-{names}") + ".html",
            shown={
                "doubts": [*self.found[0].unequal, *doubts(self.found)],
                "ways": ways,
                "evaluations": [
                    each
                    for side in self.sides
                    for each in (
                        (side.model, f"{side.evaluation}, SHA-256 {side.model_sha256}"),
                        ("its projector", str(side.projector or "")),
                    )
                    if each[1]
                ],
            },
        )

    def document(self) -> BaseModel:
        return ValueList[Tradeoff](self.found)

    def view(self) -> Iterator[Part]:
        yield tradeoff_view(self.found)
        yield from labelled(6, self.files.items())


def tradeoff_view(tradeoffs: Sequence[Tradeoff]) -> Group:
    """Lay out each way in which both models were asked."""
    lines: list[RenderableType] = [
        Prose(each, "yellow") for each in (*tradeoffs[0].unequal, *doubts(tradeoffs))
    ]
    for each in tradeoffs:
        if lines:
            lines.append(Text(""))
        lines += [Prose(variant_line(each), "bold"), _table(each), Text("")]
        lines.append(Prose(each.sentence, "bold"))
        lines += [Prose(deadline_line(each, one)) for one in each.deadlines]
        lines += [Prose(line) for line in energy_lines(each)]
        if each.axis:
            lines.append(Prose(axis_line(each.axis), "dim"))
    return Group(*lines)


def doubts(tradeoffs: Sequence[Tradeoff]) -> list[str]:
    """Say why the times are not reliable, each reason once, and what to do."""
    found = list(dict.fromkeys(doubt for each in tradeoffs for doubt in each.doubts))
    if found and not tradeoffs[0].times_of:
        found.append("With --times RUN_A,RUN_B the times come from a run of each model instead.")
    return found


def variant_line(each: Tradeoff) -> str:
    """Say in which way both were asked, and how many questions count."""
    count = len(each.a.questions)
    questions = counted(count, "question")
    if each.left_out:
        questions = (
            f"{count} of {counted(count + each.left_out, 'question')}; one of the models has no "
            f"answer to the other {each.left_out}"
        )
    variant = variant_heading(each.prompt, is_told=each.is_told, concludes=each.concludes)
    return f"{variant}: {questions}"


def _table(each: Tradeoff) -> Table:
    points = [
        (system.name, point, energy.joules[number] if energy and energy.joules else None)
        for system, energy in _with_energy(each)
        for number, point in enumerate(by_budget(system))
    ]
    columns: tuple[Column[tuple[str, BudgetPoint, float | None]], ...] = (
        Column(heading="model", of=lambda row: row[0], below=""),
        BUDGET.from_another(lambda row: row[1].budget),
        MEAN_TIME.from_another(lambda row: row[1].mean_latency_s),
        ACCURACY.from_another(lambda row: estimate_of(row[1].accuracy)),
        BOXED.from_another(lambda row: row[1].boxed_share),
        Column(
            heading="mean\nenergy",
            unit="J",
            of=lambda row: row[2],
            write=words.joules,
            is_optional=True,
        ),
    )
    return Table.of(columns, points)


def _with_energy(each: Tradeoff) -> tuple[tuple[Answers, SystemEnergy | None], ...]:
    energy = each.energy
    return (each.a, energy.a if energy else None), (each.b, energy.b if energy else None)


def energy_lines(each: Tradeoff) -> list[str]:
    """Say what the answers took, and why that is not known or cannot be compared."""
    if each.energy is None:
        return []
    lines = [each.energy.warning] if each.energy.warning else []
    for system, energy in _with_energy(each):
        if energy is None:
            lines.append(f"Energy of {system.name}: unknown, its board has no power meter.")
        elif energy.problem:
            lines.append(f"Energy of {system.name}: not valid: {energy.problem}.")
        else:
            best = max(
                zip(by_budget(system), energy.joules, strict=True),
                key=lambda pair: pair[0].accuracy.share,
            )
            lines.append(
                f"Energy of {system.name}, {energy.basis}: {words.joules(best[1])} J per "
                f"answer (mean) for {best[0].accuracy.share:.1%}."
            )
    return lines


def deadline_line(each: Tradeoff, found: AtDeadline) -> str:
    """Say who is right more often at a deadline, and how sure that is."""
    low, high = found.difference.interval.low, found.difference.interval.high
    return (
        f"After {words.seconds(found.deadline_s)}: {each.a.name} {found.a.share:.1%}, "
        f"{each.b.name} {found.b.share:.1%}; difference "
        f"{100 * found.difference.difference:+.1f} points (95% CI {100 * low:+.1f} to "
        f"{100 * high:+.1f}); correct only for {each.a.name}: {found.mcnemar.only_a}, only for "
        f"{each.b.name}: {found.mcnemar.only_b}, p = {found.mcnemar.p_value:.3g} (exact McNemar "
        "test)."
    )


def axis_line(axis: SharedAxis) -> str:
    """Say where the slower model is on the axis of the faster one's tokens."""
    pairs = zip(axis.slower_tokens, axis.slower_accuracy, strict=True)
    placed = ", ".join(f"{share:.1%} at {tokens:.0f}" for tokens, share in pairs)
    return (
        f"With a constant speed ratio of {axis.ratio:.2f}, the slower model's points on the axis "
        f"of {axis.faster}'s tokens are: {placed}. This ignores prompts and growing contexts."
    )
