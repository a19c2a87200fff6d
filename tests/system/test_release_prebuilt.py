"""What a wheel carries compiled: all that the demo needs, as compiling would give it, checked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from armload import __version__
from armload.build.builder import build
from armload.build.helper import helper
from armload.build.record import read_record, write_record
from armload.build.source import pinned_source
from armload.build.target import load_target
from armload.core.files import sha256_of
from armload.core.places import cache_folder
from armload.core.progress import Silent
from armload.models.find import RANDOM
from release import make
from release.prebuilt import Carried
from tests.command_line import ROOT
from tests.person import SHARED_CACHE, Person
from tests.system.engines import emulator
from tests.system.wheels import run

pytestmark = [pytest.mark.build, pytest.mark.timeout(2400)]

similar = pytest.mark.exhaustive(covers=["armload/build", "release"])
HELPERS = sorted(path.stem for path in (ROOT / "toolchains" / "board").glob("*.c"))
RELEASE = f"armload {__version__}"


def test_what_the_wheel_carries_says_nothing_of_the_machine_that_compiled_it(
    prebuilt: Path, carried: Carried
) -> None:
    (record,) = prebuilt.glob("builds/*/build.json")
    text = record.read_text()
    assert str(Path.home()) not in text
    assert str(ROOT) not in text
    (program,) = json.loads(text)["programs"]
    assert program["prebuilt_in"] == RELEASE
    assert program["built_utc"] == "2023-11-14T22:13:20+00:00"
    assert (program["built_on"], program["tools"], program["version"]) == ("", {}, None)
    for path in prebuilt.rglob("*.sha256"):
        subprocess.run(["sha256sum", "--check", "--quiet", path.name], cwd=path.parent, check=True)


@pytest.fixture
def no_compiler(tmp_path: Path) -> Path:
    """A folder to import from, with a zig that notes that it was called, and fails."""
    folder = tmp_path / "no-compiler"
    zig = folder / "ziglang" / "zig"
    zig.parent.mkdir(parents=True)
    (zig.parent / "__init__.py").touch()
    zig.write_text(f"#!/bin/sh\ntouch {CALLED.format(folder)}\nexit 1\n")
    zig.chmod(0o755)
    return folder


CALLED = "{}/called"
_HELPERS_SUMS = (
    "import json; from armload.build.helper import helper;"
    f"print(json.dumps({{name: helper(name).sha256 for name in {HELPERS!r}}}))"
)


@pytest.mark.exhaustive(covers=["armload/build", "release"])
def test_what_the_demo_puts_on_its_board_is_there_without_compiling(
    installed: Path, no_compiler: Path, tmp_path: Path
) -> None:
    def typed(*words: str) -> tuple[str, str]:
        done = run([no_compiler, installed], tmp_path, "-m", "armload", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    document, said = typed("build", "--json")
    assert f"llama-completion for rk3568 came prebuilt with {RELEASE}." in said
    (program,) = json.loads(document)
    (ours,) = build(load_target("rk3568"))
    assert (program["build_id"], program["sha256"]) == (ours.build_id, ours.sha256)
    assert program["prebuilt_in"] == RELEASE
    assert sha256_of(Path(program["path"])) == ours.sha256
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["builds"]

    again, said = typed("build", "--json")
    assert (again, said) == (document, "")
    for words in (("build",), ("build", "--list"), ("inspect", program["path"])):
        said = re.sub(r"\s+", " ", typed(*words)[0])
        assert "prebuilt in" in said
        assert RELEASE in said

    done = run([no_compiler, installed], tmp_path, "-c", _HELPERS_SUMS)
    assert json.loads(done.stdout) == {name: helper(name).sha256 for name in HELPERS}
    assert not Path(CALLED.format(no_compiler)).exists()


def test_it_is_added_to_a_build_that_has_other_programs(
    installed: Path, no_compiler: Path, tmp_path: Path
) -> None:
    (ours,) = build(load_target("rk3568"))
    record = read_record(ours.path.parent)
    folder = tmp_path / "cache" / "builds" / record.build_id
    folder.mkdir(parents=True)
    shutil.copy(ours.path, folder / "llama-bench")
    (program,) = (each for each in record.programs if each.name == ours.program)
    other = program.model_copy(update={"name": "llama-bench"})
    write_record(folder, record.model_copy(update={"programs": (other,)}))
    done = run([no_compiler, installed], tmp_path, "-m", "armload", "build", "--json")
    assert done.returncode == 0, done.stderr
    programs = read_record(folder).programs
    assert [(each.name, each.prebuilt_in) for each in programs] == [
        ("llama-bench", ""),
        ("llama-completion", RELEASE),
    ]


@pytest.mark.exhaustive(covers=["armload/build", "armload/deploy", "release"])
def test_a_run_needs_no_compiler_and_says_where_its_program_came_from(
    installed: Path, no_compiler: Path, tmp_path: Path
) -> None:
    emulator()
    person = Person(tmp_path / "person")
    person.add_emulated("here")
    # This machine, which is no ARM board, needs helpers of its own.
    for kind in set(SHARED_CACHE) - {"models", "helpers"}:
        (person.folder / "cache" / kind).unlink()
    words = ("bench", "--board", "here", "--model", RANDOM, "-n", "2", "--repeats", "1")
    done = run([no_compiler, installed], person.folder, "-m", "armload", *words, "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert f"prebuilt in {RELEASE})" in " ".join(done.stdout.split())
    (record,) = person.runs.glob("*/run.json")
    assert json.loads(record.read_text())["binary"]["prebuilt_in"] == RELEASE
    assert not Path(CALLED.format(no_compiler)).exists()


def with_sources(folder: Path) -> None:
    (folder / "cache").mkdir()
    (folder / "cache" / "sources").symlink_to(cache_folder() / "sources")


@similar
def test_another_build_is_compiled(installed: Path, no_compiler: Path, tmp_path: Path) -> None:
    with_sources(tmp_path)
    (tmp_path / "toolchains").mkdir()
    text = "extends: rk3568\ncflags: [-DANOTHER]\n"
    (tmp_path / "toolchains" / "rk3568.yaml").write_text(text)
    done = run([no_compiler, installed], tmp_path, "-m", "armload", "build")
    assert done.returncode == 5
    assert "prebuilt" not in done.stderr
    assert Path(CALLED.format(no_compiler)).exists()


def damaged_program(folder: Path) -> None:
    (path,) = folder.glob("builds/*/llama-completion")
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def no_program(folder: Path) -> None:
    (path,) = folder.glob("builds/*/llama-completion")
    path.unlink()


def damaged_record(folder: Path) -> None:
    (path,) = folder.glob("builds/*/build.json")
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damaged_program, "llama-completion is damaged: its SHA-256 is not the recorded one"),
        pytest.param(no_program, "llama-completion: No such file or directory", marks=similar),
        pytest.param(damaged_record, "build.json is damaged", marks=similar),
    ],
)
def test_what_is_damaged_is_reported_and_compiled(
    damage: Callable[[Path], None], said: str, installed: Path, no_compiler: Path, tmp_path: Path
) -> None:
    with_sources(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(installed, copy)
    damage(copy / "armload" / "data" / "prebuilt")
    done = run([no_compiler, copy], tmp_path, "-m", "armload", "build")
    assert done.returncode == 5
    assert f"{said}, so the program is compiled instead. Reinstall armload" in done.stderr
    assert Path(CALLED.format(no_compiler)).exists()


def test_a_damaged_helper_is_reported_and_compiled(installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(installed, copy)
    (path,) = copy.glob("armload/data/prebuilt/helpers/*/pin")
    path.write_bytes(b"\x7fELF")
    (tmp_path / "cache").mkdir()
    for kind in ("compilers", "zig"):
        (tmp_path / "cache" / kind).symlink_to(cache_folder() / kind)
    code = (
        "from armload.build.helper import helper; from armload.cli import terminal;"
        "print(helper('pin', terminal.progress()).sha256)"
    )
    done = run([copy], tmp_path, "-c", code)
    assert "pin is damaged: its SHA-256 is not the recorded one, so the program" in done.stderr
    assert done.stdout.strip() == helper("pin").sha256


_PATHS = ["armload/build", "toolchains", "release"]


@pytest.mark.exhaustive(covers=_PATHS)
def test_compiling_elsewhere_gives_the_bytes_of_the_release(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is shared but the compiler: neither a folder nor a cache."""
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    source = pinned_source().provide(Silent())
    shutil.copytree(source, tmp_path / "cache" / "sources" / source.name)
    done = run([installed], tmp_path, "-m", "armload", "build", "--rebuild", "--json")
    assert done.returncode == 0, done.stderr
    (program,) = json.loads(done.stdout)
    (ours,) = build(load_target("rk3568"))
    assert program["sha256"] == ours.sha256
    assert program["prebuilt_in"] == ""
    assert f"SHA-256 {ours.sha256}, identical to the one prebuilt in {RELEASE}." in done.stderr


