"""What tests of several files start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from armload.boards.address import SshAddress
from tests.person import Person
from tests.repositories import Repository
from tests.servers import openssh
from tests.system.people import two_people


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshAddress]:
    """OpenSSH's server on this machine."""
    with openssh(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without keys, agent, password or settings of the person who tests."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "ARMLOAD_SSH_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A git repository with three commits, and a cache of its own for what is fetched."""
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return Repository(tmp_path / "a repository")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Person, Person]]:
    with two_people(tmp_path_factory.mktemp("people")) as both:
        yield both
