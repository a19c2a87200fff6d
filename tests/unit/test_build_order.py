"""armload's own files that take part in a build."""

from __future__ import annotations

import tarfile
from pathlib import Path

from armload.build.backend import native_folder, own_files
from armload.buildhost.remote import pack
from armload.core.progress import Silent
from tests.unit.sources import llama_cpp


def test_files_in_folders_count_and_what_an_editor_left_does_not(tmp_path: Path) -> None:
    (tmp_path / "scorer").mkdir()
    for name in ("trace.c", "scorer/main.cpp", "scorer/.main.cpp.swp", ".hidden"):
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in own_files(tmp_path)]
    assert found == ["scorer/main.cpp", "trace.c"]


def test_a_build_host_is_sent_the_files_in_folders(tmp_path: Path) -> None:
    archive = tmp_path / "archive.tar.gz"
    pack(llama_cpp(tmp_path / "llama", {}), archive, Silent())
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
    ours = {f"native/{path.relative_to(native_folder())}" for path in own_files(native_folder())}
    assert "native/scorer/main.cpp" in ours
    assert ours <= names
