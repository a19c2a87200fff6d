"""A password in an address reaches git's server, and no message or file."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from armload.build.commit import Commit
from armload.core.errors import BuildError
from armload.core.progress import Silent
from tests.repositories import Repository, chosen, guarded

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

USER, PASSWORD = "someone@x.org", "s3cret /`$(id)'\"\\%:@ ü"
PARTS = ("s3cret", quote(PASSWORD, safe=""))


def with_login(address: str, folder: Path) -> str:
    login = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@"
    return f"{address.replace('://', f'://{login}')}/{quote(folder.name)}"


def holds(text: str) -> bool:
    return any(part in text for part in PARTS)


def test_a_password_lets_in_and_stands_in_no_file(repository: Repository, tmp_path: Path) -> None:
    with guarded(tmp_path, USER, PASSWORD) as address:
        source = chosen(with_login(address, repository.folder), "main")
        assert isinstance(source, Commit)
        assert (source.provide(Silent()) / "file").read_text() == "three"
    for text in (repr(source), source.label, source.identity):
        assert not holds(text)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert not any(part.encode() in path.read_bytes() for part in PARTS), path


def test_a_wrong_password_is_refused_without_a_word_of_it(
    repository: Repository, tmp_path: Path
) -> None:
    with guarded(tmp_path, USER, "another") as address:
        with pytest.raises(BuildError, match="needs a login") as caught:
            chosen(with_login(address, repository.folder), "main")
        with pytest.raises(BuildError, match="needs a login"):
            chosen(f"{address}/{quote(repository.folder.name)}", "main")
    assert not holds(str(caught.value))
