"""What is said when a board's storage has too little room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board
from armload.boards.local import LocalHost
from armload.core.errors import BoardError
from armload.core.progress import Silent
from armload.deploy.layout import Layout
from armload.deploy.payload import read_payload
from armload.deploy.space import FreeSpace, ask_space, need_memory, need_space
from armload.deploy.transfer import deliver
from armload.deploy.upload import Upload, UploadState
from tests.unit.samples import conditions

HOST = LocalHost("kitchen")


def test_the_figures_of_a_lack_of_room_add_up() -> None:
    space = FreeSpace(free_bytes=1_000_000, advice="Do this.")
    with pytest.raises(BoardError) as caught:
        space.need(HOST, "watch (65.5 kB)", PurePosixPath("/data"), 65_536)
    assert caught.value.message == (
        "kitchen: not enough space for watch (65.5 kB): 1.0 MB free in /data; 65.5 kB to send and "
        "4.2 MB reserved for the file system and the run's own files need 3.3 MB more."
    )
    FreeSpace(free_bytes=5_000_000, advice="").need(HOST, "watch", PurePosixPath("/data"), 65_536)
    FreeSpace(free_bytes=None, advice="").need(HOST, "watch", PurePosixPath("/data"), 1 << 40)


def test_only_folders_that_free_something_are_proposed(tmp_path: Path) -> None:
    (tmp_path / "bin" / "small").mkdir(parents=True)
    layout = Layout(workdir=PurePosixPath(tmp_path))
    folders = [layout.model("0" * 64, "m.gguf").parent]
    assert "armload's own files there are small" in ask_space(HOST, layout, folders).advice
    large = tmp_path / "models" / "large"
    large.mkdir()
    (large / "m.gguf").write_bytes(bytes(2 << 20))
    advice = ask_space(HOST, layout, folders).advice
    assert f"{large} (2.1 MB)" in advice
    assert "small" not in advice


class _Full(LocalHost):
    """A board whose storage fills up as soon as something is sent."""

    def send_file(
        self, local: Path, remote: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        raise BoardError("cat: write error: No space left on device")


@pytest.mark.parametrize("folder", ["", "bin/", "models/a/"])
def test_what_a_folder_holds_makes_no_difference_to_what_is_proposed(
    tmp_path: Path, folder: str
) -> None:
    file = tmp_path / "qwen" / folder / "data"
    file.parent.mkdir(parents=True)
    file.write_text("content")
    layout = Layout(workdir=PurePosixPath(tmp_path / "work"))
    large = tmp_path / "work" / "models" / "large"
    large.mkdir(parents=True)
    (large / "m.gguf").write_bytes(bytes(2 << 20))
    (upload,) = read_payload(tmp_path / "qwen", Silent()).items(layout)
    with pytest.raises(BoardError, match=r"is full\.") as caught:
        deliver(_Full("kitchen"), layout, upload, None, Silent())
    assert f"{large} (2.1 MB)" in caught.value.remedy
    with file.open("wb") as sparse:
        sparse.truncate(1 << 43)
    with pytest.raises(BoardError, match=f"free in {layout.workdir}; ") as caught:
        need_space(HOST, layout, [upload], [UploadState(state="absent")])
    assert f"{large} (2.1 MB)" in caught.value.remedy


def test_what_is_sent_to_a_folder_in_memory_is_said_and_must_fit_there(tmp_path: Path) -> None:
    said: list[str] = []

    class Saying(Silent):
        def say(self, message: str) -> None:
            said.append(message)

    board = Board.model_validate(
        {"name": "pi", "target": "rpi5", "reach": {"kind": "local"}, "workdir": "/tmp/armload"}
    )
    remote = PurePosixPath("/tmp/armload/models/0/m.gguf")
    upload = Upload(local=tmp_path / "m", remote=remote, sha256="0" * 64, executable=False)
    with upload.local.open("wb") as sparse:
        sparse.truncate(800_000_000)
    on_storage = conditions()
    there, absent = UploadState(state="present"), UploadState(state="absent")
    need_memory(board, [upload], [absent], on_storage, Saying())
    in_memory = on_storage.model_copy(
        update={"workdir_in_memory": True, "workdir_filesystem": "tmpfs"}
    )
    need_memory(board, [upload], [there], in_memory, Saying())
    assert said == []
    need_memory(board, [upload], [absent], in_memory, Saying())
    (sentence,) = said
    assert sentence == (
        "pi: /tmp/armload is in memory (tmpfs): the 800.0 MB to send will occupy memory, and "
        "will be lost when the board restarts. Set a 'workdir' on storage in boards/pi.yaml."
    )
    short = in_memory.model_copy(update={"memory_available_bytes": 700_000_000})
    with pytest.raises(BoardError, match=r"800\.0 MB to send, but only 700\.0 MB of memory"):
        need_memory(board, [upload], [absent], short, Saying())
