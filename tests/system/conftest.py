"""What tests of several files start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repositories import Repository


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
