"""Fetching a commit from real git repositories: on the disk, by HTTP, and by git's own server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from armload.build import git as git_module
from armload.build.source import engine_commit, folder_source
from armload.core.errors import BuildError, MissingToolError, UsageError
from armload.core.places import cache_folder
from armload.core.progress import Silent
from tests.repositories import (
    Repository,
    chosen,
    git_daemon,
    provided,
    served,
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_a_branch_a_tag_and_a_commit_each_become_a_commit(repository: Repository) -> None:
    one, two, three = repository.commits
    for ref, commit in {
        "": three,
        "HEAD": three,
        "main": three,
        "refs/heads/main": three,
        "b1": one,
        "v1": two,
        "refs/tags/v1": two,
        two: two,
        two.upper(): two,
        one[:9]: one,
    }.items():
        source = chosen(repository.url, ref)
        assert source.identity == f"git:{commit}"
        folder = source.provide(Silent())
        assert (folder / "file").read_text() == {one: "one", two: "two", three: "three"}[commit]
        assert engine_commit(source, folder) == commit[:12]


def test_a_checkout_is_the_commit_s_files_and_nothing_else(repository: Repository) -> None:
    folder = provided(repository.url, "main")
    compared = subprocess.run(
        ["diff", "-r", "--exclude=.git", str(repository.folder), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compared.stdout == ""
    assert not (folder / ".git").exists()
    assert os.access(folder / "run.sh", os.X_OK)
    assert folder_source(folder)


def test_only_the_commit_is_fetched_not_its_history(repository: Repository) -> None:
    provided(repository.url, "main")
    (mirror,) = (cache_folder() / "sources" / "git").glob("*/mirror.git")
    counted = subprocess.run(
        ["git", "-C", str(mirror), "rev-list", "--all", "--count"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert counted.stdout.strip() == "1"


def test_a_commit_that_is_there_needs_neither_network_nor_git(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commits[0]
    folder = provided(repository.url, commit)
    shutil.rmtree(repository.folder)
    monkeypatch.setenv("PATH", "")
    assert provided(repository.url, commit) == folder
    with pytest.raises(MissingToolError, match="git is not installed"):
        provided(repository.url, "main")


def test_a_folder_with_a_ref_is_a_repository_and_its_changed_files_are_left_out(
    repository: Repository,
) -> None:
    (repository.folder / "file").write_text("not committed")
    folder = provided(str(repository.folder), "main")
    assert (folder / "file").read_text() == "three"
    assert provided(str(repository.folder)) == repository.folder


def test_a_branch_that_moved_is_another_source(repository: Repository) -> None:
    before = chosen(repository.url, "main")
    repository.commit("four")
    after = chosen(repository.url, "main")
    assert before.identity != after.identity
    assert (after.provide(Silent()) / "file").read_text() == "four"


def test_the_same_commit_of_two_repositories_is_one_source(
    repository: Repository, tmp_path: Path
) -> None:
    shutil.copytree(repository.folder, tmp_path / "fork")
    fork = (tmp_path / "fork").as_uri()
    assert chosen(fork, "main").identity == chosen(repository.url, "main").identity
    folder = provided(repository.url, "main")
    shutil.rmtree(tmp_path / "fork")
    assert provided(fork, repository.commits[2]) == folder


def test_a_plain_web_server_will_do(repository: Repository, tmp_path: Path) -> None:
    bare = tmp_path / "web" / "llama.cpp.git"
    repository.does("clone", "-q", "--bare", str(repository.folder), str(bare))
    repository.does("-C", str(bare), "update-server-info")
    with served(bare.parent) as address:
        assert (provided(f"{address}/llama.cpp.git", "b1") / "file").read_text() == "one"
        assert (provided(f"{address}/llama.cpp.git", "main") / "file").read_text() == "three"
        with pytest.raises(UsageError, match="no such repository"):
            chosen(f"{address}/other.git", "main")
        with pytest.raises(UsageError, match="has no commit"):
            provided(f"{address}/llama.cpp.git", "1" * 40)


@pytest.mark.parametrize("protocol", ["2", "0"])
def test_git_s_own_server_gives_any_commit_of_a_branch(
    protocol: str, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By version 0 it refuses a commit that no ref names: then whole branches are fetched."""
    monkeypatch.setattr(
        git_module, "_SETTINGS", (*git_module._SETTINGS, f"protocol.version={protocol}")
    )
    repository.does("tag", "-d", "b1")
    with git_daemon(tmp_path) as address:
        url = f"{address}/{repository.folder.name}".replace(" ", "%20")
        assert (provided(url, "main") / "file").read_text() == "three"
        assert (provided(url, repository.commits[0]) / "file").read_text() == "one"
        with pytest.raises(UsageError, match="no such repository"):
            chosen(f"{address}/other", "main")


def test_a_network_that_is_away_is_said_with_the_commit_that_can_be_named(
    repository: Repository, tmp_path: Path
) -> None:
    with git_daemon(tmp_path) as address:
        url = f"{address}/{repository.folder.name}".replace(" ", "%20")
        folder = provided(url, "main")
    with pytest.raises(BuildError, match="cannot be reached") as caught:
        chosen(url, "main")
    commit = repository.commits[2]
    assert f"'main' was the commit {commit}" in caught.value.message
    assert f"--ref {commit}" in caught.value.remedy
    assert provided(url, commit) == folder
    with pytest.raises(BuildError, match="cannot be reached") as caught:
        chosen(url, "b1")
    assert "last looked up" not in str(caught.value)
