"""The package index is the one that pip would use."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import armload
from armload.core.package_index import package_index, without_login

ADDRESS = "http://127.0.0.1:1/simple"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="there is no pip")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and a Python's own folder, in which nothing is configured."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "everyone"))
    return tmp_path


def _configure(path: Path, address: str = ADDRESS, section: str = "global") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[{section}]\nindex-url = {address}\n")


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has other folders")
@pytest.mark.parametrize("file", [".pip/pip.conf", "own/pip/pip.conf", "everyone/pip/pip.conf"])
def test_each_file_of_pip_counts(file: str, home: Path) -> None:
    _configure(home / file)
    assert package_index() == ADDRESS


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has other folders")
def test_the_nearer_file_and_the_nearer_section_win(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _configure(home / "everyone" / "pip" / "pip.conf", "http://127.0.0.1:2/everyone")
    _configure(home / ".pip" / "pip.conf", "http://127.0.0.1:2/old")
    _configure(home / "own" / "pip" / "pip.conf", "http://127.0.0.1:2/own")
    assert package_index() == "http://127.0.0.1:2/own"
    _configure(home / "named.conf", "http://127.0.0.1:2/named", section="download")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(home / "named.conf"))
    assert package_index() == "http://127.0.0.1:2/named"
    monkeypatch.setenv("PIP_INDEX_URL", ADDRESS)
    assert package_index() == ADDRESS


def test_no_file_counts_where_pip_is_told_to_read_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _configure(home / ".pip" / "pip.conf")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert package_index() is None


@pytest.mark.skipif(os.name != "posix", reason="the environment's folders are named otherwise")
def test_an_environment_that_was_never_activated_has_its_own_index(home: Path) -> None:
    place = home / "environment"
    venv.create(place, symlinks=True, with_pip=False)
    _configure(place / "pip.conf")
    packages = [Path(armload.__file__).parent.parent, sysconfig.get_path("purelib")]
    said = subprocess.run(
        [
            place / "bin" / "python",
            "-c",
            "from armload.core.package_index import *; print(package_index())",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, packages))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == ADDRESS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host/simple/", "http://host/simple/"),
        ("no: http://me:word@host:1/a.", "no: http://host:1/a."),
        ("http://me:wo@rd@host/a and https://token@other/b", "http://host/a and https://other/b"),
        ("https://host/feed@Release/simple", "https://host/feed@Release/simple"),
    ],
)
def test_a_login_is_taken_out_of_an_address(text: str, shown: str) -> None:
    assert without_login(text) == shown
