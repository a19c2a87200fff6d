"""The commits between two, from real git repositories."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from armload.build.history import CommitHistory
from armload.build.repository import Address, address_of
from armload.core.errors import UsageError
from armload.core.progress import Silent
from tests.repositories import Repository, guarded

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    made = Repository(tmp_path_factory.mktemp("bisected") / "line")
    made.commits += [made.commit(f"change {number}") for number in range(9)]
    return made


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def _address(url: str) -> Address:
    address = address_of(url)
    assert address is not None
    return address


def _fetched(url: str, good: str, bad: str) -> CommitHistory:
    history = CommitHistory(_address(url))
    history.fetch(good, bad, Silent())
    return history


def _refused(url: str, good: str, bad: str) -> UsageError:
    with pytest.raises(UsageError) as refused:
        _fetched(url, good, bad)
    return refused.value


def test_the_commits_between_come_in_the_order_of_git_bisect(repository: Repository) -> None:
    commits = repository.commits
    history = _fetched(repository.url, commits[2], commits[11])
    suspects = history.suspects(commits[11], [commits[2]])
    assert sorted(suspects) == sorted(commits[3:12])
    assert suspects[-1] == commits[11]
    repository.does("bisect", "start", "--no-checkout", commits[11], commits[2])
    distances = {
        commits.index(suspects[0]),
        commits.index(repository.does("rev-parse", "BISECT_HEAD")),
    }
    repository.does("bisect", "reset")
    assert distances <= {6, 7}
    assert history.suspects(commits[4], [commits[2], commits[3]]) == [commits[4]]
    assert history.parent(commits[4]) == commits[3]
    assert history.title(commits[4]).subject == "change 1"
    assert len(history.title(commits[4]).date) == len("2026-11-26")


def test_a_server_sends_the_history_without_its_files(repository: Repository) -> None:
    repository.does("config", "uploadpack.allowFilter", "true")
    repository.does("config", "uploadpack.allowAnySHA1InWant", "true")
    commits = repository.commits
    with guarded(repository.folder.parent, "someone", "secret") as url:
        address = url.replace("//", "//someone:secret@") + "/line/.git"
        history = _fetched(address, commits[0], commits[11])
        assert len(history.suspects(commits[11], [commits[0]])) == 11
        mirror = _address(address).folder / "history.git"
    words = ["git", "-C", str(mirror), "count-objects", "-v"]
    counted = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert _objects(counted) == len(commits)
    assert "secret" not in (mirror / "config").read_text()


def _objects(counted: str) -> int:
    figures = dict(line.split(": ") for line in counted.splitlines())
    return int(figures["count"]) + int(figures["in-pack"])


def test_exchanged_commits_are_refused(repository: Repository) -> None:
    refused = _refused(repository.url, repository.commits[5], repository.commits[1])
    assert "comes after the bad one" in refused.message
    assert refused.remedy.startswith("Swap --good and --bad.")
    refused = _refused(repository.url, repository.commits[5], repository.commits[5])
    assert "the same commit" in refused.message


def test_a_shallow_repository_is_refused_until_it_is_complete(
    repository: Repository, tmp_path: Path
) -> None:
    shallow = tmp_path / "shallow"
    words = ["git", "clone", "-q", "--depth=3", repository.url, str(shallow)]
    subprocess.run(words, check=True)
    good, bad = repository.commits[2], repository.commits[11]
    refused = _refused(shallow.as_uri(), good, bad)
    assert "this repository is shallow" in refused.message
    assert "git fetch --unshallow" in refused.remedy
    words = ["git", "-C", str(shallow), "fetch", "-q", "--unshallow"]
    subprocess.run(words, check=True)
    assert _fetched(shallow.as_uri(), good, bad).suspects(bad, [good])


def test_a_commit_that_does_not_exist_is_refused(repository: Repository) -> None:
    refused = _refused(repository.url, "1" * 40, repository.commits[5])
    assert f"this repository has no commit {'1' * 40}" in refused.message


def test_commits_of_two_branches_are_refused_with_the_commit_where_they_part(
    tmp_path: Path,
) -> None:
    forked = Repository(tmp_path / "forked")
    forked.does("checkout", "-q", "-b", "other", forked.commits[1])
    other = forked.commit("other")
    refused = _refused(forked.url, other, forked.commits[2])
    assert "is on another branch" in refused.message
    assert f"--good {forked.commits[1]}" in refused.remedy
