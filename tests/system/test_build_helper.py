"""Our small programs for boards: they run on every aarch64 CPU and say what is so."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from armload.build.helper import CPU_FEATURES, SHA256, WATCH, any_cpu_compiler, helper
from armload.build.inspection import inspect
from armload.build.target import machine_architecture
from armload.core.places import cache_folder
from armload.core.progress import Silent
from armload.models.model import BLOCK_BYTES, cached_checksums

SIZES = (0, 1, 55, 56, 63, 64, 65, 119, 128, 1000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 1_000_003)
SOURCES = Path(__file__).resolve().parents[2] / "toolchains" / "board"
CPUS = ("cortex-a53", "cortex-a72", "max", "this machine")


def emulator() -> str:
    found = shutil.which("qemu-aarch64")
    if found is None:
        pytest.skip("qemu-aarch64 is not installed (Debian: qemu-user)")
    return found


def command_on(cpu: str, program: Path) -> list[str]:
    return [str(program)] if cpu == "this machine" else [emulator(), "-cpu", cpu, str(program)]


def architecture_of(cpu: str) -> str:
    return machine_architecture() if cpu == "this machine" else "aarch64"


def said(cpu: str, name: str, *words: str) -> list[str]:
    program = helper(name, architecture=architecture_of(cpu)).path
    command = [*command_on(cpu, program), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", [SHA256, CPU_FEATURES, WATCH])
def test_a_program_is_static_small_and_made_once(name: str) -> None:
    first = helper(name)
    made = first.path.stat().st_mtime_ns
    found = inspect(first.path)
    assert found.is_static
    assert found.size_bytes < 100_000
    assert helper(name) == first
    assert first.path.stat().st_mtime_ns == made


def test_the_same_source_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = helper(CPU_FEATURES)
    for kind in ("compilers", "zig"):
        (tmp_path / kind).symlink_to(cache_folder() / kind)
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    second = helper(CPU_FEATURES)
    assert second.path != first.path
    assert second.path.read_bytes() == first.path.read_bytes()


@pytest.mark.parametrize("cpu", CPUS)
def test_sums_of_every_length_are_right(cpu: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in SIZES:
        data = os.urandom(size)
        path.write_bytes(data)
        assert said(cpu, SHA256, str(path)) == [sha256(data)]


@pytest.mark.parametrize("cpu", ["max", "this machine"])
@pytest.mark.parametrize("way", ["compress_by_instructions", "compress_plainly"])
def test_sums_by_instructions_are_the_same_as_without(tmp_path: Path, cpu: str, way: str) -> None:
    """The program takes the quicker way, so each is forced by a build of its own."""
    if cpu == "this machine" and not {"sha_ni", "sha2"} & set(
        Path("/proc/cpuinfo").read_text().split()
    ):
        pytest.skip("this machine has no SHA-2 instructions")
    source = SOURCES / "sha256.c"
    data = os.urandom(1_000_003)
    (tmp_path / "file").write_bytes(data)
    forced = tmp_path / f"{way}.c"
    text = source.read_text()
    call = "task.compress = chosen(trial, TRIAL_BYTES);"
    assert call in text
    forced.write_text(text.replace(call, f"(void)chosen; task.compress = {way};"))
    compiled = compile_for_board(forced, architecture_of(cpu))
    command = [*command_on(cpu, compiled), str(tmp_path / "file")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == sha256(data)


def compile_for_board(source: Path, architecture: str) -> Path:
    program = source.with_suffix("")
    words = [*any_cpu_compiler(architecture), "-Wno-error", "-I", str(SOURCES)]
    subprocess.run([*words, "-o", str(program), str(source)], check=True)
    return program


def test_sums_of_blocks_skip_and_end_where_they_are_told_to(tmp_path: Path) -> None:
    data = os.urandom(700_001)
    path = tmp_path / "-a 'name'"
    path.write_bytes(data)
    words = ("-b", "100000", "-s", "50", "-n", "650001", str(path))
    part = data[50:650_051]
    expected = [sha256(part[at : at + 100_000]) for at in range(0, len(part), 100_000)]
    assert said("max", SHA256, *words) == expected
    assert said("max", SHA256, "-b", "100", "-s", "700001", str(path)) == []
    assert said("max", SHA256, "-c", str(path)) == [sha256(data)]


@pytest.mark.parametrize("cpu", ["max", "this machine"])
@pytest.mark.parametrize("size", [0, 999, 1000, 1001, 300_017])
def test_the_sum_of_the_list_is_that_of_the_blocks_in_their_order(
    cpu: str, size: int, tmp_path: Path
) -> None:
    """Blocks this small keep all threads at it, and end in any order."""
    data = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(data)
    sums = [sha256(data[at : at + 1000]) for at in range(0, size, 1000)]
    assert said(cpu, SHA256, "-b", "1000", str(path)) == sums
    of_list = sha256("".join(f"{each}\n" for each in sums).encode())
    assert said(cpu, SHA256, "-b", "1000", "-l", str(path)) == [of_list]


def test_a_deployments_two_sums_are_those_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(2 * BLOCK_BYTES + 17))
    ours = cached_checksums(path, Silent())
    words = ("-b", str(BLOCK_BYTES), "-l", str(path))
    assert said("this machine", SHA256, *words) == [ours.blocks_sha256]
    assert said("this machine", SHA256, str(path)) == [ours.sha256]
    assert cached_checksums(path, Silent()) == ours


def test_standard_input_is_summed_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1_000_003))
    program = helper(SHA256, architecture=machine_architecture()).path
    with path.open("rb") as source:
        done = subprocess.run([program], stdin=source, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [sha256(path.read_bytes())]


def test_what_cannot_be_read_or_understood_is_an_error() -> None:
    for words in (
        ["/no/such/file"],
        ["-b", "1", "/no/such/file"],
        ["-b", "0", "a"],
        ["-b", "x", "a"],
        ["-l"],
        ["-z"],
        ["a", "b"],
    ):
        command = [emulator(), str(helper(SHA256).path), *words]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode != 0
        assert not done.stdout
        assert done.stderr


def test_the_features_of_an_emulated_cpu_are_told_in_the_kernels_words() -> None:
    plain, newest = said("cortex-a72", CPU_FEATURES), said("max", CPU_FEATURES)
    assert {"fp", "asimd", "aes", "sha2", "crc32"} <= set(plain)
    assert not {"asimddp", "atomics", "asimdhp", "sve"} & set(plain)
    assert {"asimddp", "atomics", "i8mm", "bf16", "sve2", "flagm2"} <= set(newest)


def test_the_features_are_those_that_this_machine_shows() -> None:
    if platform.machine() != "aarch64":
        pytest.skip("this machine is not aarch64")
    (shown,) = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("Features")
    }
    told = subprocess.run([helper(CPU_FEATURES).path], check=True, capture_output=True, text=True)
    assert set(told.stdout.split()) <= set(shown.split())
