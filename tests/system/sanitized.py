"""Programs of ours under this machine's sanitizers, and what these report of a run."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from armload.build.backend import native_folder, overlay_folder
from armload.build.compiler import tool
from armload.build.source import pinned_source
from armload.core.places import data_path
from armload.core.progress import Silent
from armload.models.shape import Shape
from armload.models.synth import synthesise

Sanitizer = Literal["address,undefined", "thread"]

REPORTED = 66
"""Exit status of a program with reports."""

RESERVE_BYTES = 24 << 20
FREE = "MemTotal: 409600 kB\nMemAvailable: 307200 kB\nSwapTotal: 0 kB\n"
SHORT = FREE.replace("307200", str((RESERVE_BYTES // 2 >> 10) - 64))
"""So little that just over half of the reserve is given back at a time."""

_HERE = Path(__file__).parent / "sanitizers"
_SHARED = "exitcode={status}:log_path='{log}':suppressions='{folder}/{file}'"
_OPTIONS = {
    "ASAN_OPTIONS": ("address.supp", ":detect_stack_use_after_return=1:detect_leaks=1"),
    "LSAN_OPTIONS": ("leak.supp", ":print_suppressions=0"),
    "UBSAN_OPTIONS": ("undefined.supp", ":print_stacktrace=1:halt_on_error=0"),
    "TSAN_OPTIONS": ("thread.supp", ":halt_on_error=0:history_size=7:second_deadlock_stack=1"),
}
# Nothing is missed by these, and both are quick.
_LEFT_OUT = ("GGML_CPU_REPACK", "GGML_LLAMAFILE")


SMALL = Shape(
    layers=3,
    width=512,
    feed_forward=1024,
    heads=8,
    kv_heads=8,
    vocabulary=2048,
    context_length=1024,
)
MIXTURE = Shape(
    architecture="qwen3moe",
    layers=3,
    width=256,
    feed_forward=512,
    heads=4,
    kv_heads=2,
    head_width=64,
    vocabulary=2048,
    context_length=1024,
    experts=16,
    experts_used=2,
    expert_feed_forward=96,
)
"""An expert's matrix is no whole pages."""
DRAFT = SMALL.model_copy(update={"layers": 1, "width": 128, "feed_forward": 256})
"""Of the small model's vocabulary."""


class Models(NamedTuple):
    """Files of models with random weights, of which the last drafts for the first."""

    small: Path
    mixture: Path
    draft: Path


def random_models(folder: Path) -> Models:
    found = Models(*(folder / f"{name}.gguf" for name in Models._fields))
    for path, shape in zip(found, (SMALL, MIXTURE, DRAFT), strict=True):
        synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())
    return found


class Done(NamedTuple):
    """A program that has ended."""

    status: int
    out: str
    log: str


