"""Folders of any content arrive as they are here."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.boards.local import LocalHost
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.core.shell import call
from armload.deploy.clean import contents
from armload.deploy.layout import OWN_FOLDER, Layout
from armload.deploy.payload import find_payload, read_payload
from armload.deploy.transfer import deliver

HOST = LocalHost("kitchen")


def test_files_named_like_checks_and_parts_of_others_stay_as_they_are_here(tmp_path: Path) -> None:
    folder, layout = tmp_path / "qwen", Layout(workdir=PurePosixPath(tmp_path / "work"))
    kinds = ("", ".sha256", ".part", ".part.syncing", ".part.writer", ".syncing", ".writer")
    folder.mkdir()
    for kind in kinds:
        (folder / f"x{kind}").write_text(f"the user's x{kind}")
    uploads = read_payload(folder, Silent()).items(layout)

    def sent() -> list[str]:
        return [each.remote.name for each in uploads if deliver(HOST, layout, each, None, Silent())]

    assert sent() == sorted(f"x{kind}" for kind in kinds)
    assert sent() == []
    Path(uploads[0].remote).write_text("damaged")
    assert sent() == ["x"]
    for upload in uploads:
        assert Path(upload.remote).read_text() == upload.local.read_text()


def test_a_file_of_any_name_outlasts_the_note_of_its_last_use(tmp_path: Path) -> None:
    file, layout = tmp_path / "used", Layout(workdir=PurePosixPath(tmp_path / "work"))
    file.write_text("the user's")
    payload = read_payload(file, Silent())
    (upload,) = payload.items(layout)
    assert deliver(HOST, layout, upload, None, Silent())
    HOST.run(call("note_use", upload.remote.parent, 1))
    (item,) = contents(HOST, layout.workdir)
    assert item.used_days is not None
    assert item.used_days > 1
    assert Path(upload.remote).read_text() == "the user's"


@pytest.mark.parametrize("name", [OWN_FOLDER, f"qwen/{OWN_FOLDER}/x"])
def test_the_name_of_our_folder_on_boards_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with pytest.raises(UsageError, match=r"the name \.armload is reserved") as caught:
        find_payload(tmp_path / Path(name).parts[0])
    assert str(path) in caught.value.message
