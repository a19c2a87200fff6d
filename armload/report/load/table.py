"""A load, and a list of loads, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.capacity import why_slow
from armload.analysis.load.metrics import Metrics
from armload.analysis.load.quantiles import FEWEST_INDEPENDENT, SHOWN, percentile_name
from armload.analysis.load.records import Load
from armload.core.errors import ArmloadError
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.layout import Column, Prose, Table
from armload.report.load.loaded import LoadDocument, LoadView, about_users, doubts_about
from armload.report.result import Part, Result, labelled
from armload.serving.loads import LoadFolder

if TYPE_CHECKING:
    from armload.report.pages import Page

_OFFERED_OTHERWISE_FROM = 0.10
"""Difference of the drawn schedule's rate from the one that was asked for, as a share of it."""


@dataclass(frozen=True, kw_only=True)
class LoadResult(Result):
    """A load as far as it ran, and its page where its folder can be written.

    Attributes:
        exports: files that it was written to.
        error: why it ended early; none where it did not.
    """

    loaded: LoadView
    folder: Path
    exports: tuple[Path, ...] = ()
    error: ArmloadError | None = None

    @classmethod
    def of(
        cls, kept: LoadFolder, exports: Sequence[Path] = (), error: ArmloadError | None = None
    ) -> LoadResult:
        """Compute everything that a load's records say.

        Raises:
            DataError: a record was modified.
        """
        return cls(
            loaded=LoadView.of(kept), folder=kept.folder, exports=tuple(exports), error=error
        )

    @property
    def home(self) -> Path | None:
        return self.folder if self.loaded.points else None

    def page(self, _folder: Path) -> Page:
        from armload.report.load.page import load_page

        return load_page(self.loaded)

    @cached_property
    def _written(self) -> Mapping[str, Path] | OSError:
        try:
            return super().files
        except OSError as error:
            return error

    @cached_property
    def files(self) -> Mapping[str, Path]:
        return {} if isinstance(self._written, OSError) else self._written

    def document(self) -> BaseModel:
        return LoadDocument.of(self.loaded)

    def view(self) -> Iterator[Part]:
        if self.loaded.points:
            yield load_view(self.loaded)
            yield ""
        exports = (("export", each) for each in self.exports)
        yield from labelled(8, [("load", self.folder), *exports, *self.files.items()])

    def remarks(self) -> Iterator[str]:
        if isinstance(error := self._written, OSError):
            yield f"The page was not written: {self.folder}: {error.strerror or error}."


def load_view(loaded: LoadView) -> Group:
    """Lay out the points, what is to be said of single ones, and what the service sustains."""
    lines: list[RenderableType] = [_table(loaded)]
    lines += [Prose(each) for each in notes(loaded)]
    for point in (each.assessed for each in loaded.points):
        lines += [Prose(f"{_where(point)}: {each}") for each in about_users(point.metrics)]
        lines += [Prose(each, "yellow") for each in remarks(point)]
        if point.energy and not point.energy.problem:
            lines.append(Prose(f"{point.label}: {point.energy.power}.", "dim"))
    if finding := _finding(loaded):
        lines += [Text(""), Prose(finding)]
    return Group(*lines)


def notes(loaded: LoadView) -> list[str]:
    """Say which figures a load has none of, and why."""
    said = []
    if loaded.is_of_embeddings:
        said.append(
            "Embeddings have neither a first token nor a time per token: the time is to the answer."
        )
    if loaded.is_staged:
        left = ", and requests of one stage may still be served in the next"
        said.append(
            f"No confidence intervals: the rate varies{left if len(loaded.points) > 1 else ''}."
        )
    return said


def loads_table(loads: Sequence[LoadFolder]) -> Table:
    """Lay out several loads, one a line; a load is found again by the end of its id."""
    table = Table(
        Column(heading="id"),
        Column(heading="when (UTC)"),
        Column(heading="service", below=""),
        Column(heading="model", below=""),
        Column(heading="rate or clients", is_prose=True),
        Column(heading="requests", is_number=True),
        Column(heading="result"),
    )
    for load in (kept.load for kept in loads):
        table.add(
            Text(load.id[-4:], style="bold"),
            words.minute(load.started_utc),
            load.board or urlsplit(load.url).netloc,
            load.model,
            _paces(load),
            str(sum(point.requests for point in load.points)),
            _result(load),
        )
    return table


def _paces(load: Load) -> str:
    if load.finds_rate:
        return f"search, {counted(len(load.points), 'rate')}"
    stages = [point.stage for point in load.points if point.stage]
    if stages:
        return "replay" if stages[0].is_replay else counted(len(stages), "stage")
    rates = {f"{point.rate:g}" for point in load.points if point.rate is not None}
    if rates:
        return f"{', '.join(sorted(rates, key=float))} /s"
    clients = sorted({point.concurrency or 0 for point in load.points})
    return f"{', '.join(map(str, clients))} client{'' if clients == [1] else 's'}"


def _result(load: Load) -> Text:
    if any(point.service_ended for point in load.points):
        return Text("service ended", style="red")
    if any(point.is_under_way for point in load.points):
        return Text("incomplete", style="yellow")
    if not load.finds_rate:
        return Text("ended", style="green")
    found = [point.rate for point in load.points if point.verdict == "sustained" and point.rate]
    return Text(f"{max(found):g}/s sustained" if found else "undecided", style="bold")


