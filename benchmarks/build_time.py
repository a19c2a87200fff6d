"""How long builds take: one that is there, a cold one beside plain CMake, a second target.

    python benchmarks/build_time.py [--parts present,plain,second] [--repeats N]
                                    [--libraries warm] [--target rk3568] [--second rpi4]

present: the whole command ``armload build`` for a build that is there, interleaved with
``python -c pass``. It is built first where it is not.

plain: a cold ``armload build`` beside ``cmake`` and ``cmake --build`` of upstream's own project,
with the same source, options, compiler and flags, alternating. Neither has a compiler cache. Every
build has a copy of a cache folder in which nothing is but zig's C and C++ libraries, or with
``--libraries cold`` not even these. Some six minutes of all cores for each build.

second: with an empty ccache, a cold build for one target and then for another.

Prints medians and their ratios.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload.build.backend import overlay_folder
from armload.build.compiler import Compiler, find_compiler, tool
from armload.build.environment import bare_environment
from armload.build.source import pinned_source
from armload.build.target import Target, load_target
from armload.core.places import cache_folder
from armload.core.progress import Silent

ARMLOAD = str(Path(sys.executable).parent / "armload")
PROGRAM = "llama-completion"
PARTS = ("present", "plain", "second")
REPEATS = {"present": 15, "plain": 3, "second": 1}
TRIVIAL = "#include <iostream>\n#include <thread>\nint main() { std::cout << 1; }\n"


def wall_s(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Run a command and return its wall time; when interrupted, interrupt all of it too."""
    start = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            raise
        took_s = time.perf_counter() - start
        if status != 0:
            output.seek(0)
            raise SystemExit(f"{words[0]} failed with status {status}:\n{output.read()[-4000:]}")
    return took_s


def show(name: str, samples: Sequence[float]) -> float:
    """Print median, least and most; return the median."""
    median = statistics.median(samples)
    print(f"{name:32} {median:8.3f} s ({min(samples):.3f} to {max(samples):.3f})", flush=True)
    return median


def present(target: str, repeats: int) -> None:
    """Measure a build that is there."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "armload --help": [ARMLOAD, "--help"],
        "armload build, present": [ARMLOAD, "build", "--target", target],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    here = Path.cwd()
    for words in commands.values():
        wall_s(words, here, os.environ)
    for _ in range(repeats):
        for name, words in commands.items():
            times[name].append(wall_s(words, here, os.environ))
    for name, samples in times.items():
        show(name, samples)


class Cold:
    """Cold builds, each in a cache folder of its own.

    Args:
        folder: for all of them.
        source: folder of llama.cpp, as the pinned source was unpacked.
        libraries: a zig cache in which the C and C++ libraries are; none for a cold one.
    """

    def __init__(self, folder: Path, *, source: Path, libraries: Path | None) -> None:
        self._folder = folder
        self._source = source
        self._libraries = libraries

    def new_cache(self) -> Path:
        """Make a cache folder that has the source, and zig's libraries where they are wanted."""
        cache = Path(tempfile.mkdtemp(dir=self._folder))
        (cache / "sources").symlink_to(self._source.parent)
        if self._libraries is not None:
            shutil.copytree(self._libraries, cache / "zig")
        return cache

    def armload_s(self, target: str, cache: Path, environment: Mapping[str, str]) -> float:
        """Build with armload and return its wall time."""
        words = [ARMLOAD, "build", "--target", target, "--programs", PROGRAM]
        own = {"ARMLOAD_CACHE": str(cache), **environment}
        return wall_s(words, Path.cwd(), os.environ | own)

    def plain_s(self, target: Target, cache: Path) -> float:
        """Build upstream's project with CMake and return the wall time of both steps."""
        compiler = _compiler_in(cache, target)
        flags = " ".join([*compiler.cpu_flags(target), *target.cflags])
        overlay = (overlay_folder() / "CMakeLists.txt").read_text(encoding="utf-8")
        options = dict(re.findall(r"^set\((\w+) (ON|OFF) CACHE BOOL", overlay, re.MULTILINE))
        linking = re.search(r"^add_link_options\(([^)]*)\)", overlay, re.MULTILINE)
        optimised = re.search(r'^set\(CMAKE_C_FLAGS_RELEASE "([^"]*)"\)', overlay, re.MULTILINE)
        if not options or linking is None or optimised is None:
            raise SystemExit("The overlay's settings are not where this script looks for them.")
        definitions = {
            **compiler.definitions(target),
            **options,
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_C_FLAGS": flags,
            "CMAKE_CXX_FLAGS": flags,
            "CMAKE_C_FLAGS_RELEASE": optimised[1],
            "CMAKE_CXX_FLAGS_RELEASE": optimised[1],
            "CMAKE_EXE_LINKER_FLAGS": linking[1],
            "CMAKE_FIND_ROOT_PATH": str(cache / "no-such-folder"),
            "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
            "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY",
            "CMAKE_FIND_ROOT_PATH_MODE_PACKAGE": "ONLY",
            "CMAKE_DISABLE_FIND_PACKAGE_Git": "ON",
            "CMAKE_LINK_DEPENDS_USE_LINKER": "OFF",
            "CMAKE_MAKE_PROGRAM": str(tool("ninja", "BIN_DIR", "ninja")),
        }
        cmake = str(tool("cmake", "CMAKE_BIN_DIR", "cmake"))
        tree = str(cache / "tree")
        given = [f"-D{name}={value}" for name, value in definitions.items()]
        configure = [cmake, "-G", "Ninja", "-S", str(self._source), "-B", tree, *given]
        environment = {**bare_environment(), **compiler.environment()}
        return wall_s(configure, cache, environment) + wall_s(
            [cmake, "--build", tree, "--target", PROGRAM], cache, environment
        )


