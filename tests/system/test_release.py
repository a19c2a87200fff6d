"""Wheel and sdist: the same bytes each time, and complete outside a clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from armload import __version__
from armload.cli.verb import VERBS
from armload.core.workspace import data_names
from release import make
from release.prebuilt import Carried
from tests.command_line import BIN, ROOT
from tests.system.wheels import output

pytestmark = [pytest.mark.build, pytest.mark.timeout(2400)]

similar = pytest.mark.exhaustive(
    covers=["armload/cli", "armload/core/places.py", "armload/core/workspace.py", "release"]
)
DATA = ("boards", "toolchains", "deploy", "docs/boards.md", "docs/fleet.md", "docs/services.md")


@pytest.mark.exhaustive(covers=["pyproject.toml", "release"])
def test_two_builds_are_byte_identical(
    built: list[Path], projects: list[Path], carried: Carried
) -> None:
    one, other = built, make.build(projects[1], "1700000000", carried)
    assert [each.name for each in one] == [each.name for each in other]
    for first, second in zip(one, other, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_the_wheel_holds_the_package_and_the_data_and_nothing_else(
    wheel: Path, prebuilt: Path
) -> None:
    files = make._git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    there = {name for name in files if (ROOT / name).is_file()}
    expected = {name for name in there if name.startswith("armload/")}
    expected |= {f"armload/data/{name}" for name in there if name.startswith(DATA)}
    programs = {each.relative_to(prebuilt) for each in prebuilt.rglob("*") if each.is_file()}
    assert {path.name for path in programs} >= {"llama-completion", "build.json", "sha256"}
    expected |= {f"armload/data/prebuilt/{path}" for path in programs}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_the_sdist_holds_a_manual_page_for_each_verb(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {
            PurePosixPath(name).relative_to(f"armload-{__version__}") for name in archive.getnames()
        }
    pages = {name.name for name in names if name.parent == PurePosixPath("man")}
    assert pages == {"armload.1", *(f"armload-{verb}.1" for verb in VERBS)}
    assert PurePosixPath("release/make.py") in names


def test_nothing_compiled_is_in_the_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        files = [archive.extractfile(each) for each in archive if each.isfile()]
        assert not any(file.read(4) == b"\x7fELF" for file in files if file is not None)


def test_the_wheel_names_the_licenses_of_its_programs_and_the_sdist_its_own(
    sdist: Path, wheel: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"armload-{__version__}.dist-info/METADATA").decode()
    linked = "Apache-2.0 WITH LLVM-exception AND MIT AND Unlicense"
    assert f"\nLicense-Expression: {linked}\n" in metadata
    with tarfile.open(sdist) as archive:
        held = archive.extractfile(f"armload-{__version__}/PKG-INFO")
        assert held is not None
        assert "\nLicense-Expression: MIT\n" in held.read().decode()


def test_what_is_published_passes_the_registrys_checks(built: list[Path], wheel: Path) -> None:
    make._module("twine", "check", "--strict", *built)
    make._module("check_wheel_contents", wheel)


def test_outside_a_clone_all_data_is_found(installed: Path, tmp_path: Path) -> None:
    code = (
        "import json; from armload.core import workspace as w;"
        f"print(json.dumps([w.__file__, *({{k: w.data_names(k) for k in {_KINDS!r}}},)]))"
    )
    module, names = json.loads(output(installed, tmp_path, "-c", code))
    assert Path(module).is_relative_to(installed)
    assert names == {kind: data_names(kind) for kind in _KINDS}
    for path in (ROOT / "deploy").rglob("*.*"):
        assert (installed / "armload" / "data" / path.relative_to(ROOT)).is_file()


_KINDS = ["boards", "toolchains", "toolchains/sources", "shapes", "outlines", "tasks", "hardware"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--version",), f"armload {__version__}", marks=similar),
        pytest.param(("board.list",), "virtual-dayu200", marks=similar),
        (("fit", "--hardware", "raspberry-pi-5-8gb", "--model", "like:llama-3.2-1b:Q4_0"), "fits"),
        pytest.param(("completion", "zsh"), "#compdef armload", marks=similar),
        (("__complete", "bash", "armload build --target yit"), "yitian710 "),
    ],
)
def test_outside_a_clone_verbs_work(
    words: tuple[str, ...], said: str, installed: Path, tmp_path: Path
) -> None:
    assert said in output(installed, tmp_path, "-m", "armload", *words)


@pytest.mark.exhaustive(covers=["pyproject.toml", "release"])
def test_the_bill_of_materials_lists_what_is_needed_and_not_what_tests_need(
    carried: Carried,
) -> None:
    bill = json.loads(make.bill_of_materials(__version__, carried))
    assert bill["bomFormat"] == "CycloneDX"
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("armload", __version__)
    listed = {each["name"]: each.get("version") for each in bill["components"]}
    assert {"pydantic", "pydantic_core", "ziglang", "paramiko", "cmake"} <= set(listed)
    (needs,) = (
        each["dependsOn"] for each in bill["dependencies"] if each["ref"] == root["bom-ref"]
    )
    assert {"ziglang==0.15.2", f"pydantic=={listed['pydantic']}"} <= set(needs)
    assert not {"pytest", "ruff", "twine", "armload"} & set(listed)
    assert listed["ziglang"] == "0.15.2"


@pytest.mark.exhaustive(covers=["pyproject.toml", "release"])
def test_the_bill_of_materials_is_valid(carried: Carried) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = make.bill_of_materials(__version__, carried)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


_INSTALLERS = {
    "uv tool": ["uv", "tool", "install", "--quiet", "WHEEL"],
    "pipx": ["pipx", "install", "--quiet", "WHEEL"],
    "pip": [
        "sh",
        "-c",
        '"$0" -m venv venv && venv/bin/pip install -q "$1"',
        sys.executable,
        "WHEEL",
    ],
}


@pytest.mark.exhaustive(covers=["pyproject.toml", "release"])
@pytest.mark.parametrize("installer", _INSTALLERS)
def test_people_install_it(installer: str, wheel: Path, tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    environment = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "ARMLOAD_CACHE": str(tmp_path / "cache"),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(bin_folder),
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(bin_folder),
    }
    words = [str(wheel) if word == "WHEEL" else word for word in _INSTALLERS[installer]]
    subprocess.run(words, cwd=tmp_path, env=environment, check=True)
    program = (
        tmp_path / "venv" / "bin" / "armload" if installer == "pip" else bin_folder / "armload"
    )
    for line in ("--help", "fit --hardware all --model like:llama-3.2-1b:Q4_0"):
        subprocess.run([program, *line.split()], cwd=tmp_path, env=environment, check=True)


@pytest.mark.exhaustive(covers=["pyproject.toml", "release"])
def test_it_runs_without_an_installation(wheel: Path, tmp_path: Path) -> None:
    environment = os.environ | {"UV_TOOL_DIR": str(tmp_path / "tools")}
    done = subprocess.run(
        [BIN / "uvx", "--quiet", "--from", wheel, "armload", "--version"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == f"armload {__version__}\n"
