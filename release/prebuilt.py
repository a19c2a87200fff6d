"""What a release's wheel carries compiled: the programs that the demo puts on its virtual board."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from armload.boards.board import load_board
from armload.build.builder import build, is_compiled
from armload.build.helper import helper
from armload.build.prebuilt import copy_helper_to_release, copy_programs_to_release
from armload.build.source import pinned_source
from armload.build.target import Target, load_target
from armload.cli.verbs.bench import DemoOptions
from armload.core.files import sha256_of
from armload.core.places import data_path
from armload.core.progress import Silent

_OURS = "MIT"


class Library(NamedTuple):
    """A library that is linked into programs.

    Attributes:
        version: as its own files say it; empty where they do not.
        license: its SPDX expression.
        text: the file with its license; none where a copy need not carry it.
    """

    name: str
    version: str
    license: str
    text: Path | None


class Carried(NamedTuple):
    """What is put into a wheel, in the words of CycloneDX.

    Attributes:
        folder: holds it.
        license: of the wheel with it, as an SPDX expression.
        components: programs, and the libraries in them.
        libraries_of: the references of those libraries, by that of each program.
    """

    folder: Path
    license: str
    components: Sequence[Mapping[str, Any]]
    libraries_of: Mapping[str, Sequence[str]]


def is_compiled_here() -> bool:
    """Return whether the engine, which takes minutes, is in the cache."""
    return is_compiled(_demo_target())


def carry(folder: Path, version: str, epoch: str) -> Carried:
    """Fill a folder with the programs and their libraries' licenses; compile what is missing.

    Raises:
        ArmloadError: they cannot be compiled.
    """
    engines = build(_demo_target())
    helpers = [helper(path.stem) for path in sorted(data_path("toolchains", "board").glob("*.c"))]
    built_utc = datetime.fromtimestamp(int(epoch), UTC).isoformat(timespec="seconds")
    copy_programs_to_release(folder, engines, release=f"armload {version}", built_utc=built_utc)
    for each in helpers:
        copy_helper_to_release(folder, each.path)
    c = _c_libraries()
    libraries = (*c, *_cxx_libraries(), *_engine_libraries(engines[0].engine_commit))
    (folder / "licenses").mkdir()
    for library in libraries:
        if library.text is not None:
            shutil.copyfile(library.text, folder / "licenses" / f"{library.name}.txt")
    held = {each.path: libraries for each in engines} | {each.path: c for each in helpers}
    return Carried(
        folder=folder,
        license=" AND ".join(sorted({_OURS, *(library.license for library in libraries)})),
        components=[
            *(_described(library) for library in libraries),
            *(_program(path) for path in held),
        ],
        libraries_of={
            _reference(path.name): [_reference(library.name) for library in linked]
            for path, linked in held.items()
        },
    )


def _demo_target() -> Target:
    return load_target(load_board(DemoOptions.model_fields["board"].default).target)


def _c_libraries() -> tuple[Library, ...]:
    zig = _zig_folder()
    musl = _said(zig / "lib/libc/musl/src/internal/version.h", r'VERSION "([\d.]+)"')
    return (
        Library("musl", musl, "MIT", zig / "lib/libc/musl/COPYRIGHT"),
        Library("zig-compiler-rt", metadata.version("ziglang"), "MIT", zig / "LICENSE"),
    )


def _cxx_libraries() -> tuple[Library, ...]:
    folder = _zig_folder() / "lib"
    digits = _said(folder / "libcxx/include/__config", r"_LIBCPP_VERSION (\d{6})")
    version = ".".join(str(int(digits[at : at + 2])) for at in (0, 2, 4))
    return tuple(
        Library(name, version, "Apache-2.0 WITH LLVM-exception", folder / name / "LICENSE.TXT")
        for name in ("libcxx", "libcxxabi", "libunwind")
    )


def _engine_libraries(engine_commit: str) -> tuple[Library, ...]:
    source = pinned_source().provide(Silent())
    vendor = source / "vendor"
    json = ".".join(
        _said(vendor / "nlohmann/json.hpp", rf"define NLOHMANN_JSON_VERSION_{part} (\d+)")
        for part in ("MAJOR", "MINOR", "PATCH")
    )
    http = _said(vendor / "cpp-httplib/httplib.h", r'CPPHTTPLIB_VERSION "([\d.]+)"')
    return (
        Library("llama.cpp", engine_commit, "MIT", source / "LICENSE"),
        Library("nlohmann-json", json, "MIT", source / "licenses/LICENSE-jsonhpp"),
        Library("cpp-httplib", http, "MIT", vendor / "cpp-httplib/LICENSE"),
        Library("subprocess.h", "", "Unlicense", None),
    )


def _zig_folder() -> Path:
    return Path(str(metadata.distribution("ziglang").locate_file("ziglang")))


def _said(file: Path, pattern: str) -> str:
    found = re.search(pattern, file.read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise LookupError(f"{file}: there is no {pattern}")
    return found[1]


def _described(library: Library) -> Mapping[str, Any]:
    return {
        "type": "library",
        "bom-ref": _reference(library.name),
        "name": library.name,
        **({"version": library.version} if library.version else {}),
        "licenses": [{"expression": library.license}],
    }


def _program(path: Path) -> Mapping[str, Any]:
    return {
        "type": "application",
        "bom-ref": _reference(path.name),
        "name": path.name,
        "version": path.parent.name,
        "description": "compiled for boards; its version is the hash of what it was made from",
        "hashes": [{"alg": "SHA-256", "content": sha256_of(path)}],
        "licenses": [{"expression": _OURS}],
    }


def _reference(name: str) -> str:
    return f"prebuilt:{name}"
