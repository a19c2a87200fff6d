"""Fetching a commit from real git repositories: on the disk, by HTTP, and by git's own server."""

from __future__ import annotations

import functools
import http.server
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from armload.build import git as git_module
from armload.build.repository import UnreachableError
from armload.build.source import Source, choose, engine_commit, folder_source
from armload.core.errors import ArmloadError, BuildError, MissingToolError, UsageError
from armload.core.progress import Silent
from armload.core.workspace import cache_folder
from tests.servers import end, free_port

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
FILES = 400
PROVIDE = """
import sys
from armload.build.source import choose
from armload.core.progress import Silent

class Told(Silent):
    def say(self, text):
        print(text, flush=True)

source = choose(sys.argv[1], ref=sys.argv[2], progress=Told())
print("ready", flush=True)
print(source.provide(Told()), flush=True)
"""


class Repository:
    """A repository with three commits on ``main``, each with a tag."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.does("init", "-q", "-b", "main")
        (folder / "include").mkdir()
        (folder / "include" / "llama.h").write_text("header")
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755)
        (folder / ".gitattributes").write_text("* text=auto\n/left-out export-ignore\n")
        (folder / "left-out").write_text("and yet it is there\n")
        (folder / "many").mkdir()
        for number in range(FILES):
            (folder / "many" / f"{number}").write_text(f"{number}\n" * 50)
        self.commits = [self.commit("one"), self.commit("two"), self.commit("three")]
        for number, commit in enumerate(self.commits, 1):
            self.does("tag", f"b{number}", commit)
        self.does("tag", "-a", "-m", "annotated", "v1", self.commits[1])

    def does(self, *words: str) -> str:
        who = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
        done = subprocess.run(
            ["git", *who, "-c", "commit.gpgSign=false", *words],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, text: str) -> str:
        (self.folder / "file").write_text(text)
        self.does("add", "-A")
        self.does("commit", "-q", "-m", text)
        return self.does("rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return self.folder.as_uri()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return Repository(tmp_path / "a repository")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder's files by HTTP; yield the address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextmanager
def git_daemon(folder: Path) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [
            "git",
            "daemon",
            "--export-all",
            "--listen=127.0.0.1",
            f"--port={port}",
            f"--base-path={folder}",
            str(folder),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                pytest.skip("this git has no daemon")
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
    finally:
        end(process)


def chosen(name: str, ref: str = "") -> Source:
    return choose(name, ref=ref, progress=Silent())


def provided(name: str, ref: str = "") -> Path:
    return chosen(name, ref).provide(Silent())


def kept() -> set[str]:
    """Return what counts as fetched."""
    return {path.name for path in (cache_folder() / "sources" / "git").glob("llama.cpp-*[!k]")}


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


def test_an_unknown_ref_is_refused_with_the_nearest_names(repository: Repository) -> None:
    with pytest.raises(UsageError, match="no branch or tag 'mian'") as caught:
        chosen(repository.url, "mian")
    assert "nearest names are: main." in caught.value.remedy
    with pytest.raises(UsageError, match="no branch or tag 'xyz'") as caught:
        chosen(repository.url, "xyz")
    assert "branches are: main." in caught.value.remedy
    with pytest.raises(UsageError, match="begins with 1234567") as caught:
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
    with pytest.raises(UsageError, match="holds no llama"):
        provided(repository.url, "main")
    assert kept() == set()


def test_an_empty_repository_is_refused(repository: Repository, tmp_path: Path) -> None:
    repository.does("init", "-q", str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="no default branch"):
        chosen((tmp_path / "empty").as_uri())


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
        with pytest.raises(BuildError, match="wants a login") as caught:
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


def _children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE
    ]


def test_a_damaged_mirror_is_made_anew(repository: Repository) -> None:
    provided(repository.url, "b1")
    (mirror,) = (cache_folder() / "sources" / "git").glob("*/mirror.git")
    shutil.rmtree(cache_folder() / "sources" / "git" / f"llama.cpp-{repository.commits[0]}")
    for pack in mirror.glob("objects/pack/*.pack"):
        pack.chmod(0o644)
        pack.write_bytes(pack.read_bytes()[:100])
    for loose in mirror.glob("objects/??/*"):
        loose.unlink()
    (mirror / "shallow.lock").write_text("")
    (mirror / "config.lock").write_text("")
    assert (provided(repository.url, "b1") / "file").read_text() == "one"


def test_what_a_killed_git_leaves_in_the_mirror_is_removed_and_the_rest_stays(
    repository: Repository,
) -> None:
    provided(repository.url, "b1")
    (mirror,) = (cache_folder() / "sources" / "git").glob("*/mirror.git")
    left = [mirror / name for name in ("shallow.lock", "index-0", "objects/pack/tmp_pack_x")]
    for path in left:
        path.write_text("")
    (mirror / "mark").write_text("")
    assert (provided(repository.url, "b2") / "file").read_text() == "two"
    assert [path for path in left if path.exists()] == []
    assert (mirror / "mark").exists()


@contextmanager
def _providing(repository: Repository, ref: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROVIDE, repository.url, ref],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_two_at_once_fetch_it_once(repository: Repository) -> None:
    with _providing(repository, "main") as one, _providing(repository, "main") as other:
        ends = [process.communicate()[0].splitlines()[-1] for process in (one, other)]
    assert ends[0] == ends[1]
    assert len(list(Path(ends[0]).rglob("*"))) > FILES
    assert kept() == {Path(ends[0]).name}


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_one_that_is_ended_at_any_moment_leaves_nothing_that_counts_as_done(
    kind: signal.Signals, repository: Repository
) -> None:
    chance = random.Random(3)
    commit = repository.commits[1]
    place = cache_folder() / "sources" / "git" / f"llama.cpp-{commit}"
    for _ in range(8):
        with _providing(repository, commit) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0, 0.2))
            below = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(kind)
            if chance.random() < 0.5:  # as when the power fails
                for child in below:
                    if child.is_running():
                        child.send_signal(signal.SIGKILL)
            process.communicate()
        if place.is_dir():
            assert len(list((place / "many").iterdir())) == FILES
            assert (place / "file").read_text() == "two"
            shutil.rmtree(place)
    assert (provided(repository.url, commit) / "file").read_text() == "two"
    assert not list(place.parent.glob(".*"))


def test_one_that_is_killed_while_it_unpacks_leaves_nothing_that_counts_as_done(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.folder / ".gitattributes").write_text("many/3* filter=slow\n")
    commit = repository.commit("slow")
    settings = tmp_path / "gitconfig"
    settings.write_text('[filter "slow"]\nsmudge = "sleep 0.1; cat"\n')
    place = cache_folder() / "sources" / "git" / f"llama.cpp-{commit}"
    with monkeypatch.context() as slow:
        slow.setenv("GIT_CONFIG_GLOBAL", str(settings))
        with _providing(repository, commit) as process:
            while not list(place.parent.glob("*/many/1*")):
                assert process.poll() is None
            below = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in below:
                child.kill()
            process.communicate()
    assert not place.exists()
    assert len(list((provided(repository.url, commit) / "many").iterdir())) == FILES
    assert not list(place.parent.glob(".*"))


def test_ctrl_c_ends_git_too(repository: Repository) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
        with subprocess.Popen(
            [sys.executable, "-c", PROVIDE, url, "main"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            line, _ = silent.accept()
            with line:
                below = psutil.Process(process.pid).children(recursive=True)
                assert below
                process.send_signal(signal.SIGINT)
                assert "KeyboardInterrupt" in process.communicate()[1]
    assert not [child for child in below if child.is_running()]


def test_every_error_of_a_source_is_a_sentence(repository: Repository) -> None:
    for name, ref in [(repository.url, "nope"), ("https://", ""), ("nowhere", "x")]:
        with pytest.raises(ArmloadError) as caught:
            chosen(name, ref)
        assert caught.value.remedy
        assert "\n" not in caught.value.message
