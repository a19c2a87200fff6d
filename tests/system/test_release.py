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

import release
from armload import __version__
from armload.cli.program import namespace
from armload.core.workspace import data_names
from tests.command_line import BIN, ROOT

DATA = ("boards", "toolchains", "deploy")


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The project in two folders, whose files were written at other times and by other rules."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("one", "another-place"))
    release.export(one)
    release.export(other)
    for path in other.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
    return [one, other]


@pytest.fixture(scope="module")
def built(projects: list[Path]) -> list[list[Path]]:
    return [release.build(project, "1700000000") for project in projects]


@pytest.fixture(scope="module")
def wheel(built: list[list[Path]]) -> Path:
    (path,) = (each for each in built[0] if each.suffix == ".whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installed armload, whose libraries are those beside this Python."""
    folder = tmp_path_factory.mktemp("installed")
    release._module("pip", "install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_two_builds_are_byte_identical(built: list[list[Path]]) -> None:
    one, other = built
    assert [each.name for each in one] == [each.name for each in other]
    for first, second in zip(one, other, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_the_wheel_holds_the_package_and_the_data_and_nothing_else(wheel: Path) -> None:
    files = release._git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    there = {name for name in files if (ROOT / name).is_file()}
    expected = {name for name in there if name.startswith("armload/")}
    expected |= {f"armload/data/{name}" for name in there if name.startswith(DATA)}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_the_sdist_holds_a_manual_page_for_each_verb(built: list[list[Path]]) -> None:
    (path,) = (each for each in built[0] if each.name.endswith(".tar.gz"))
    with tarfile.open(path) as archive:
        names = {
            PurePosixPath(name).relative_to(f"armload-{__version__}") for name in archive.getnames()
        }
    pages = {name.name for name in names if name.parent == PurePosixPath("man")}
    assert pages == {"armload.1", *(f"armload-{verb}.1" for verb in namespace.task_names)}
    assert PurePosixPath("release.py") in names


def test_what_is_published_passes_the_registrys_checks(
    built: list[list[Path]], wheel: Path
) -> None:
    release._module("twine", "check", "--strict", *built[0])
    release._module("check_wheel_contents", wheel)


def output(installed: Path, folder: Path, *words: str) -> str:
    """Return what a program prints that imports the installed armload, in an empty folder."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed), "ARMLOAD_CACHE": str(folder / "cache")},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


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
        (("--version",), f"armload {__version__}"),
        (("board.list",), "virtual-dayu200"),
        (("fit", "--hardware", "raspberry-pi-5-8gb", "--model", "like:llama-3.2-1b:Q4_0"), "fits"),
        (("completion", "zsh"), "#compdef armload"),
        (("__complete", "bash", "armload build --target yit"), "yitian710 "),
    ],
)
def test_outside_a_clone_verbs_work(
    words: tuple[str, ...], said: str, installed: Path, tmp_path: Path
) -> None:
    assert said in output(installed, tmp_path, "-m", "armload", *words)


def test_the_bill_of_materials_lists_what_is_needed_and_not_what_tests_need() -> None:
    bill = json.loads(release.bill_of_materials(__version__))
    assert bill["bomFormat"] == "CycloneDX"
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("armload", __version__)
    listed = {each["name"]: each["version"] for each in bill["components"]}
    assert {"pydantic", "pydantic_core", "ziglang", "paramiko", "cmake"} <= set(listed)
    (needs,) = (
        each["dependsOn"] for each in bill["dependencies"] if each["ref"] == root["bom-ref"]
    )
    assert {"ziglang==0.15.2", f"pydantic=={listed['pydantic']}"} <= set(needs)
    assert not {"pytest", "ruff", "twine", "armload"} & set(listed)
    assert listed["ziglang"] == "0.15.2"


@pytest.mark.exhaustive(covers=["pyproject.toml", "release.py"])
def test_the_bill_of_materials_is_valid() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = release.bill_of_materials(__version__)
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


@pytest.mark.exhaustive(covers=["pyproject.toml", "release.py"])
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


@pytest.mark.exhaustive(covers=["pyproject.toml", "release.py"])
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
