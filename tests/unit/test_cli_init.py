"""``init`` and the workspace's default board; its questions are tested at a terminal."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from armload.core.errors import DiskError
from tests.command_line import BIN, BOUND_BY_PERMISSIONS, typed


@pytest.fixture(autouse=True)
def _no_defaults_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))


def initialised(folder: Path, name: str) -> str:
    """Set up a virtual board, as far as the model, which does not exist; return what is said."""
    done = typed(folder, "init", "--name", name, "--model", "no.gguf", "--yes")
    assert done.returncode == 2
    assert "There is no model 'no.gguf'" in done.stderr
    return done.stderr


def defaults(folder: Path, verb: str) -> Any:
    return {
        each["option"]: each["value"]
        for each in json.loads(typed(folder, "config", verb, "--json").stdout)
    }


def test_the_first_board_becomes_the_workspaces_default_and_a_second_one_does_not(
    tmp_path: Path,
) -> None:
    assert "kitchen is now the default board of this workspace" in initialised(tmp_path, "kitchen")
    assert defaults(tmp_path, "bench") == defaults(tmp_path, "serve") == {"board": "kitchen"}
    assert "default board" not in initialised(tmp_path, "kitchen")
    said = initialised(tmp_path, "shed")
    assert "The default board of this workspace is still kitchen (set in" in said
    assert "give --board shed" in said
    assert defaults(tmp_path, "bench") == {"board": "kitchen"}


def test_a_board_that_is_a_persons_own_default_gives_way_in_the_workspace(tmp_path: Path) -> None:
    own = tmp_path / "own" / "armload" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[bench]\nboard = 'attic'\n")
    assert "virtual is now the default board of this workspace" in initialised(tmp_path, "virtual")
    assert defaults(tmp_path, "bench") == {"board": "virtual"}


def test_a_file_that_armload_cannot_add_to_is_left_to_the_person(tmp_path: Path) -> None:
    text = "tool = {armload = {bench = {seed = 1}}}\n"
    (tmp_path / "pyproject.toml").write_text(text)
    said = initialised(tmp_path, "kitchen")
    assert 'in its table [tool.armload.all]: board = "kitchen"' in said
    assert (tmp_path / "pyproject.toml").read_text() == text


def test_after_an_error_of_this_machine_it_says_how_to_continue(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir(mode=0o555)
    words = ("init", "--name", "kitchen", "--model", "smollm2", "--yes")
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, str(BIN / "armload"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = " ".join(done.stderr.split())
    assert done.returncode == DiskError.exit_status, said
    assert "Permission denied" in said
    assert "To continue: armload init --yes --name kitchen --model smollm2" in said
