"""Nothing that a workstation has installed or exported changes or breaks a build."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from armload.boards.board import Board
from armload.boards.local import LocalHost
from armload.build import local_backend
from armload.build.backend import BuildBackend, BuildRequest
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.compiler import find_compiler, tool
from armload.build.helper import CPU_FEATURES, helper
from armload.build.local_backend import LocalBackend
from armload.build.record import read_record
from armload.build.source import folder_source, pinned_source
from armload.build.target import load_target, machine_architecture
from armload.buildhost import remote
from armload.buildhost.remote import RemoteBackend
from armload.core.places import cache_folder
from armload.core.progress import Silent
from tests.hostile_environment import HostileEnvironment, exported
from tests.repositories import Repository, chosen

pytestmark = pytest.mark.build

on_x86_64 = pytest.mark.skipif(
    machine_architecture() != "x86_64", reason="builds for this machine's CPU"
)
COMPILERS = [
    ("zig", "rk3568"),
    ("gnu", "rk3568"),
    pytest.param("zig", "host", marks=on_x86_64),
    pytest.param("native", "host", marks=on_x86_64),
]
LIBRARIES = "LD_LIBRARY_PATH"
"""Some reach the network by it: git is not kept from it."""
PROJECT = """
cmake_minimum_required(VERSION 3.18)
project(small C CXX)
find_program(tool NAMES pkg-config ld.lld mold)
find_library(library NAMES m c)
find_path(header armload.h)
find_package(Armload QUIET)
find_package(Threads REQUIRED)
foreach(found tool library header Armload_DIR)
    if(${found})
        message(SEND_ERROR "${found} was found: ${${found}}")
    endif()
endforeach()
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}=small")
add_link_options(-static)
add_library(part STATIC part.cpp)
add_executable(small small.c)
target_link_libraries(small part Threads::Threads)
set_target_properties(small PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin"
    LINKER_LANGUAGE CXX)
"""
PART = """
#include <string.h>
#include <string>
extern "C" int part(const char *text) { return (int)(std::string(text) + __FILE__).size(); }
"""
SMALL = """
#include <stdio.h>
int part(const char *text);
int main(int count, char **words) { return printf("%d\\n", part(words[count - 1])) < 0; }
"""


@pytest.fixture
def hostile(tmp_path: Path) -> HostileEnvironment:
    return HostileEnvironment(tmp_path / "hostile", os.environ["PATH"])


def new_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cache that has zig's libraries and the engine's source, and nothing compiled."""
    pinned_source().provide(Silent())
    usual = cache_folder()
    folder.mkdir()
    for kind in ("sources", "zig", "compilers"):
        (usual / kind).mkdir(exist_ok=True)
        (folder / kind).symlink_to((usual / kind).resolve())
    monkeypatch.setenv("ARMLOAD_CACHE", str(folder))
    return folder


