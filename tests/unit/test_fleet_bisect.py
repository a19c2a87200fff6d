"""Searches on this machine: what is refused before anything is compiled, and what is resumed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.bisection import Sample, search
from armload.build.history import CommitHistory
from armload.build.repository import address_of
from armload.core.progress import Silent
from armload.fleet.bisect import BisectionFolder
from tests.command_line import typed
from tests.repositories import Repository
from tests.simulated_bisection import Commits

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A workspace with a repository beside it whose commits cannot be built."""
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    made = Repository(tmp_path / "llama.cpp")
    made.commits += [made.commit(f"change {number}") for number in range(9)]
    return made


def _bisect(lab: Repository, good: str, bad: str, *words: str) -> tuple[int, str, str]:
    where = ["--board", "this-machine", "--model", "word-problems:Q2_K"]
    source = ["--source", str(lab.folder), "--good", good, "--bad", bad]
    done = typed(Path.cwd(), "bisect", *where, *source, *words)
    return done.returncode, done.stdout, " ".join(done.stderr.split())


def test_commits_that_cannot_be_searched_are_refused_before_a_board_is_reached(
    lab: Repository,
) -> None:
    for good, bad, said in (
        ("b3", "b1", "comes after the bad one"),
        ("b1", "b1", "the same commit"),
        ("b1", "b99", "no branch or tag 'b99'"),
        ("b1", "2" * 40, f"no commit {'2' * 40}"),
    ):
        status, _, stderr = _bisect(lab, good, bad)
        assert (status, said in stderr) == (2, True), stderr
    assert not BisectionFolder.kind.folders()


def test_an_archive_is_no_repository(lab: Repository) -> None:
    words = ("--source", "my-llama", "--good", "b1", "--bad", "b2", "--board", "this-machine")
    sources = Path("toolchains", "sources")
    sources.mkdir(parents=True)
    (sources / "my-llama.yaml").write_text("extends: llama-cpp\n")
    done = typed(Path.cwd(), "bisect", *words)
    assert done.returncode == 2
    assert "--source my-llama: this is an archive of one release" in " ".join(done.stderr.split())


def test_a_good_commit_that_cannot_be_built_ends_the_search(lab: Repository) -> None:
    for _ in range(2):
        status, _, stderr = _bisect(lab, "b1", "main")
        assert status == 2
        assert f"The good commit {lab.commits[0][:12]} cannot be built" in stderr
    # It has ended: the same command begins another one.
    assert len(BisectionFolder.kind.folders()) == 2


def test_options_that_do_nothing_are_refused(lab: Repository) -> None:
    status, _, stderr = _bisect(lab, "b1", "main", "--text-differs", "--slower", "3%")
    assert status == 2
    assert "--slower cannot be combined with --text-differs" in stderr


def test_what_an_interrupted_search_has_is_not_run_again(lab: Repository) -> None:
    journal = _interrupted(lab, slow=8)
    status, stdout, stderr = _bisect(lab, "b1", "main")
    assert status == 0, stderr
    assert f"{lab.commits[8][:12]} is the first commit that is slower" in stdout
    assert "at most 5%" in " ".join(stdout.split())
    assert str(journal.folder) in stdout
    assert f"bad {lab.commits[8][:12]} change 5 (1.100× as long as good, 8 pairs of runs)" in stderr
    journal.rewrite_header(journal.header.model_copy(update={"is_ended": False}))
    status, stdout, stderr = _bisect(lab, "b1", "main", "--json")
    assert status == 0, stderr
    assert f"Resuming {journal.header.id}" in stderr
    document: dict[str, Any] = json.loads(stdout)
    assert document["id"] == journal.header.id
    first_bad = lab.commits[8]
    assert document["found"]["commits"] == [first_bad]
    assert document["found"]["parent"] == lab.commits[7]
    assert document["found"]["ratio"]["ratio"] == pytest.approx(1.1)
    assert document["titles"][first_bad]["subject"] == "change 5"
    for part in (first_bad, "change 5", "1.100× as long as good", "change 4", "per token 1.100×"):
        assert part in document["issue"], document["issue"]


def test_a_search_that_another_program_would_go_on_with_differently_is_not_continued(
    lab: Repository,
) -> None:
    journal = _interrupted(lab, slow=8)
    journal.rewrite([each.model_copy(update={"commit": "1" * 40}) for each in journal.entries])
    status, _, stderr = _bisect(lab, "b1", "main")
    assert status == 3
    assert "Use --new" in stderr


def _interrupted(lab: Repository, *, slow: int) -> BisectionFolder:
    """Return the journal of a search that was killed after its last run."""
    _bisect(lab, "b1", "main")  # begins one, and ends it at once
    journal = BisectionFolder.find("latest")
    address = address_of(lab.url)
    assert address is not None
    history = CommitHistory(address)
    history.fetch(lab.commits[0], lab.commits[-1], Silent())
    commits = Commits([0.01], random.Random(0), slow=slow, slowdown=0.1)
    samples: list[Sample] = []

    def sample(commit: str) -> Sample:
        made = commits.sample(str(lab.commits.index(commit)))
        samples.append(made.model_copy(update={"commit": commit}))
        return samples[-1]

    search(journal.header.wanted, history, sample, seed=journal.header.fingerprint)
    journal.rewrite(samples)
    journal.rewrite_header(journal.header.model_copy(update={"is_ended": False}))
    return journal
