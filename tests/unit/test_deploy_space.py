"""What is said when a board's storage has too little room."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.local import LocalHost
from armload.core.errors import BoardError
from armload.deploy.space import FreeSpace, ask_space

HOST = LocalHost("kitchen")


def test_the_figures_of_a_lack_of_room_add_up() -> None:
    space = FreeSpace(free_bytes=1_000_000, advice="Do this.")
    with pytest.raises(BoardError) as caught:
        space.need(HOST, "watch (65.5 kB)", PurePosixPath("/data"), 65_536)
    assert caught.value.message == (
        "kitchen: no space for watch (65.5 kB): 1.0 MB free in /data; 65.5 kB to send and 4.2 MB "
        "kept free for the file system and the run's own files make 3.3 MB missing."
    )
    FreeSpace(free_bytes=5_000_000, advice="").need(HOST, "watch", PurePosixPath("/data"), 65_536)
    FreeSpace(free_bytes=None, advice="").need(HOST, "watch", PurePosixPath("/data"), 1 << 40)


def test_only_folders_that_free_something_are_proposed(tmp_path: Path) -> None:
    (tmp_path / "bin" / "small").mkdir(parents=True)
    folders = [PurePosixPath(tmp_path / "models" / "x")]
    assert "armload's own files there are small" in ask_space(HOST, folders).advice
    large = tmp_path / "models" / "large"
    large.mkdir()
    (large / "m.gguf").write_bytes(bytes(2 << 20))
    advice = ask_space(HOST, folders).advice
    assert f"{large} (2.1 MB)" in advice
    assert "small" not in advice
