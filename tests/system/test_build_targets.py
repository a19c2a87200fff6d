"""Real builds: targets, compilers, the same bytes again, and what runs where."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.inspection import check, inspect
from armload.build.local_backend import LocalBackend
from armload.build.record import read_record, with_build_record, write_record
from armload.build.source import pinned_source
from armload.build.target import load_target, machine_architecture
from armload.core.errors import BuildError, DataError
from armload.core.places import cache_folder
from armload.core.progress import Silent
from armload.core.workspace import data_names
from tests.outside_data import shared
from tests.person import Person
from tests.system.engines import emulator
from tests.unit.builds import held_elsewhere

pytestmark = [pytest.mark.build, pytest.mark.timeout(2400)]

PROMPT = "Once upon a time"


QUICK = ["ggml-rpc-server"]
"""The program that takes the least to compile; all code for a CPU is in it."""
exhaustive = pytest.mark.exhaustive(covers=["armload/build", "toolchains"])


def engine(target: str, compiler: str = "zig", programs: Sequence[str] = ()) -> Binary:
    (binary,) = build(load_target(target), programs=programs, backend=LocalBackend(compiler))
    return binary


def _version(binary: Binary) -> str | None:
    (program,) = (
        each for each in read_record(binary.path.parent).programs if each.name == binary.program
    )
    return program.version


def _needed(binary: Binary) -> set[str]:
    return {use.feature for use in binary.features if not use.guarded}


def test_the_engines_code_uses_what_its_cpu_has_and_its_version_is_recorded() -> None:
    _uses_what_its_cpu_has("rk3568", binary := engine("rk3568"))
    assert binary.architecture == "aarch64"
    assert (_version(binary) or "").startswith("version")


def test_a_version_that_could_not_be_asked_for_is_asked_for_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = engine("rk3568")
    record = read_record(built.path.parent)
    folder = tmp_path / "builds" / record.build_id
    folder.mkdir(parents=True)
    shutil.copy2(built.path, folder)
    (program,) = (each for each in record.programs if each.name == built.program)
    unknown = program.model_copy(update={"version": None})
    write_record(folder, record.model_copy(update={"programs": (unknown,)}))

    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    with monkeypatch.context() as without_emulator:
        without_emulator.setenv("PATH", str(tmp_path))
        binary = engine("rk3568")
    assert binary.path.parent == folder
    assert _version(binary) is None
    with held_elsewhere(folder.with_name(f"{record.build_id}.lock")):
        assert engine("rk3568") == binary
        assert _version(binary) is None
    assert engine("rk3568") == binary
    assert (_version(binary) or "").startswith("version")
    assert [path.name for path in tmp_path.iterdir()] == ["builds"]


def _gcc_knows(cpu: str) -> bool:
    """A distribution's gcc may be older than a CPU; zig is pinned."""
    words = ["aarch64-linux-gnu-gcc", f"-mcpu={cpu}", "-S", "-x", "c", os.devnull, "-o", os.devnull]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _uses_what_its_cpu_has(target: str, binary: Binary) -> None:
    wanted = load_target(target)
    assert set(wanted.must_use) <= _needed(binary) <= set(wanted.features)


@exhaustive
@pytest.mark.parametrize("compiler", ["zig", "gnu"])
@pytest.mark.parametrize("target", [name for name in data_names("toolchains") if name != "host"])
def test_every_compiler_builds_every_target_and_its_code_uses_what_that_cpu_has(
    target: str, compiler: str
) -> None:
    if compiler == "gnu" and not _gcc_knows(load_target(target).cpu):
        with pytest.raises(DataError, match="does not support the CPU"):
            engine(target, compiler, QUICK)
        return
    binary = engine(target, compiler, QUICK)
    _uses_what_its_cpu_has(target, binary)
    assert binary.architecture == "aarch64"


@exhaustive
def test_the_distributions_cross_compiler_builds_the_engine_too() -> None:
    binary = engine("rk3568", "gnu")
    _uses_what_its_cpu_has("rk3568", binary)
    assert binary.compiler.startswith("gnu aarch64-linux-gnu-gcc")
    # What its symbols told stays known.
    told = with_build_record(inspect(binary.path))
    assert told.features == binary.features != inspect(binary.path).features
    # glibc carries code for CPUs that have what this one lacks, and chooses at run time.
    assert "sve" in {use.feature for use in binary.features}
    assert _said(binary, "max", 20)[0].startswith(PROMPT)


