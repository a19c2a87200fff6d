"""A password in an address reaches git's server, and nobody else: no list of processes, no file."""

from __future__ import annotations

import http.server
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from armload.build.commit import Commit
from armload.core.errors import BuildError
from armload.core.progress import Silent
from tests.repositories import Repository, chosen, guarded, provided, serving

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

USER, PASSWORD = "someone@x.org", "s3cret /`$(id)'\"\\%:@ ü"
PARTS = ("s3cret", quote(PASSWORD, safe=""))


@pytest.fixture
def seen() -> list[str]:
    """The words of all programs below this one, at each moment at which the server was asked."""
    return []


@pytest.fixture
def asked(seen: list[str]) -> Callable[[], None]:
    def note() -> None:
        for child in psutil.Process().children(recursive=True):
            try:
                seen.append(" ".join(child.cmdline()))
            except psutil.Error:  # it has ended meanwhile
                continue

    return note


def with_login(address: str, folder: Path, password: str = PASSWORD) -> str:
    login = f"{quote(USER, safe='')}:{quote(password, safe='')}@"
    return f"{address.replace('://', f'://{login}')}/{quote(folder.name)}"


def holds(text: str) -> bool:
    return any(part in text for part in PARTS)


def test_a_password_lets_in_and_stands_in_no_command_line_and_no_file(
    repository: Repository,
    tmp_path: Path,
    seen: list[str],
    asked: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace, stored = tmp_path / "trace", tmp_path / "stored"
    monkeypatch.setenv("GIT_TRACE", str(trace))  # git writes down each program that it starts
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[credential]\n\thelper = store --file={stored}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    with guarded(tmp_path, USER, PASSWORD, asked) as address:
        source = chosen(with_login(address, repository.folder), "main")
        assert isinstance(source, Commit)
        assert (source.provide(Silent()) / "file").read_text() == "three"
        assert (
            provided(with_login(address, repository.folder), "b1") / "file"
        ).read_text() == "one"
    assert any("git-remote-http" in words for words in seen)
    assert not [words for words in seen if holds(words)]
    assert "answer get" in trace.read_text()
    assert not holds(trace.read_text())
    assert not stored.exists(), "the person's own helper is told nothing"
    for text in (repr(source), source.label, source.identity):
        assert not holds(text)
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            assert not any(part.encode() in path.read_bytes() for part in PARTS), path


def test_a_wrong_password_is_refused_without_a_word_of_it(
    repository: Repository, tmp_path: Path, seen: list[str], asked: Callable[[], None]
) -> None:
    with guarded(tmp_path, USER, "another", asked) as address:
        with pytest.raises(BuildError, match="needs a login") as caught:
            chosen(with_login(address, repository.folder), "main")
        with pytest.raises(BuildError, match="needs a login"):
            chosen(f"{address}/{quote(repository.folder.name)}", "main")
    assert not holds(str(caught.value))
    assert not [words for words in seen if holds(words)]


def test_a_password_is_told_to_no_other_server(
    repository: Repository, tmp_path: Path, asked: Callable[[], None]
) -> None:
    told: list[str | None] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(self.headers.get("Authorization"))
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()

    with serving(Elsewhere) as elsewhere:

        class Redirecting(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(302)
                self.send_header("Location", f"{elsewhere}{self.path}")
                self.end_headers()

        with serving(Redirecting) as address, pytest.raises(BuildError):
            chosen(with_login(address, repository.folder), "main")
    assert set(told) == {None}
