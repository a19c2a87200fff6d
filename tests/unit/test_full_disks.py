"""A full disk of this machine is named as that, and a remedy does not lead back to what failed."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board
from armload.boards.folder import example_beside, read_obstacle
from armload.cli.error_output import failed, system_error
from armload.core.errors import BoardError, DataError
from armload.core.files import is_full, refusal_remedy
from armload.core.yamlfile import load_file
from armload.models.gguf import read_outline
from tests.faults import small_disk


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own on which nothing fits."""
    with small_disk(tmp_path / "full", 1) as folder:
        (folder / "machines").mkdir()
        (folder / "empty.gguf").touch()
        (folder / "empty.yaml").touch()
        with pytest.raises(OSError, match="No space left"):
            fill(folder / "filler")
        yield folder


def test_temporary_files_that_do_not_fit_are_said_to_meet_a_full_disk(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(full)])
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(full))
    with pytest.raises(FileNotFoundError, match="No usable temporary directory") as caught:
        tempfile.gettempdir()
    said = system_error(caught.value)
    assert f"no space left in {full}" in said.message
    assert "set TMPDIR to a folder on another disk" in said.remedy


def test_no_temporary_folder_that_may_be_written_is_not_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(missing)])
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(missing))
    with pytest.raises(FileNotFoundError, match="No usable") as caught:
        tempfile.gettempdir()
    said = system_error(caught.value)
    assert "full" not in said.message
    assert "no space" not in said.message
    assert str(missing) in said.message
    assert "Set TMPDIR to a folder of your own" in said.remedy


def test_an_empty_file_on_a_full_disk_is_said_to_be_there(full: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    for folder, is_on_full in ((full, True), (tmp_path, False)):
        with pytest.raises(DataError, match="it is empty") as caught:
            read_outline(folder / "empty.gguf")
        assert (f"the disk that holds {folder} is full" in str(caught.value)) == is_on_full
    with pytest.raises(DataError, match="this file is empty, and its disk is full"):
        load_file(full / "empty.yaml", Board)


@pytest.mark.parametrize(
    ("words", "is_about_storage"),
    [
        ("kitchen: cp: /data/m.gguf: Input/output error", True),
        ("kitchen: /data (ext4) is mounted read-only", True),
        ("kitchen: it has no such program", False),
    ],
)
def test_a_storage_error_of_a_virtual_board_names_the_full_disk_with_its_image(
    full: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    is_about_storage: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    for cache, is_on_full in ((full, True), (tmp_path, False)):
        monkeypatch.setenv("ARMLOAD_CACHE", str(cache))
        (cache / "machines").mkdir(exist_ok=True)
        failed(BoardError(words, "Look there."))
        said = " ".join(capsys.readouterr().err.split())
        named = f"that holds {cache}/machines, the storage of virtual boards, is full" in said
        assert named == (is_about_storage and is_on_full)


def test_a_disk_with_room_is_not_full_and_one_that_cannot_be_asked_is_not_called_so(
    full: Path, tmp_path: Path
) -> None:
    assert is_full(full)
    assert is_full(full / "new" / "file")
    assert not is_full(tmp_path)


def test_permissions_of_what_belongs_to_somebody_else_are_not_to_be_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = PermissionError(13, "Permission denied")
    own = tmp_path / "own"
    own.mkdir()
    assert f"Correct the permissions of {own}" in refusal_remedy(refused, own)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(own).st_uid + 4711)  # noqa: PTH116
    owner = pwd.getpwuid(own.stat().st_uid).pw_name
    for place in (own, own / "new"):
        said = refusal_remedy(refused, place)
        assert said == (
            f"{own} belongs to {owner}: choose a place that you may write to, then repeat the "
            "command."
        )
    said = refusal_remedy(refused, own, "set HF_HUB_CACHE to another folder")
    assert said.startswith(f"{own} belongs to {owner}: set HF_HUB_CACHE to another folder, then")


@pytest.mark.parametrize(
    "failed_folder",
    ["/data/local/tmp/armload", "/data/local/tmp", "/tmp/armload", "/tmp", "/", "/home/ann/work"],
)
def test_another_folder_is_never_the_one_that_failed(failed_folder: str) -> None:
    place = PurePosixPath(failed_folder)
    words = example_beside(place)
    assert not words.endswith(f" {failed_folder}")
    found = read_obstacle([failed_folder, "refused no such thing"], ["/dev/sda / ext4 rw 0 0"])
    assert found is not None
    assert found.remedy("kitchen").endswith(f"boards/kitchen.yaml{words}.")
