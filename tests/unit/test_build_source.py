"""Sources of the engine."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from armload.build.archive import unpack, unpacked
from armload.build.source import (
    Archive,
    engine_commit,
    folder_source,
    pinned_source,
    programs_chosen,
    programs_offered,
)
from armload.core.errors import BuildError, DataError, UsageError
from armload.core.files import sha256_of
from armload.core.progress import Silent


def _archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def _llama_cpp(folder: Path, tools: dict[str, str], cmake: str = "") -> Path:
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "llama.h").write_text("")
    (folder / "CMakeLists.txt").write_text(cmake)
    for name, text in tools.items():
        (folder / "tools" / name).mkdir(parents=True)
        (folder / "tools" / name / "CMakeLists.txt").write_text(text)
    return folder


NEW = """
set(TARGET llama-completion-impl)
add_library(${TARGET} completion.cpp)
set(TARGET llama-completion)
add_executable(${TARGET} main.cpp)
"""
OLD = "set(TARGET llama-cli)\nadd_executable(${TARGET} main.cpp)\n"


def test_the_pinned_source_is_complete() -> None:
    source = pinned_source()
    assert len(source.sha256) == 64
    assert source.label == f"llama-cpp-python {source.version}"


def test_a_wrong_key_in_a_source_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "toolchains" / "sources"
    folder.mkdir(parents=True)
    (folder / "llama-cpp.yaml").write_text("project: x\nversion: 1\nsha: 0\nfolder: y\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"llama-cpp\.yaml, line"):
        pinned_source()


def test_programs_are_looked_up_in_the_source(tmp_path: Path) -> None:
    folder = _llama_cpp(tmp_path, {"completion": NEW, "cli": OLD})
    assert programs_offered(folder) == ["llama-cli", "llama-completion"]
    assert programs_chosen(folder, ()) == ["llama-completion"]
    assert programs_chosen(folder, ["llama-cli"]) == ["llama-cli"]


def test_an_older_source_is_measured_with_llama_cli(tmp_path: Path) -> None:
    assert programs_chosen(_llama_cpp(tmp_path, {"main": OLD}), ()) == ["llama-cli"]


def test_an_unknown_program_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    folder = _llama_cpp(tmp_path, {"main": OLD})
    with pytest.raises(UsageError, match="llama-clo") as caught:
        programs_chosen(folder, ["llama-clo"])
    assert "llama-cli" in caught.value.remedy


def test_a_folder_without_llama_cpp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no include/llama\.h"):
        folder_source(tmp_path)


def test_a_folder_is_another_source_when_a_file_changes(tmp_path: Path) -> None:
    folder = _llama_cpp(tmp_path, {"main": OLD})
    before = folder_source(folder).identity
    assert folder_source(folder).identity == before
    (folder / "tools" / "main" / "CMakeLists.txt").write_text(NEW)
    assert folder_source(folder).identity != before


def test_the_engine_says_its_own_version(tmp_path: Path) -> None:
    cmake = (
        "set(LLAMA_VERSION_MAJOR 0)\nset(LLAMA_VERSION_MINOR 5)\nset(LLAMA_VERSION_PATCH 7)\n"
        'option(LLAMA_BUILD_IS_DEV "llama: dev build" ON)\n'
    )
    folder = _llama_cpp(tmp_path / "new", {"main": OLD}, cmake)
    assert engine_commit(folder_source(folder), folder) == "0.5.7-dev"
    old = _llama_cpp(tmp_path / "old", {"main": OLD})
    assert engine_commit(pinned_source(), old).startswith("llama-cpp-python-")


def test_only_the_wanted_folder_is_unpacked(tmp_path: Path) -> None:
    archive = _archive(
        tmp_path / "a.tar.gz",
        {"top/vendor/llama.cpp/include/llama.h": "x", "top/README": "y", "top/vendor/other": "z"},
    )
    unpack(archive, "vendor/llama.cpp", tmp_path / "out", Silent())
    files = [
        str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()
    ]
    assert files == ["include/llama.h"]


@pytest.mark.parametrize("name", ["top/vendor/llama.cpp/../../../../escaped", "top/other/x"])
def test_an_archive_that_writes_elsewhere_or_lacks_the_folder_leaves_nothing(
    tmp_path: Path, name: str
) -> None:
    archive = _archive(tmp_path / "a.tar.gz", {name: "x"})
    with pytest.raises(BuildError):
        unpack(archive, "vendor/llama.cpp", tmp_path / "in" / "out", Silent())
    assert list((tmp_path / "in").iterdir()) == []
    assert not (tmp_path / "escaped").exists()


def test_a_cut_archive_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    whole = _archive(tmp_path / "a.tar.gz", {"top/vendor/llama.cpp/x": "x" * 100_000})
    whole.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(BuildError, match=r"a\.tar\.gz"):
        unpack(whole, "vendor/llama.cpp", tmp_path / "in" / "out", Silent())
    assert list((tmp_path / "in").iterdir()) == []


def test_an_archive_that_was_fetched_before_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    path = _archive(tmp_path / "p-1.tar.gz", {"p-1/vendor/llama.cpp/x": "x"})
    wanted = Archive(
        name="p", project="p", version="1", sha256=sha256_of(path), folder="vendor/llama.cpp"
    )
    assert (unpacked(wanted, tmp_path / "place", Silent()) / "x").read_text() == "x"
    assert unpacked(wanted, tmp_path / "place", Silent()) == tmp_path / "place"


def test_an_index_that_does_not_answer_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(BuildError, match="cannot be fetched"):
        unpacked(pinned_source(), tmp_path / "place", Silent())
    assert list(tmp_path.iterdir()) == []
