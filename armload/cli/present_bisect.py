"""A bisection, carried out and laid before a person or a program."""

from __future__ import annotations

from contextlib import suppress

from armload.analysis.bisection import JudgedCommit
from armload.analysis.run import Run
from armload.analysis.wording.resuming import resuming
from armload.build.history import CommitTitle
from armload.cli import terminal
from armload.cli.streams import show_document
from armload.core.errors import ArmloadError
from armload.core.files import write_whole
from armload.core.values import counted
from armload.core.workspace import runs_folder
from armload.fleet.bisect import BisectionFolder, BisectionRequest, bisect
from armload.report.bisected import Bisected, bisected_view, judged_line
from armload.report.layout import whole
from armload.runs import store
from armload.runs.request import Request


def bisect_and_present(request: Request, bisection: BisectionRequest, *, as_json: bool) -> None:
    """Find the commit, with a line for each that is judged, and show it."""
    progress = terminal.progress()

    def begun(journal: BisectionFolder) -> None:
        if done := len(journal.entries):
            progress.say(resuming(journal.header.id, counted(done, "run")))

    def said(judged: JudgedCommit, title: CommitTitle) -> None:
        progress.say(judged_line(judged, title))

    journal = bisect(request, bisection, progress, begun=begun, said=said)
    document = Bisected.of(journal.header, _run_of_the_first_bad(journal))
    issue = journal.folder / "issue.md"
    write_whole(issue, f"{document.issue}\n".encode())
    if as_json:
        show_document(document)
        return
    terminal.show(bisected_view(journal.header, document.issue))
    terminal.show(whole(f"issue    {issue}"))
    terminal.show(whole(f"record   {journal.folder}"))


def _run_of_the_first_bad(journal: BisectionFolder) -> Run | None:
    found = journal.header.found
    for each in reversed(journal.entries):
        if found and each.run and each.commit == found.commits[0]:
            with suppress(ArmloadError):
                return store.load(runs_folder() / each.run)
    return None