class Sanitized(NamedTuple):
    """Programs that a sanitizer watches; each run's reports are looked at.

    Attributes:
        sanitizer: as gcc's ``-fsanitize`` names it.
        folder: of the programs.
        reports: folder for reports.
    """

    sanitizer: Sanitizer
    folder: Path
    reports: Path

    def words(self, program: str, *more: object) -> list[str]:
        """Return the words that start a program.

        A sanitizer's own memory has a fixed place, in which a randomised mapping may lie.
        """
        return ["setarch", "-R", str(self.folder / program), *map(str, more)]

    def environment(self, variables: Mapping[str, str] = {}) -> dict[str, str]:
        options = {
            name: _SHARED.format(
                status=REPORTED, log=self.reports / "report", folder=_HERE, file=file
            )
            + more
            for name, (file, more) in _OPTIONS.items()
        }
        return {**os.environ, **options, **variables}

    def starts(
        self,
        words: Sequence[str],
        variables: Mapping[str, str] = {},
        launcher: Sequence[str] = (),
        folder: Path | None = None,
    ) -> subprocess.Popen[str]:
        """Start the words of a program."""
        return subprocess.Popen(
            [*launcher, *words],
            cwd=folder,
            env=self.environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def ended(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a program, and look at what the sanitizer reports of it."""
        try:
            out, log = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        self.check()
        assert process.returncode != REPORTED, log
        return Done(process.returncode, out, log)

    def runs(
        self,
        words: Sequence[str],
        variables: Mapping[str, str] = {},
        folder: Path | None = None,
    ) -> Done:
        return self.ended(self.starts(words, variables, folder=folder))

    def reported(self) -> list[str]:
        """Return the reports so far, and forget them."""
        found = sorted(self.reports.iterdir())
        texts = [path.read_text(errors="replace") for path in found]
        for path in found:
            path.unlink()
        return texts

    def check(self) -> None:
        """Fail with the first report, if there is one; forget it."""
        texts = self.reported()
        assert not texts, f"{len(texts)} reports, of which the first is\n{texts[0][:8000]}"


def _skip_without_compiler() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("gcc's sanitizers are tried on x86-64")
    for library in ("libasan.so", "libtsan.so", "libubsan.so"):
        words = ["gcc", f"-print-file-name={library}"]
        if shutil.which("gcc") is None or shutil.which("g++") is None or "/" not in _said(words):
            pytest.skip(f"gcc with {library} is not installed")
    if shutil.which("setarch") is None:
        pytest.skip("setarch is not installed")


def _said(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def graph(sanitizer: Sanitizer, folders: pytest.TempPathFactory) -> Sanitized:
    """Build the program that streams a graph's weights; skip a test without compiler."""
    return engines(sanitizer, folders, "graph")


def engines(sanitizer: Sanitizer, folders: pytest.TempPathFactory, *programs: str) -> Sanitized:
    """Build programs of the engine with a sanitizer; skip a test without compiler.

    All tests of a session build in one tree.
    """
    tree = folders.getbasetemp() / f"sanitized-{sanitizer.partition(',')[0]}"
    if not tree.exists():
        _prepare(tree)
        _configure(sanitizer, tree)
    _ran([str(tool("ninja", "BIN_DIR", "ninja")), "-C", str(tree), *programs], tree)
    return Sanitized(sanitizer, tree / "bin", tree / "reports")


def helpers(sanitizer: Sanitizer, folder: Path) -> Sanitized:
    """Build the programs of boards with a sanitizer; skip a test without compiler."""
    _prepare(tree := folder / "tree")
    flags = (
        f"-fsanitize={sanitizer}",
        "-g",
        "-O1",
        "-std=gnu11",
        f"-I{native_folder()}",
        "-pthread",
    )
    for source in data_path("toolchains", "board").glob("*.c"):
        _ran(["gcc", *flags, str(source), "-o", str(tree / source.stem)], tree)
    return Sanitized(sanitizer, tree, tree / "reports")


def _prepare(tree: Path) -> None:
    _skip_without_compiler()
    (tree / "reports").mkdir(parents=True)


def _configure(sanitizer: Sanitizer, tree: Path) -> None:
    source = pinned_source()
    ccache = shutil.which("ccache") or ""
    variables = {
        "CMAKE_C_COMPILER": "gcc",
        "CMAKE_CXX_COMPILER": "g++",
        "CMAKE_C_COMPILER_LAUNCHER": ccache,
        "CMAKE_CXX_COMPILER_LAUNCHER": ccache,
        "CMAKE_MAKE_PROGRAM": str(tool("ninja", "BIN_DIR", "ninja")),
        "CMAKE_PROJECT_armload_INCLUDE": str(_HERE / "instrument.cmake"),
        "SANITIZER": sanitizer,
        "ARMLOAD_SOURCE": str(source.provide(Silent())),
        "ARMLOAD_NATIVE": str(native_folder()),
        "ARMLOAD_CPU_FLAGS": "-march=x86-64-v3",
        "ARMLOAD_ENGINE_COMMIT": source.commit,
        "ARMLOAD_TOGETHER": ";".join((*source.groups, "mtmd:tools/mtmd/models/*.cpp")),
        **dict.fromkeys(_LEFT_OUT, "OFF"),
    }
    words = [str(tool("cmake", "CMAKE_BIN_DIR", "cmake")), "-G", "Ninja"]
    words += ["-S", str(overlay_folder()), "-B", str(tree)]
    _ran([*words, *(f"-D{name}={value}" for name, value in variables.items() if value)], tree)


def _ran(words: Sequence[str], tree: Path) -> None:
    # As for other builds: what is compiled in another folder is the same to ccache.
    same = {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1", "SOURCE_DATE_EPOCH": "0"}
    done = subprocess.run(
        words,
        env={**os.environ, **same, "GIT_DIR": str(tree / "no-repository")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
