"""How compilers are called, and what a build host says of itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from armload.build.system_compiler import read_machine
from armload.build.target import Target
from armload.build.zig import find_zig
from armload.core.places import cache_folder


def test_zig_keeps_its_files_in_the_cache_whatever_the_cache_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "Jane's cache"))
    target = Target(name="any", cpu="generic")
    script = Path(find_zig(target).definitions(target)["CMAKE_C_COMPILER"]).read_text()
    shown = script.replace(
        "exec ", 'printf "%s\\n" "$ZIG_GLOBAL_CACHE_DIR" "$ZIG_LOCAL_CACHE_DIR"; : '
    )
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ZIG_")}
    said = subprocess.run(
        ["sh", "-c", shown], capture_output=True, text=True, check=True, env=environment
    )
    assert said.stdout.splitlines() == [str(cache_folder() / "zig")] * 2


def test_a_cache_that_shares_folders_by_links_has_the_same_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(name="any", cpu="generic")
    (tmp_path / "links").mkdir()
    for kind in ("compilers", "zig"):
        (tmp_path / "usual" / kind).mkdir(parents=True)
        (tmp_path / "links" / kind).symlink_to(tmp_path / "usual" / kind)
    found = []
    for name in ("usual", "links"):
        monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / name))
        found.append(find_zig(target).definitions(target)["CMAKE_C_COMPILER"])
    assert found[0] == found[1]


def test_a_cache_named_relative_to_this_folder_has_a_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARMLOAD_CACHE", "here")
    assert cache_folder() == tmp_path / "here"


def test_a_build_host_tells_the_versions_of_its_own_tools() -> None:
    said = "cmake cmake version 3.25.1\nmake GNU Make 4.3\n"
    assert read_machine(said).tools == {"cmake": "3.25.1", "make": "GNU Make 4.3"}
    assert read_machine(f"{said}ninja 1.11.1\n").tools == {"cmake": "3.25.1", "ninja": "1.11.1"}
