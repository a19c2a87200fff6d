"""Pinned keys are kept, one per server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from armload.boards.known_keys import (
    known_keys_name,
    pin_key,
    pinned_keys_file,
    pinned_line,
    user_key_files,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


def test_a_server_has_one_pinned_key_and_others_keep_theirs() -> None:
    pin_key("board", 22, "ssh-ed25519 AAAAold")
    pin_key("board", 2222, "ssh-ed25519 AAAAother")
    pin_key("board", 22, "ssh-ed25519 AAAAnew")
    assert pinned_keys_file().read_text() == (
        "[board]:2222 ssh-ed25519 AAAAother\nboard ssh-ed25519 AAAAnew\n"
    )
    assert pinned_line("board", 2222) == "ssh-ed25519 AAAAother"
    assert pinned_line("board", 22) == "ssh-ed25519 AAAAnew"
    assert pinned_line("boar", 22) is None


def test_keys_that_are_pinned_at_once_are_all_kept() -> None:
    names = [f"board{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as several:
        list(several.map(lambda name: pin_key(name, 22, "ssh-ed25519 AAAA"), names))
    lines = pinned_keys_file().read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(names)


def test_names_follow_openssh() -> None:
    assert known_keys_name("board", 22) == "board"
    assert known_keys_name("::1", 2022) == "[::1]:2022"


def test_the_configured_file_replaces_the_usual_one(home: Path) -> None:
    (home / ".ssh").mkdir()
    usual, own = home / ".ssh" / "known_hosts", home / "own"
    usual.touch()
    own.touch()
    assert usual in user_key_files(None)
    assert user_key_files("~/own ~/missing")[0] == own
    assert usual not in user_key_files("~/own")