def test_the_bill_of_materials_lists_what_is_linked_into_compiled_programs(
    carried: Carried, prebuilt: Path
) -> None:
    bill = json.loads(make.bill_of_materials(__version__, carried))
    components = {each["bom-ref"]: each for each in bill["components"]}
    holds = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    for name in ("llama-completion", *HELPERS):
        assert f"prebuilt:{name}" in holds[bill["metadata"]["component"]["bom-ref"]]
        (path,) = prebuilt.rglob(name)
        (sum_,) = components[f"prebuilt:{name}"]["hashes"]
        assert sum_ == {"alg": "SHA-256", "content": sha256_of(path)}
    libraries = {
        components[ref]["name"]: components[ref] for ref in holds["prebuilt:llama-completion"]
    }
    assert {"llama.cpp", "musl", "libcxx", "cpp-httplib"} <= set(libraries)
    assert libraries["llama.cpp"]["licenses"] == [{"expression": "MIT"}]
    assert libraries["musl"]["version"] == "1.2.5"
    texts = {path.stem for path in prebuilt.glob("licenses/*.txt")}
    assert set(libraries) - texts == {"subprocess.h"}
    assert "llama.cpp" not in {components[ref]["name"] for ref in holds["prebuilt:sha256"]}


@pytest.mark.machine
@pytest.mark.exhaustive(covers=["armload/build", "armload/deploy", "release"])
def test_the_demo_of_an_installed_wheel_compiles_nothing(wheel: Path, tmp_path: Path) -> None:
    venv, cache = tmp_path / "venv", tmp_path / "cache"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin" / "pip", "install", "-q", wheel], check=True)
    (zig,) = venv.glob("lib/python*/site-packages/ziglang/zig")
    zig.unlink()
    cache.mkdir()
    for kind in ("images", "models", "packages"):
        (cache / kind).symlink_to(cache_folder() / kind)
    environment = os.environ | {"ARMLOAD_CACHE": str(cache)}
    program = venv / "bin" / "armload"
    done = subprocess.run(
        [program, "demo", "--json"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    subprocess.run([program, "board.down"], cwd=tmp_path, env=environment, check=True)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["binary"]["prebuilt_in"] == RELEASE
    assert not {"compilers", "sources", "zig"} & {path.name for path in cache.iterdir()}
