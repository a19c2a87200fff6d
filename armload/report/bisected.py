"""What a bisection found, for a terminal, as JSON, and as the text of an issue upstream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.bisection import FoundCommits, JudgedCommit
from armload.analysis.ratios import as_long, times
from armload.analysis.run import Run
from armload.build.history import CommitTitle
from armload.core.errors import ArmloadError, UsageError
from armload.core.files import write_whole
from armload.core.values import counted, three_figures
from armload.core.workspace import runs_folder
from armload.fleet.bisect import Bisection, BisectionFolder, Metric
from armload.report import run_words
from armload.report.layout import Details, Prose, whole
from armload.report.result import Part, Result, labelled
from armload.runs import store

_SHOWN = 12
_MOST_FEATURES = 40  # those of an x86 CPU would fill half a page
_RATES = {"decode": "tokens per second", "prefill": "prompt tokens per second"}


class Bisected(Bisection):
    """A search that has ended with a result.

    Attributes:
        issue: a text for the repository's issue tracker.
    """

    issue: str

    @classmethod
    def of(cls, header: Bisection, run: Run | None) -> Bisected:
        """Add the text.

        Args:
            run: of the first bad commit; none where its folder is gone.
        """
        return cls(**dict(header), issue=issue_text(header, run))


@dataclass(frozen=True, kw_only=True)
class BisectionResult(Result):
    """A search that has ended, and the file with the text for an issue."""

    journal: BisectionFolder

    @classmethod
    def of(cls, journal: BisectionFolder) -> BisectionResult:
        """Return a search that has found something.

        Raises:
            UsageError: it has not.
        """
        if journal.header.found is None:
            done = f"{journal.header.id} has found no commit, with"
            raise UsageError(
                f"{done} {counted(len(journal.entries), 'run')} so far.",
                "Repeat its armload bisect command.",
            )
        return cls(journal=journal)

    @cached_property
    def _found(self) -> Bisected:
        return Bisected.of(self.journal.header, self._run_of_the_first_bad())

    def _run_of_the_first_bad(self) -> Run | None:
        found = self.journal.header.found
        for each in reversed(self.journal.entries):
            if found and each.run and each.commit == found.commits[0]:
                with suppress(ArmloadError):
                    return store.load(runs_folder() / each.run)
        return None

    @cached_property
    def files(self) -> Mapping[str, Path]:
        issue = self.journal.folder / "issue.md"
        write_whole(issue, f"{self._found.issue}\n".encode())
        return {"issue": issue}

    def document(self) -> BaseModel:
        return self._found

    def view(self) -> Iterator[Part]:
        yield bisected_view(self.journal.header, self._found.issue)
        yield from labelled(9, [*self.files.items(), ("record", self.journal.folder)])


def judged_line(judged: JudgedCommit, title: CommitTitle) -> str:
    """Say what was found out about a commit."""
    figures = [f"{times(judged.ratio)} as long as good"] if judged.ratio is not None else []
    if judged.pairs:
        figures.append(f"{counted(judged.pairs, 'pair')} of runs")
    if judged.reason:
        line = " ".join(judged.reason.split())
        figures.append(f"{line[:97]}…" if len(line) > 98 else line.rstrip("."))
    said = f" ({', '.join(figures)})" if figures else ""
    return f"{judged.verdict:7} {judged.commit[:_SHOWN]} {title.subject}{said}"


def bisected_view(header: Bisection, issue: str) -> Group:
    """Lay out the commit that was found, how sure it is, and the text for an issue."""
    found = header.result
    rows = [("commit", _named(header, each)) for each in found.commits]
    if found.parent:
        rows.append(("parent", _named(header, found.parent)))
    rows.append(("runs", f"{found.runs}, of {counted(len(found.judged) + 2, 'commit')}"))
    views: list[RenderableType] = [
        Prose(sentence(header), style="bold"),
        Text(""),
        Details(rows),
        *(Prose(each, style="dim") for each in _remarks(found)),
        Text(""),
        Prose("Text for an issue:", style="dim"),
        *(whole(line) for line in issue.split("\n")),
        Text(""),
    ]
    return Group(*views)


def sentence(header: Bisection) -> str:
    """Say which commit it is, and what it did."""
    found = header.result
    if len(found.commits) > 1:
        return (
            f"One of {len(found.commits)} commits {_did(header, found)}; the skipped ones could "
            "not be judged."
        )
    return f"{found.commits[0][:_SHOWN]} is the first commit that {_did(header, found)}."


def _did(header: Bisection, found: FoundCommits) -> str:
    if found.effect == "fails":
        return "fails"
    if found.effect == "text differs":
        return "writes a different text"
    ratio = found.ratio or found.endpoints
    whom = "its parent" if found.ratio else "the good one"
    if ratio is None:
        return "is slower"
    return f"is slower: {header.metric} takes {as_long(ratio)} as with {whom}"


def _remarks(found: FoundCommits) -> list[str]:
    remarks = []
    if found.error is not None:
        remarks.append(
            f"The probability that a decision of this search is wrong is at most {found.error:.0%}."
        )
    if not found.is_confirmed:
        remarks.append(
            "This commit alone is not slower than its parent by as much as --slower. Several "
            "commits share the slowdown; here half of it is reached."
        )
    return remarks


def issue_text(header: Bisection, run: Run | None) -> str:
    """Return what a maintainer needs: commit, figures, machine, command, and the search's log."""
    found = header.result
    lines = [f"{sentence(header)}", ""]
    label = "first bad commit" if len(found.commits) == 1 else "perhaps the first bad commit"
    lines += [f"- {label}: {_named(header, each)}" for each in found.commits]
    if found.parent:
        lines.append(f"- its parent: {_named(header, found.parent)}")
    if found.parent_s and found.commit_s and found.ratio:
        lines.append(
            f"- {header.metric}: {_rate(header.metric, found.parent_s)} before, "
            f"{_rate(header.metric, found.commit_s)} with it (per token "
            f"{as_long(found.ratio)})"
        )
    if found.endpoints:
        lines.append(f"- bad against good: per token {as_long(found.endpoints)}")
    lines += _machine(run) if run is not None else [f"- model: {header.model}"]
    lines += ["", "```", f"# good: {header.wanted.good}", f"# bad: {header.wanted.bad}"]
    lines += [judged_line(each, header.titles[each.commit]) for each in found.judged]
    lines += ["```", "", "Found by armload bisect."]
    if found.error is not None:
        lines[-1] = (
            "Found by armload bisect: alternating runs, probability of a wrong decision at most "
            f"{found.error:.0%}."
        )
    return "\n".join(lines)


def _rate(metric: Metric, cost_s: float) -> str:
    return f"{three_figures(1 / cost_s)} {_RATES[metric]}"


def _machine(run: Run) -> list[str]:
    board, binary = run.board, run.binary
    device = board.hardware or board.device or board.description or board.name
    features = board.cpu_features if len(board.cpu_features) <= _MOST_FEATURES else ()
    known = (device, counted(board.cores, "core"), " ".join(features))
    return [
        f"- machine: {', '.join(filter(None, known))}",
        f"- built for {binary.target} with {binary.compiler}",
        f"- model: {run_words.model_name(run)}",
        f"- command: {run_words.command(run)}",
    ]


def _named(header: Bisection, commit: str) -> str:
    title = header.titles[commit]
    return f"{commit} {title.subject} ({title.date})"
