"""What a bisection found, in words."""

from __future__ import annotations

import random

import pytest
from rich.console import Console

from armload.analysis.bisection import BisectionGoal, FoundCommits, JudgedCommit, Sample, search
from armload.build.history import CommitTitle
from armload.engines.plan import Plan
from armload.fleet.bisect import Bisection
from armload.report.bisected import bisected_view, issue_text, judged_line, sentence
from tests.simulated_bisection import Commits, Line
from tests.unit.runs import quick_run

WANTED = BisectionGoal(good="0", bad="16", slower=0.05)
TITLES = {str(each): CommitTitle(subject=f"change {each}", date="2026-11-26") for each in range(17)}


def _header(found: FoundCommits, wanted: BisectionGoal = WANTED) -> Bisection:
    return Bisection(
        id="20261126T120000Z-bisect-kitchen-ab12",
        fingerprint="",
        started_utc="2026-11-26T12:00:00+00:00",
        armload="1",
        board="kitchen",
        model="tiny.gguf",
        source="repository",
        metric="decode",
        wanted=wanted,
        plan=Plan(),
        is_ended=True,
        found=found,
        titles=TITLES,
    )


def _slower(slow: int = 11, unbuilt: tuple[int, ...] = ()) -> Bisection:
    commits = Commits([0.01], random.Random(0), slow=slow, slowdown=0.1, unbuilt=unbuilt)
    return _header(search(WANTED, Line(), commits.sample, seed="0"))


def _view(header: Bisection) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(bisected_view(header, issue_text(header, quick_run())))
    return captured.get()


def test_an_issue_says_how_the_program_was_built_and_called() -> None:
    run = quick_run()
    issue = issue_text(_slower(), run)
    for part in (
        f"built for {run.binary.target} with {run.binary.compiler}",
        " ".join(run.command)[:20],
    ):
        assert part in issue, issue
    assert run.model.name in issue


def test_several_commits_are_all_named() -> None:
    header = _slower(unbuilt=(10, 11))
    assert sentence(header).startswith("One of 3 commits is slower: decode takes 1.100× as long")
    assert sentence(header).endswith("as with the good one; the skipped ones could not be judged.")
    issue = issue_text(header, None)
    assert all(
        f"- perhaps the first bad commit: {each} change {each}" in issue for each in (10, 11, 12)
    )
    assert "skipped 10 change 10 (error: not yet)" in issue


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (WANTED, "9 is the first commit that fails."),
        (
            WANTED.model_copy(update={"text_differs": True}),
            "9 is the first commit that writes a different text.",
        ),
    ],
)
def test_a_wrong_commit_has_no_ratio(wanted: BisectionGoal, said: str) -> None:
    def sample(commit: str) -> Sample:
        is_bad = int(commit) >= 9
        failure = "killed" if is_bad and not wanted.text_differs else ""
        return Sample(commit=commit, run="run", failure=failure, text_sha256=str(is_bad))

    header = _header(search(wanted, Line(), sample, seed="0"), wanted)
    assert sentence(header) == said
    issue = issue_text(header, None)
    assert "time per token" not in issue
    assert "probability" not in issue


def test_a_shared_slowdown_is_said_to_be_shared() -> None:
    def sample(commit: str) -> Sample:
        return Sample(commit=commit, run="run", cost_s=1 + 0.01 * int(commit))

    shown = " ".join(_view(_header(search(WANTED, Line(), sample, seed="0"))).split())
    assert "Several commits share the slowdown" in shown


def test_a_long_reason_is_cut_to_one_line() -> None:
    judged = JudgedCommit(commit="1", verdict="skipped", suspects=3, reason="error:\n" + "x" * 300)
    line = judged_line(judged, TITLES["1"])
    assert "\n" not in line
    assert line.endswith("x…)")
    assert len(line) < 140
