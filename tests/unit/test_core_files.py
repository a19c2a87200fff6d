"""Files are whole or absent."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armload.core.files import sha256_of, write_whole, written_whole
from armload.core.shell import join, pip_install, quote
from armload.core.values import format_bytes, parse_bytes


def test_a_file_that_is_written_whole_is_there_with_ordinary_rights(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_whole(path, b"content")
    assert path.read_bytes() == b"content"
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_files_name_is_synced_after_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    really = os.fsync

    def noting(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content"
        synced.append(f"{kind} {'with' if (tmp_path / 'file').exists() else 'without'} the name")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    write_whole(tmp_path / "file", b"content")
    assert synced == ["content without the name", "folder with the name"]


def test_a_failed_write_leaves_the_former_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"former")

    def fail_in_the_middle() -> None:
        with written_whole(path) as beside:
            beside.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"former"


def test_a_failed_write_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "former").mkdir()

    def fail_in(folder: Path) -> None:
        with written_whole(folder / "file"):
            raise RuntimeError

    for folder in (tmp_path / "former", tmp_path / "new" / "folder"):
        with pytest.raises(RuntimeError):
            fail_in(folder)
    assert [each.name for each in tmp_path.iterdir()] == ["former"]


def test_the_checksum_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc" * 100_000)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(b"abc" * 100_000).hexdigest()


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_a_posix_shell_reads_back_the_words_that_were_quoted(words: list[str]) -> None:
    import shlex

    assert shlex.split(join(words)) == words


def test_what_installs_a_package_runs_the_python_that_runs_armload() -> None:
    python, *words = shlex.split(pip_install("a package"))
    assert Path(python).samefile(sys.executable)
    assert words == ["-m", "pip", "install", "a package"]


def test_what_installs_a_package_is_what_the_installation_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("armload.core.shell.find_spec", lambda _: None)
    words = shlex.split(pip_install("a", "b"))
    assert words == ["uv", "pip", "install", "--python", sys.executable, "a", "b"]
    (tmp_path / "armload").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "armload"))
    (tmp_path / "armload" / "pipx_metadata.json").touch()
    assert shlex.split(pip_install("a")) == ["pipx", "runpip", "armload", "install", "a"]


def test_an_empty_word_stays_a_word() -> None:
    assert quote("") == "''"


@pytest.mark.parametrize(
    ("text", "count"),
    [("2 GiB", 2 << 30), ("165 MB", 165_000_000), ("1.5kB", 1500), ("7", 7), (7, 7)],
)
def test_sizes_are_read_with_their_units(text: object, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["2 gigs", "", "-1 MB", "1 e6"])
def test_a_size_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


def test_sizes_are_written_as_storage_makers_do() -> None:
    assert format_bytes(999_999) == "1.0 MB"
    assert [format_bytes(n) for n in (0, 999, 1500, 2_900_000_000)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.9 GB",
    ]
