"""Which folder is the workspace, and what of it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.places import data_path, shipped_folders
from armload.core.shell import call, render
from armload.core.workspace import workspace

BOARD = "target: rk3568\nreach: {kind: local}\nworkdir: /tmp/x\n"
ZEPHYR = "identifier: nrf52840dk\nname: nRF52840-DK\ntype: mcu\narch: arm\ntoolchain: [zephyr]\n"


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project" / "source"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("boards/kitchen.yaml", BOARD),
        ("boards/kitchen.yaml", "extends: dayu200\n"),
        ("boards/kitchen.yaml", f"# mine\n{BOARD}: broken: [\n"),
        ("toolchains/mine.yaml", "cpu: cortex-a55\n"),
        ("toolchains/sources/fork.yaml", "project: llama-cpp-python\n"),
    ],
)
def test_a_workspace_is_the_nearest_folder_with_a_file_of_armloads(
    below: Path, tmp_path: Path, name: str, text: str
) -> None:
    written(tmp_path, name, text)
    assert workspace() == tmp_path
    written(below.parent, name, text)
    assert workspace() == below.parent


def test_another_projects_folders_of_these_names_make_no_workspace(
    below: Path, tmp_path: Path
) -> None:
    written(below.parent, "boards/nrf52840dk.yaml", ZEPHYR)
    written(below.parent, "toolchains/arm.yaml", "compiler: gcc\n")
    (below / "boards").mkdir()
    assert workspace() == below, "nothing of armload's is there: this folder"
    written(tmp_path, "boards/kitchen.yaml", BOARD)
    assert workspace() == tmp_path


def test_nothing_in_a_working_folder_changes_a_script_or_a_source(below: Path) -> None:
    values: dict[str, object] = {"folder": "/x", "archive": "/x.tar"}
    before = render("build/unpack.sh.j2", values), call("tell_there", "x")
    written(below, "boards/kitchen.yaml", BOARD)
    for folder in shipped_folders("deploy"):
        for script in [*folder.rglob("*.j2"), folder / "functions.sh"]:
            written(below, f"deploy/{script.relative_to(folder)}", "echo stolen\n")
    for name in ("overlay", "native", "board"):
        written(below, f"toolchains/{name}/CMakeLists.txt", "message(FATAL_ERROR stolen)\n")
    assert (render("build/unpack.sh.j2", values), call("tell_there", "x")) == before
    for name in ("overlay", "native", "board"):
        assert not data_path("toolchains", name).is_relative_to(below)