def test_a_helper_has_the_same_bytes(
    hostile: HostileEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = helper(CPU_FEATURES)
    new_cache(tmp_path / "cache", monkeypatch)
    with exported(hostile):
        made = helper(CPU_FEATURES)
    assert made.path != usual.path
    assert made.path.parent.name == usual.path.parent.name
    assert made.sha256 == usual.sha256
    assert hostile.trapped == []


@pytest.mark.parametrize(("compiler", "target"), COMPILERS)
def test_a_project_has_the_same_bytes_and_cmake_finds_nothing_of_the_machines(
    compiler: str,
    target: str,
    hostile: HostileEnvironment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _write_project(tmp_path, monkeypatch)
    new_cache(tmp_path / "cache", monkeypatch)
    usual = _compiled(LocalBackend(compiler), target, tmp_path)
    with exported(hostile):
        made = _compiled(LocalBackend(compiler), target, tmp_path)
    assert made == usual
    assert hostile.trapped == []
    cache = (tmp_path / "build" / "tree" / "CMakeCache.txt").read_text()
    assert str(hostile.folder) not in cache


def test_a_project_has_the_same_bytes_on_a_build_host(
    hostile: HostileEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_project(tmp_path, monkeypatch)
    usual = _compiled(LocalBackend("gnu"), "rk3568", tmp_path)
    board = Board.model_validate(
        {
            "name": "builder",
            "target": "rk3568",
            "reach": {"kind": "local"},
            "workdir": str(tmp_path / "work"),
        }
    )
    there = tmp_path / "there"
    there.mkdir()
    for name in ("cmake", "ninja"):
        (there / name).symlink_to(tool(name, {"cmake": "CMAKE_BIN_DIR"}.get(name, "BIN_DIR"), name))
    hostile.variables["PATH"] = f"{there}:{hostile.variables['PATH']}"
    with exported(hostile, but=LIBRARIES):
        host = LocalHost("builder")
        backend = RemoteBackend(host, board, compiler="gnu", jobs=None, nice=None)
        made = _compiled(backend, "rk3568", tmp_path)
    assert made == usual
    assert hostile.trapped == []


def _write_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the project, and let it be built in the engine's place."""
    project = folder / "project"
    project.mkdir()
    for name, text in (("CMakeLists.txt", PROJECT), ("part.cpp", PART), ("small.c", SMALL)):
        (project / name).write_text(text)
    for module in (local_backend, remote):
        monkeypatch.setattr(module, "overlay_folder", lambda _engine: project)


def _compiled(backend: BuildBackend, target: str, folder: Path) -> tuple[str, bytes]:
    """Return a compiler's identity, and what it makes of the project in ``folder``."""
    found = backend.compiler(load_target(target))
    build_folder = folder / "build"
    shutil.rmtree(build_folder, ignore_errors=True)
    build_folder.mkdir()
    with (folder / "lock").open("w") as lock:
        request = BuildRequest(
            build_id="0123456789ab",
            target=load_target(target),
            cpu_flags=(),
            source=folder / "project",
            engine_commit="1",
            programs=("small",),
            folder=build_folder,
            lock=lock.fileno(),
        )
        made = backend.compile(request, found, Silent())
    return found.identity, made["small"].read_bytes()


def test_a_commit_has_the_same_files_whatever_git_is_told(
    hostile: HostileEnvironment, repository: Repository
) -> None:
    with exported(hostile, but=LIBRARIES):
        source = chosen(repository.url, "main")
        folder = source.provide(Silent())
    words = ["diff", "-r", "--exclude=.git", str(repository.folder), str(folder)]
    assert subprocess.run(words, capture_output=True, check=False).stdout == b""


def test_a_folders_commit_is_its_own_and_part_of_what_is_built(
    hostile: HostileEnvironment, repository: Repository
) -> None:
    usual = folder_source(repository.folder)
    before, commit = usual.identity, usual.commit
    assert commit == f"b3-{repository.commits[2][:12]}"
    with exported(hostile, but=LIBRARIES):
        assert folder_source(repository.folder).identity == before
    repository.does("commit", "-q", "--allow-empty", "-m", "the same files")
    assert usual.commit != commit
    assert usual.identity != before


@pytest.mark.timeout(2400)
@pytest.mark.exhaustive(covers=["armload/build", "toolchains", "deploy/build"])
@pytest.mark.parametrize(("compiler", "target"), COMPILERS)
def test_a_program_of_the_engine_has_the_same_id_and_bytes(
    compiler: str,
    target: str,
    hostile: HostileEnvironment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = [name for name in ("ld.lld", "mold", "ccache") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    usual = _engine(compiler, target)
    new_cache(tmp_path / "cache", monkeypatch)
    (hostile.folder / "bin" / "ld.lld").unlink()  # CMake comes to the real one
    with exported(hostile):
        made = _engine(compiler, target)
    assert made.path != usual.path
    assert (made.build_id, made.sha256) == (usual.build_id, usual.sha256)
    versions = [
        [program.version for program in read_record(each.path.parent).programs]
        for each in (made, usual)
    ]
    assert versions[0][0] in versions[1]
    assert hostile.trapped == []


def _engine(compiler: str, target: str) -> Binary:
    backend = LocalBackend(compiler)
    (binary,) = build(load_target(target), programs=["ggml-rpc-server"], backend=backend)
    return binary


def test_a_compiler_is_found_behind_a_ccache_that_has_its_name(
    hostile: HostileEnvironment,
) -> None:
    if shutil.which("ccache") is None:
        pytest.skip("ccache is not installed")
    target = load_target("host")
    usual = find_compiler("native", target)
    with exported(hostile):
        assert Path(str(shutil.which("cc"))).resolve().name == "ccache"
        found = find_compiler("native", target)
    assert found.definitions(target) == usual.definitions(target)
    assert Path(found.definitions(target)["CMAKE_C_COMPILER"]).resolve().name != "ccache"
