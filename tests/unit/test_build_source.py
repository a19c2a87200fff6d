"""Sources of the engine."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from armload.build.archive import Archive, digest_of, unpack, unpacked
from armload.build.binary import engine_name
from armload.build.source import (
    choose,
    engine_commit,
    engine_of,
    folder_source,
    pinned_source,
    project_of,
)
from armload.core.defaults import LIBRARIES
from armload.core.errors import BuildError, DataError, UsageError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.core.workspace import data_names
from armload.engines.model_program import binary_record
from tests.unit.samples import binary
from tests.unit.sources import llama_cpp


def _archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


OLD = "set(TARGET llama-cli)\nadd_executable(${TARGET} main.cpp)\n"


def test_the_pinned_source_is_complete() -> None:
    source = pinned_source()
    assert len(source.sha256) == 64
    assert source.label == f"llama-cpp-python {source.version}"


def test_how_a_source_is_compiled_is_part_of_its_identity() -> None:
    source = pinned_source()
    others: list[dict[str, tuple[tuple[str, ...], ...]]] = [
        {},
        {"llama": (("a", "b"),)},
        {"ggml": (("a", "b"),)},
        {"llama": (("a",), ("b",))},
    ]
    ids = {source.model_copy(update={"together": each}).identity for each in others}
    assert len(ids | {source.identity}) == 1 + len(others)


@pytest.mark.parametrize("name", sorted({*data_names("toolchains/sources")} - {*LIBRARIES}))
def test_every_shipped_source_is_found_by_its_name_and_says_what_it_is(name: str) -> None:
    source = choose(name, ref="", progress=Silent())
    assert isinstance(source, Archive)
    assert source.name == name
    assert source.description
    assert len(source.sha256) == 64


def test_the_source_that_is_not_named_is_the_pinned_one() -> None:
    assert choose("", ref="", progress=Silent()) == pinned_source()


def test_a_source_file_of_one_s_own_is_found_and_may_extend_a_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toolchains" / "sources").mkdir(parents=True)
    (tmp_path / "toolchains" / "sources" / "mine.yaml").write_text(
        "extends: llama-cpp\nversion: 9.9.9\n"
    )
    monkeypatch.chdir(tmp_path)
    assert choose("mine", ref="", progress=Silent()).label == "llama-cpp-python 9.9.9"


def test_a_folder_with_the_name_of_a_source_file_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama_cpp(tmp_path / "llama-cpp", {})
    monkeypatch.chdir(tmp_path)
    assert choose("llama-cpp", ref="", progress=Silent()) == pinned_source()
    path = tmp_path / "llama-cpp"
    assert choose("./llama-cpp", ref="", progress=Silent()) == folder_source(path)


@pytest.mark.parametrize("name", ["", "llama-cpp"])
def test_an_archive_has_no_refs(name: str) -> None:
    with pytest.raises(UsageError, match="'llama-cpp' is an archive") as caught:
        choose(name, ref="master", progress=Silent())
    assert "--source https://" in caught.value.remedy


@pytest.mark.parametrize(
    "name", ["llama-cpp-2052-08", "-x", "--ref", "~nobody", "nowhere/at/all", "x" * 5000, "a\0b"]
)
def test_what_is_no_source_is_answered_with_the_three_kinds(name: str) -> None:
    with pytest.raises(UsageError, match="--source ") as caught:
        choose(name, ref="", progress=Silent())
    for kind in ("source file (", "a folder of llama.cpp", "a repository such as https"):
        assert kind in caught.value.remedy


def test_the_nearest_source_file_comes_first() -> None:
    with pytest.raises(UsageError) as caught:
        choose("llama-cpp-2025", ref="", progress=Silent())
    assert "(llama-cpp-2025-08, llama-cpp, " in caught.value.remedy


def test_a_wrong_key_in_a_source_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "toolchains" / "sources"
    folder.mkdir(parents=True)
    (folder / "llama-cpp.yaml").write_text("project: x\nversion: 1\nsha: 0\nfolder: y\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError, match=r"llama-cpp\.yaml: 2 errors\.[\s\S]*line 3: there is no key 'sha'"
    ):
        pinned_source()


def test_a_folder_without_llama_cpp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no include/llama\.h"):
        folder_source(tmp_path)


def test_a_folder_is_another_source_when_a_file_changes(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path, {"main": OLD})
    before = folder_source(folder).identity
    assert folder_source(folder).identity == before
    (folder / "tools" / "main" / "CMakeLists.txt").write_text("")
    assert folder_source(folder).identity != before


def test_the_engine_says_its_own_version(tmp_path: Path) -> None:
    cmake = (
        "set(LLAMA_VERSION_MAJOR 0)\nset(LLAMA_VERSION_MINOR 5)\nset(LLAMA_VERSION_PATCH 7)\n"
        'option(LLAMA_BUILD_IS_DEV "llama: dev build" ON)\n'
    )
    folder = llama_cpp(tmp_path / "new", {"main": OLD}, cmake)
    assert engine_commit(folder_source(folder), folder) == "0.5.7-dev"
    old = llama_cpp(tmp_path / "old", {"main": OLD})
    unnamed = pinned_source().model_copy(update={"commit": "", "build_number": 0})
    assert engine_commit(unnamed, old).startswith("llama-cpp-python-")


def test_the_pinned_engine_says_the_release_and_commit_that_its_archive_carries(
    tmp_path: Path,
) -> None:
    pinned = pinned_source()
    assert pinned.commit
    folder = llama_cpp(tmp_path, {"main": OLD})
    assert engine_commit(pinned, folder) == f"b{pinned.build_number}-{pinned.commit}"
    unreleased = pinned.model_copy(update={"build_number": 0})
    assert engine_commit(unreleased, folder) == pinned.commit


def git(folder: Path, *words: str) -> None:
    as_somebody = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *as_somebody, *words], check=True)


def test_a_clone_says_its_build_number_and_a_shallow_one_its_commit_alone(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path / "whole", {"main": OLD})
    git(folder, "init", "--quiet")
    for number in range(3):
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", str(number))
    said = engine_commit(folder_source(folder), folder)
    assert re.fullmatch("b3-[0-9a-f]{12}", said)
    git(tmp_path, "clone", "--quiet", "--depth=1", folder.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    assert engine_commit(folder_source(shallow), shallow) == said.removeprefix("b3-")


@pytest.mark.parametrize(
    ("source", "commit", "name"),
    [
        ("llama-cpp-python 0.3.36", "0c1e57098", "llama.cpp 0c1e57098"),
        ("llama-cpp-python 0.3.16", "4227c9be4268ac844921", "llama.cpp 4227c9be4"),
        ("https://example.org/llama.cpp at 4227c9be4268", "4227c9be4268", "llama.cpp 4227c9be4"),
        ("", "b7000", "llama.cpp b7000"),
        ("llama-cpp-python 0.3.36", "b11312-0c1e57098", "llama.cpp b11312 (0c1e57098)"),
        ("/a/folder", "b3-4227c9be4268", "llama.cpp b3 (4227c9be4)"),
        ("", "0.5.0-dev", "llama.cpp 0.5.0-dev"),
        ("/a/folder", "0.5.0-dev", "/a/folder"),
        ("/a/folder", "unknown", "/a/folder"),
        ("", "", ""),
    ],
)
def test_an_engine_is_called_by_its_commit_where_that_is_known(
    source: str, commit: str, name: str
) -> None:
    assert engine_name(source, commit) == name


def test_the_pinned_engine_is_called_llama_cpp_by_programs_and_by_runs() -> None:
    pinned = pinned_source()
    said = engine_commit(pinned, Path())
    built = binary().model_copy(update={"source": pinned.label, "engine_commit": said})
    record = binary_record(built)
    name = f"llama.cpp b{pinned.build_number} ({pinned.commit})"
    assert engine_of(built) == record.engine == name
    assert record.engine_and_source == f"{name} from {pinned.label}"
    unnamed = record.model_copy(update={"engine_commit": ""})
    assert unnamed.engine == unnamed.engine_and_source == pinned.label


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
    with pytest.raises(BuildError, match="Cannot fetch"):
        unpacked(pinned_source(), tmp_path / "place", Silent())
    assert list(tmp_path.iterdir()) == []


def _at_address(path: Path, files: Path) -> Archive:
    return Archive(
        name="p",
        engine="distributed-llama",
        project="p",
        version="1",
        address="http://127.0.0.1:9/p.tar.gz",
        sha256=digest_of(files),
    )


def test_an_archive_at_an_address_is_known_by_its_files(tmp_path: Path) -> None:
    path = _archive(tmp_path / "p-1.tar.gz", {"p-1/src/x": "x", "p-1/README": "y"})
    for name, text in (("src/x", "x"), ("README", "y")):
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(text)
    wanted = _at_address(path, tmp_path / "files")
    found = unpacked(wanted, tmp_path / "place", Silent())
    assert (found / "src" / "x").read_text() == "x"
    assert not path.exists()


def test_other_files_from_an_address_are_refused_and_deleted(tmp_path: Path) -> None:
    path = _archive(tmp_path / "p-1.tar.gz", {"p-1/src/x": "other"})
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x").write_text("x")
    wanted = _at_address(path, tmp_path / "files")
    with pytest.raises(BuildError, match="not those of the pinned source"):
        unpacked(wanted, tmp_path / "place", Silent())
    assert not path.exists()
    assert not (tmp_path / "place").exists()


def test_an_address_that_does_not_answer_says_where_to_put_the_archive(tmp_path: Path) -> None:
    wanted = _at_address(tmp_path, tmp_path)
    with pytest.raises(BuildError, match="Cannot reach") as caught:
        unpacked(wanted, tmp_path / "place", Silent())
    assert str(tmp_path / "p-1.tar.gz") in caught.value.remedy


def test_distributed_llama_is_pinned_and_named_by_its_own_commit() -> None:
    source = pinned_source("distributed-llama")
    assert project_of(source) == "distributed-llama"
    assert project_of(pinned_source()) == "llama.cpp"
    assert engine_name(source.label, source.commit[:12]) == "distributed-llama 8d624a7"


def test_a_library_is_no_engine() -> None:
    with pytest.raises(UsageError, match="not an engine"):
        choose("s2n-tls", ref="", progress=Silent())