@exhaustive
@pytest.mark.skipif(machine_architecture() != "x86_64", reason="builds for this machine's CPU")
def test_the_host_target_is_this_machine() -> None:
    binary = engine("host")
    assert binary.architecture == "x86_64"
    inspection = inspect(binary.path)
    assert (inspection.architecture, inspection.is_static) == ("x86_64", True)
    with pytest.raises(BuildError, match="'rk3568' is aarch64"):
        check(inspection, load_target("rk3568"))
    words = [str(binary.path), *_arguments(12)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().startswith(PROMPT)


def _arguments(tokens: int) -> list[str]:
    model = str(shared("stories260K.gguf"))
    return ["-m", model, "-p", PROMPT, "-n", str(tokens), "--temp", "0", "-t", "1", "-no-cnv"]


def _said(binary: Binary, cpu: str, tokens: int) -> tuple[str, int]:
    words = [emulator()[0], "-cpu", cpu, str(binary.path), *_arguments(tokens)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.stdout.strip(), done.returncode


@exhaustive
def test_a_build_for_an_older_cpu_says_the_authors_text_on_it() -> None:
    expected = PROMPT + shared("stories260K.expected.txt").read_text().rstrip()
    assert _said(engine("rpi4"), "cortex-a72", 252) == (expected, 0)


def test_a_build_says_the_authors_text_on_its_cpu_and_dies_on_an_older_one() -> None:
    expected = PROMPT + shared("stories260K.expected.txt").read_text().rstrip()
    binary = engine("rk3568")
    assert _said(binary, "cortex-a76", 252) == (expected, 0)
    assert _said(binary, "cortex-a72", 252)[1] == -signal.SIGILL


@exhaustive
def test_the_same_inputs_give_the_same_bytes_and_a_second_target_compiles_ggmls_cpu_library_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = engine("rk3568", programs=QUICK)
    statistics = tmp_path / "statistics"
    for kind in ("sources", "zig", "compilers"):
        (cache_folder() / kind).mkdir(parents=True, exist_ok=True)
        (tmp_path / kind).symlink_to(cache_folder() / kind)
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    (tmp_path / "ccache").mkdir()
    (tmp_path / "ccache" / "ccache.conf").write_text(f"stats_log = {statistics}\n")
    elsewhere = engine("rk3568", programs=QUICK)
    assert elsewhere.path != here.path
    assert (elsewhere.build_id, elsewhere.sha256) == (here.build_id, here.sha256)
    if shutil.which("ccache") is None:
        pytest.skip("ccache is not installed")
    first, _ = _compiled_and_reused(statistics)
    statistics.unlink()
    engine("rpi4", programs=QUICK)
    compiled, reused = _compiled_and_reused(statistics)
    in_cpu_library = {file for file in first if "/ggml/src/ggml-cpu/" in file}
    assert compiled == in_cpu_library
    assert reused == first - in_cpu_library
    assert len(reused) > 5


def _compiled_and_reused(statistics: Path) -> tuple[set[str], set[str]]:
    """Read ccache's log: after each file's name stands how it went.

    A file that CMake has written is called by its name in the tree.
    """
    compiled: set[str] = set()
    reused: set[str] = set()
    file = ""
    for line in statistics.read_text().splitlines():
        if line.startswith("# "):
            file = line.removeprefix("# ").rpartition("/tree/")[2]
        elif "CMakeScratch" not in file and line in {"direct_cache_hit", "preprocessed_cache_hit"}:
            reused.add(file)
        elif "CMakeScratch" not in file and line == "cache_miss":
            compiled.add(file)
    return compiled, reused


@exhaustive
def test_a_new_target_is_one_file(tmp_path: Path) -> None:
    person = Person(tmp_path)
    (tmp_path / "toolchains").mkdir()
    (tmp_path / "toolchains" / "kitchen.yaml").write_text(
        "extends: rk3568\ndescription: the board in the kitchen\n"
    )
    done = person.types("build", "--target", "kitchen", "--programs", *QUICK, "--json")
    assert {binary["target"] for binary in json.loads(done.stdout)} == {"kitchen"}


@pytest.mark.exhaustive(covers=["armload/build", "toolchains"])
def test_a_compiler_error_shows_the_end_of_the_output_and_nothing_counts_as_built(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path)
    builds = tmp_path / "cache" / "builds"
    builds.unlink()
    (tmp_path / "toolchains").mkdir()
    (tmp_path / "toolchains" / "wrong.yaml").write_text(
        "extends: rk3568\ncxxflags: [-Dggml_backend_name=1]\n"
    )
    done = person.types("build", "--target", "wrong", "--programs", *QUICK, status=5)
    assert done.stdout == ""
    shown = done.stderr.partition("The end of its output:\n")[2].splitlines()
    assert ": error: " in "\n".join(shown)
    assert len(shown) <= 31
    assert "build.log" in shown[-1]
    assert [path.name for path in builds.glob("*/build.json")] == []


def test_a_missing_compiler_says_how_to_get_it(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.environment["PATH"] = str(tmp_path)
    (tmp_path / "sh").symlink_to("/bin/sh")
    done = person.types("build", "--compiler", "gnu", status=4)
    assert "this machine: the compiler aarch64-linux-gnu-gcc is not installed" in done.stderr
    assert "g++-aarch64-linux-gnu" in done.stderr
    assert "--compiler zig" in done.stderr


def test_a_program_is_added_to_a_build_without_compiling_the_rest_again() -> None:
    first = engine("rk3568")
    target, added = load_target("rk3568"), first.path.with_name("llama-quantize")
    log = first.path.with_name("build.log")
    written = first.path.stat().st_mtime_ns
    # Another installation of armload may have compiled the others: its settings go here.
    added.unlink(missing_ok=True)
    build(target, programs=[added.name])
    first = engine("rk3568")
    assert {"llama", "qwen3moe"} <= set(first.architectures)
    before = log.read_text()
    added.unlink()
    assert build(target, programs=[added.name, first.program])[0] == first
    more = log.read_text().removeprefix(before)
    assert f"Linking CXX executable bin/{added.name}" in more
    assert not set(_objects(more)) & set(_objects(before))
    assert first.path.stat().st_mtime_ns == written
    assert engine("rk3568") == first


def _objects(log: str) -> list[str]:
    return re.findall(r"^\[\d+/\d+\] Building \w+ object (\S+)", log, re.MULTILINE)


def test_programs_are_named_and_each_is_inspected() -> None:
    binaries = build(load_target("rk3568"), programs=["llama-bench", "llama-quantize"])
    assert [binary.program for binary in binaries] == ["llama-bench", "llama-quantize"]
    for binary in binaries:
        assert "asimddp" in _needed(binary)
    folder = binaries[0].path.parent
    assert pinned_source().provide(Silent()).is_dir()
    programs = {program.name for program in read_record(folder).programs}
    assert {path.name for path in folder.iterdir()} >= {"build.log", "tree", *programs}