def _compiler_in(cache: Path, target: Target) -> Compiler:
    """Return zig, whose scripts and own cache are in ``cache`` from now on."""
    os.environ["ARMLOAD_CACHE"] = str(cache)
    return find_compiler("zig", target)


def libraries_in(cache: Path, target: Target) -> Path:
    """Let zig compile its C and C++ libraries for trivial programs, and return its cache.

    zig has them for each CPU apart. armload links for any CPU, plain CMake for the target's,
    because there the CPU's flags are everywhere.
    """
    compiler = _compiler_in(cache, target)
    cxx = compiler.definitions(target)["CMAKE_CXX_COMPILER"]
    program = cache / "trivial.cpp"
    program.write_text(TRIVIAL, encoding="utf-8")
    for flags in ([], compiler.cpu_flags(target)):
        words = [cxx, *flags, "-static", "-O3", str(program), "-o", str(cache / "trivial")]
        wall_s(words, cache, bare_environment())
    return cache_folder() / "zig"


def plain(cold: Cold, target: str, repeats: int) -> None:
    """Measure cold builds of armload and of plain CMake, alternating."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(repeats):
        for is_ours in (True, False) if number % 2 == 0 else (False, True):
            cache = cold.new_cache()
            if is_ours:
                ours.append(cold.armload_s(target, cache, {"CCACHE_DISABLE": "1"}))
            else:
                theirs.append(cold.plain_s(load_target(target), cache))
            shutil.rmtree(cache)
            print(f"  {'armload' if is_ours else 'plain CMake'} done", flush=True)
    ratio = show("armload build, cold", ours) / show("plain CMake, cold", theirs)
    print(f"{'armload to plain CMake':32} {ratio:8.3f}")


def second(cold: Cold, target: str, other: str, repeats: int) -> None:
    """Measure a target with an empty ccache, and another one after it."""
    first_s: list[float] = []
    second_s: list[float] = []
    for _ in range(repeats):
        cache = cold.new_cache()
        first_s.append(cold.armload_s(target, cache, {}))
        print("  first done", flush=True)
        second_s.append(cold.armload_s(other, cache, {}))
        shutil.rmtree(cache)
    ratio = show(f"{other} after it", second_s) / show(f"{target}, empty ccache", first_s)
    print(f"{'second to first target':32} {ratio:8.3f}")


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description="Measure how long builds take.")
    parser.add_argument("--parts", default="present", help=f"of {','.join(PARTS)}")
    parser.add_argument("--repeats", type=int, default=0, help="of each part; 0: its own number")
    parser.add_argument("--libraries", choices=("warm", "cold"), default="warm")
    parser.add_argument("--target", default="rk3568")
    parser.add_argument("--second", default="rpi4")
    chosen = parser.parse_args()
    parts = chosen.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if "second" in parts and shutil.which("ccache") is None:
        parser.error("the part 'second' needs ccache")
    repeats = {part: chosen.repeats or REPEATS[part] for part in parts}
    if "present" in parts:
        present(chosen.target, repeats["present"])
    if parts == ["present"]:
        return
    source = pinned_source().provide(Silent())
    with tempfile.TemporaryDirectory(
        prefix="armload-build-time-",
        ignore_cleanup_errors=True,  # a compiler that is ended may still write
    ) as place:
        folder = Path(place)
        libraries = None
        if chosen.libraries == "warm":
            (folder / "libraries").mkdir()
            libraries = libraries_in(folder / "libraries", load_target(chosen.target))
        cold = Cold(folder, source=source, libraries=libraries)
        if "plain" in parts:
            plain(cold, chosen.target, repeats["plain"])
        if "second" in parts:
            second(cold, chosen.target, chosen.second, repeats["second"])


if __name__ == "__main__":
    main()
