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
from armload.analysis.load.images import ImageLatency
from armload.analysis.load.metrics import Metrics
from armload.analysis.load.quantiles import FEWEST_INDEPENDENT
from armload.analysis.load.records import Load
from armload.core.columns import Column
from armload.core.errors import ArmloadError
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.layout import Prose, Table
from armload.report.load.loaded import LoadDocument, LoadView, about_users, doubts_about
from armload.report.load.point_table import point_table
from armload.report.result import Part, Result, labelled
from armload.serving.loads import LoadFolder

if TYPE_CHECKING:
    from armload.report.pages import Page

_IMAGES: tuple[Column[ImageLatency], ...] = (
    Column(heading="image", of=lambda each: each.size),
    Column(heading="answers", of=lambda each: each.requests, is_number=True),
    Column(heading="prompt\ntokens", of=lambda each: each.prompt_tokens, write="{:,.0f}".format),
    Column(heading="first token\nmedian", of=lambda each: each.ttft_s, write=words.seconds),
    Column(heading="shortest", of=lambda each: each.least_s, write=words.seconds),
    Column(heading="longest", of=lambda each: each.most_s, write=words.seconds),
)
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
    lines: list[RenderableType] = [point_table(loaded, is_main=True)]
    if images := loaded.images:
        lines += [Text(""), Table.of(_IMAGES, images)]
    lines += [Prose(each) for each in loaded.notes]
    if loaded.load.installed:
        lines.append(
            Prose(
                f"The installed service {loaded.load.installed} was not this load's alone: others "
                "may have asked it meanwhile."
            )
        )
    for point in (each.assessed for each in loaded.points):
        lines += [Prose(f"{_where(point)}: {each}") for each in about_users(point.metrics)]
        lines += [Prose(each, "yellow") for each in remarks(point)]
        if point.energy and not point.energy.problem:
            lines.append(Prose(f"{point.label}: {point.energy.power}.", "dim"))
    if finding := _finding(loaded):
        lines += [Text(""), Prose(finding)]
    return Group(*lines)


def loads_table(loads: Sequence[LoadFolder]) -> Table:
    """Lay out several loads, one a line; a load is found again by the end of its id."""
    return Table.of(_LISTED, [kept.load for kept in loads])


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
            f"these {metrics.requests} are worth about "
            f"{counted(round(metrics.independent), 'independent request')}; "
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
    if point.rate is None:
        return f"With {counted(point.concurrency or 0, 'client')}"
    stage = point.stage
    return f"At {stage.rates}/s ({stage.span})" if stage else f"At {point.rate:g}/s"


def _number(metrics: Metrics) -> str:
    if metrics.conversations is not None:
        return counted(metrics.conversations.begun, "conversation")
    return counted(metrics.requests, "request")


_LISTED: tuple[Column[Load], ...] = (
    Column(heading="id", of=lambda load: load.id[-4:], style="bold"),
    Column(heading="when (UTC)", of=lambda load: words.minute(load.started_utc)),
    Column(heading="service", of=lambda load: load.board or urlsplit(load.url).netloc, below=""),
    Column(heading="model", of=lambda load: load.model, below=""),
    Column(heading="rate or clients", of=_paces, is_prose=True),
    Column(
        heading="requests",
        of=lambda load: sum(point.requests for point in load.points),
        is_number=True,
    ),
    Column(heading="result", of=_result),
)