def _finding(loaded: LoadView) -> str:
    """Say what the service sustains; without objectives, why requests were slow at the end.

    Where the rate varies, the end is no limit of the service.
    """
    if loaded.capacity is not None:
        return loaded.capacity.sentence
    if not loaded.points or loaded.is_staged:
        return ""
    why = why_slow(loaded.points[-1].assessed)
    return f"{loaded.points[-1].label}: {why}" if why else ""


def pace(point: AssessedPoint) -> str:
    """Name a point: ``0.5/s``, or the number of its clients."""
    if point.stage is not None:
        return f"{point.stage.rates}/s ({point.stage.span})"
    return str(point.concurrency) if point.rate is None else f"{point.rate:g}/s"


def remarks(point: AssessedPoint) -> list[str]:
    """Say how requests failed, and why figures are not valid."""
    metrics, where = point.metrics, _where(point)
    said = doubts_about(point, where)
    if point.energy and point.energy.problem:
        said.append(f"{where}, energy {point.energy.power}.")
    steady = metrics.steady
    if steady is not None and steady.stability == "overloaded":
        said.append(
            f"{where}: overloaded. The backlog grows, and latencies depend on how long the load "
            f"lasts: {counted(steady.open_at_end, 'request')} had no answer when the last was sent."
        )
    elif metrics.conversations is not None and (why := metrics.conversations.no_steady_state()):
        said.append(f"{where}: {why}")
    elif steady is not None and metrics.independent < FEWEST_INDEPENDENT:
        said.append(
            f"{where}: no confidence intervals. Requests that queue together are "
            f"correlated{', as are turns of a conversation' if metrics.conversations else ''}, and "
            f"these {metrics.requests} are worth about {metrics.independent:.0f} independent ones; "
            f"{FEWEST_INDEPENDENT:.0f} are needed. Use a longer --duration."
        )
    held = metrics.conversations
    offered = metrics.offered_per_s if held is None else held.begun_per_s
    if point.rate and offered and abs(offered / point.rate - 1) >= _OFFERED_OTHERWISE_FROM:
        said.append(
            f"{where}: by chance, the {_number(metrics)} came at {offered:.2g}/s. To come closer "
            "to the requested rate, use more of them, --arrivals constant, or another --seed."
        )
    return said


def _where(point: AssessedPoint) -> str:
    name = pace(point)
    return f"At {name}" if point.rate is not None else f"With {counted(int(name), 'client')}"


def _table(loaded: LoadView) -> Table:
    points = [point.assessed for point in loaded.points]
    has_objectives = loaded.objectives is not None
    has_energy = loaded.has_energy
    of_embeddings = loaded.is_of_embeddings
    latencies: Sequence[str] = ("first token", "per token", "end to end")
    shown = _names(loaded.load.percentiles)
    if of_embeddings:
        latencies, shown = ("embedding",), shown[-1:]
    table = Table(
        Column(heading="rate" if loaded.is_open else "clients", is_number=True),
        Column(heading="ok", is_number=True),
        Column(heading="req/s", is_number=True),
        *([Column(heading="goodput\nreq/s", is_number=True)] if has_objectives else []),
        Column(heading=f"{'input' if of_embeddings else 'output'}\ntok/s", is_number=True),
        *(
            Column(heading=f"{'' if place else latency}\n{name}", is_number=True)
            for latency, names in zip(latencies, shown, strict=True)
            for place, name in enumerate(names)
        ),
        *([Column(heading="J per\nrequest", is_number=True)] if has_energy else []),
        *([Column(heading="\ntoken", is_number=True)] if has_energy else []),
    )
    for point in points:
        table.add(
            *_row(point, shown, has_objectives=has_objectives, of_embeddings=of_embeddings),
            *(words.joules(each) for each in (point.joules if has_energy else ())),
        )
    return table


def _names(chosen: Sequence[float]) -> Sequence[Sequence[str]]:
    """Return the percentiles of each latency that a terminal shows."""
    if not chosen:
        shown = [percentile_name(each) for each in SHOWN]
        return shown, shown[:1], shown
    return [[percentile_name(each) for each in chosen]] * 3


def _row(
    point: AssessedPoint,
    shown: Sequence[Sequence[str]],
    *,
    has_objectives: bool,
    of_embeddings: bool,
) -> list[str | Text]:
    metrics = point.metrics
    from_scheduled = metrics.from_scheduled
    latencies = [from_scheduled.e2e]
    if not of_embeddings:
        latencies[:0] = [from_scheduled.ttft, metrics.tpot]
    return [
        Text(pace(point), style="bold"),
        f"{metrics.ok}/{metrics.ok + sum(metrics.failed.values())}",
        words.rate(metrics.requests_per_s),
        *([_goodput(metrics)] if has_objectives else []),
        words.rate(metrics.prompt_tokens_per_s if of_embeddings else metrics.output_tokens_per_s),
        *(
            words.seconds(found.percentiles[name].value_s if found else None)
            for found, names in zip(latencies, shown, strict=True)
            for name in names
        ),
    ]


def _goodput(metrics: Metrics) -> Text:
    found = metrics.goodput
    if found is None:
        return Text(words.UNKNOWN)
    return Text(f"{words.rate(found.requests_per_s)} ({found.share:.0%})", "bold")


def _number(metrics: Metrics) -> str:
    if metrics.conversations is not None:
        return counted(metrics.conversations.begun, "conversation")
    return counted(metrics.requests, "request")
