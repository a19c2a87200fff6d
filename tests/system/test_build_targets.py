"""Real builds: every target, both compilers, the same bytes again, and what runs where."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.inspection import check, inspect
from armload.build.record import BuildRecord, with_recorded_features
from armload.build.source import pinned_source
from armload.build.target import load_target, machine_architecture
from armload.build.workshop import LocalWorkshop
from armload.core.errors import BuildError
from armload.core.progress import Silent
from armload.core.workspace import cache_folder, data_names
from tests.person import Person
from tests.system.engines import emulator, shared

pytestmark = [pytest.mark.build, pytest.mark.timeout(2400)]

PROMPT = "Once upon a time"


def engine(target: str, compiler: str = "zig") -> Binary:
    (binary,) = build(load_target(target), workshop=LocalWorkshop(compiler))
    return binary


def _record(binary: Binary) -> BuildRecord:
    return BuildRecord.model_validate_json((binary.path.parent / "build.json").read_bytes())


def _needed(binary: Binary) -> set[str]:
    return {use.feature for use in binary.features if not use.guarded}


@pytest.mark.parametrize("target", [name for name in data_names("toolchains") if name != "host"])
def test_zig_builds_every_target_and_its_code_uses_what_that_cpu_has(target: str) -> None:
    wanted = load_target(target)
    binary = engine(target)
    assert set(wanted.must_use) <= _needed(binary) <= set(wanted.features)
    assert binary.architecture == "aarch64"
    assert (_record(binary).programs[0].version or "").startswith("version")


@pytest.mark.parametrize("target", ["rk3568", "yitian710"])
def test_the_distributions_cross_compiler_builds_too(target: str) -> None:
    wanted = load_target(target)
    binary = engine(target, "gnu")
    assert set(wanted.must_use) <= _needed(binary) <= set(wanted.features)
    assert binary.compiler.startswith("gnu aarch64-linux-gnu-gcc")
    # What its symbols told stays known.
    told = with_recorded_features(inspect(binary.path))
    assert told.features == binary.features != inspect(binary.path).features
    # glibc carries code for CPUs that have what this one lacks, and chooses at run time.
    assert "sve" in {use.feature for use in binary.features}
    assert _said(binary, "max", 20)[0].startswith(PROMPT)


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


def test_each_build_says_the_authors_text_on_its_cpu_and_a_newer_ones_dies_on_an_older() -> None:
    expected = PROMPT + shared("stories260K.expected.txt").read_text().rstrip()
    older, newer = engine("rpi4"), engine("rk3568")
    assert _said(older, "cortex-a72", 252) == (expected, 0)
    assert _said(newer, "cortex-a76", 252) == (expected, 0)
    assert _said(newer, "cortex-a72", 252)[1] == -signal.SIGILL


def test_the_same_inputs_give_the_same_bytes_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = engine("rk3568")
    other = tmp_path / "another place"
    other.mkdir()
    (other / "sources").symlink_to(cache_folder() / "sources")
    monkeypatch.setenv("ARMLOAD_CACHE", str(other))
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    second = engine("rk3568")
    assert second.path != first.path
    assert second.build_id == first.build_id
    assert second.sha256 == first.sha256


def test_a_second_target_compiles_nothing_but_ggmls_cpu_library_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("ccache") is None:
        pytest.skip("ccache is not installed")
    for kind in ("sources", "zig", "compilers"):
        (cache_folder() / kind).mkdir(parents=True, exist_ok=True)
        (tmp_path / kind).symlink_to(cache_folder() / kind)
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    monkeypatch.setenv("CCACHE_STATSLOG", str(tmp_path / "statistics"))
    program = ["ggml-rpc-server"]
    build(load_target("rpi4"), programs=program)
    first = _compiled_and_reused(tmp_path / "statistics")
    (tmp_path / "statistics").unlink()
    build(load_target("rk3568"), programs=program)
    compiled, reused = _compiled_and_reused(tmp_path / "statistics")
    in_cpu_library = {file for file in first[0] if "/ggml/src/ggml-cpu/" in file}
    assert compiled == in_cpu_library
    assert reused == first[0] - in_cpu_library
    assert len(reused) > 10


def _compiled_and_reused(statistics: Path) -> tuple[set[str], set[str]]:
    """Read ccache's log: after each file's name stands how it went."""
    compiled: set[str] = set()
    reused: set[str] = set()
    file = ""
    for line in statistics.read_text().splitlines():
        if line.startswith("# "):
            file = line.removeprefix("# ")
        elif "CMakeScratch" not in file and line in {"direct_cache_hit", "preprocessed_cache_hit"}:
            reused.add(file)
        elif "CMakeScratch" not in file and line == "cache_miss":
            compiled.add(file)
    return compiled, reused


def test_a_new_target_is_one_file(tmp_path: Path) -> None:
    person = Person(tmp_path)
    (tmp_path / "toolchains").mkdir()
    (tmp_path / "toolchains" / "kitchen.yaml").write_text(
        "extends: rpi4\ndescription: the board in the kitchen\ncpu: cortex-a53\n"
        "cxxflags: [-DKITCHEN=1]\n"
    )
    done = person.types("build", "--target", "kitchen", "--programs", "ggml-rpc-server", "--json")
    assert '"target":"kitchen"' in done.stdout


def test_a_compiler_error_shows_the_end_of_the_output_and_nothing_counts_as_built(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path)
    builds = tmp_path / "cache" / "builds"
    builds.unlink()
    (tmp_path / "toolchains").mkdir()
    (tmp_path / "toolchains" / "wrong.yaml").write_text(
        "extends: rpi4\ncxxflags: [-Dggml_backend_rpc_init=1]\n"
    )
    words = ("build", "--target", "wrong", "--programs", "ggml-rpc-server")
    done = person.types(*words, status=5)
    shown = done.stderr.partition("The end of its output:\n")[2].splitlines()
    assert "error: expected" in "\n".join(shown)
    assert len(shown) <= 31
    assert "build.log" in shown[-1]
    assert [path.name for path in builds.glob("*/build.json")] == []
    assert person.types(*words, status=5).stdout == ""


def test_a_missing_compiler_says_how_to_get_it(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.environment["PATH"] = str(tmp_path)
    (tmp_path / "sh").symlink_to("/bin/sh")
    done = person.types("build", "--compiler", "gnu", status=4)
    assert "this machine: there is no compiler aarch64-linux-gnu-gcc" in done.stderr
    assert "g++-aarch64-linux-gnu" in done.stderr
    assert "--compiler zig" in done.stderr


def test_programs_are_named_and_each_is_inspected(tmp_path: Path) -> None:
    binaries = build(load_target("rk3568"), programs=["llama-bench", "llama-quantize"])
    assert [binary.program for binary in binaries] == ["llama-bench", "llama-quantize"]
    for binary in binaries:
        assert "asimddp" in _needed(binary)
    folder = binaries[0].path.parent
    assert pinned_source().provide(Silent()).is_dir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "build.json",
        "build.log",
        "llama-bench",
        "llama-quantize",
    ]
