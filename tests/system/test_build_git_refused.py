"""What cannot be had from a git repository is refused in words, and nothing hostile runs."""

from __future__ import annotations

import http.server
import shutil
import socket
import threading
from pathlib import Path

import psutil
import pytest

from armload.build import git as git_module
from armload.build.repository import UnreachableError
from armload.core.errors import ArmloadError, BuildError, UsageError
from armload.core.places import cache_folder
from armload.core.progress import Silent
from tests.repositories import (
    Repository,
    chosen,
    kept,
    provided,
    served,
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_an_unknown_ref_is_refused_with_the_nearest_names(repository: Repository) -> None:
    with pytest.raises(UsageError, match="no branch or tag 'mian'") as caught:
        chosen(repository.url, "mian")
    assert "Similar names: main." in caught.value.remedy
    with pytest.raises(UsageError, match="no branch or tag 'xyz'") as caught:
        chosen(repository.url, "xyz")
    assert "branches are: main." in caught.value.remedy
    with pytest.raises(UsageError, match="1234567 does not identify") as caught:
        chosen(repository.url, "1234567")
    assert "40 digits" in caught.value.remedy


def test_a_commit_that_the_repository_lacks_is_refused(repository: Repository) -> None:
    with pytest.raises(UsageError, match=r"has no commit 1{40}\."):
        provided(repository.url, "1" * 40)
    assert kept() == set()


def test_the_object_of_a_tag_is_no_commit(repository: Repository) -> None:
    with pytest.raises(UsageError, match="is a tag") as caught:
        provided(repository.url, repository.does("rev-parse", "v1"))
    assert repository.commits[1] in caught.value.remedy


def test_a_name_that_is_branch_and_tag_is_not_guessed(repository: Repository) -> None:
    repository.does("branch", "b1", "main")
    with pytest.raises(UsageError, match="a branch and a tag") as caught:
        chosen(repository.url, "b1")
    assert "--ref refs/heads/b1 or --ref refs/tags/b1" in caught.value.remedy
    assert chosen(repository.url, "refs/tags/b1").identity == f"git:{repository.commits[0]}"


def test_a_repository_without_llama_cpp_is_refused(repository: Repository) -> None:
    repository.does("rm", "-q", "include/llama.h")
    repository.commit("nothing of it left")
    with pytest.raises(UsageError, match="does not contain llama"):
        provided(repository.url, "main")
    assert kept() == set()


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=touch pwned",
        "-h",
        "--",
        "refs/--upload-pack=touch pwned",
        "refs/heads/*",
        "*",
        "main;touch pwned",
        "$(touch pwned)",
        "../../../etc/passwd",
        "main^{tree}",
        "main~1",
        "+main:refs/heads/x",
        "a\nb",
        "x" * 5000,
    ],
)
def test_a_hostile_ref_is_an_unknown_one(
    ref: str, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path for path in tmp_path.iterdir() if path.name != "cache"}
    with pytest.raises(UsageError, match="no branch or tag"):
        chosen(repository.url, ref)
    assert {path for path in tmp_path.iterdir() if path.name != "cache"} == before


def test_a_folder_of_a_hostile_name_is_no_option(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "--upload-pack=touch pwned"
    repository.folder.rename(hostile)
    monkeypatch.chdir(tmp_path)
    assert (provided(hostile.name, "main") / "file").read_text() == "three"
    assert not list(tmp_path.rglob("pwned"))


def test_hooks_settings_and_repositories_of_elsewhere_change_nothing(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "templates" / "hooks"
    hooks.mkdir(parents=True)
    for hook in ("post-checkout", "reference-transaction"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        (hooks / hook).chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(f'[core]\nhooksPath = "{hooks}"\nautocrlf = true\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hooks.parent))
    monkeypatch.setenv("GIT_DIR", str(repository.folder / ".git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "objects"))
    folder = provided(repository.url, "b1")
    assert (folder / "file").read_text() == "one"
    assert (folder / "left-out").read_bytes() == b"and yet it is there\n"
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "objects").exists()


def test_a_login_is_neither_shown_nor_kept(repository: Repository, tmp_path: Path) -> None:
    bare = tmp_path / "web" / "llama.cpp.git"
    repository.does("clone", "-q", "--bare", str(repository.folder), str(bare))
    repository.does("-C", str(bare), "update-server-info")
    with served(bare.parent) as address:
        url = address.replace("://", "://someone:s3cret@") + "/llama.cpp.git"
        source = chosen(url, "main")
        source.provide(Silent())
        with pytest.raises(UsageError) as caught:
            chosen(url.replace("llama.cpp", "other"), "main")
    with pytest.raises(UnreachableError) as away:
        chosen(url, "main")
    for text in (str(caught.value), str(away.value), source.label, source.identity, repr(source)):
        assert "s3cret" not in text
        assert "someone" not in text
    for file in cache_folder().rglob("*"):
        assert "s3cret" not in str(file)
        assert not (file.is_file() and b"s3cret" in file.read_bytes()), file


def test_a_server_that_wants_a_login_is_an_error_not_a_question(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = tmp_path / "asker"
    asker.write_text(f"#!/bin/sh\ntouch '{tmp_path}/asked'\necho me\n")
    asker.chmod(0o755)
    for variable in ("GIT_ASKPASS", "SSH_ASKPASS"):
        monkeypatch.setenv(variable, str(asker))

    class Closed(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="closed"')
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with pytest.raises(BuildError, match="needs a login") as caught:
            chosen(f"http://127.0.0.1:{server.server_address[1]}/x", "main")
        server.shutdown()
        thread.join()
    assert "never asks" in caught.value.remedy
    assert not (tmp_path / "asked").exists()


def test_a_server_that_never_answers_is_given_up(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "PATIENCE_S", 1.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(BuildError, match="does not answer"),
    ):
        chosen(f"git://127.0.0.1:{silent.getsockname()[1]}/x", "main")
    assert _children() == []


def _stays(command: str) -> bool:
    """Say whether a child is the tests' server, or armload's guard of its children."""
    return "forked.py" in command or "living=" in command


def _children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and not _stays("".join(child.cmdline()))
    ]


def test_every_error_of_a_source_is_a_sentence(repository: Repository) -> None:
    for name, ref in [(repository.url, "nope"), ("https://", ""), ("nowhere", "x")]:
        with pytest.raises(ArmloadError) as caught:
            chosen(name, ref)
        assert caught.value.remedy
        assert "\n" not in caught.value.message
