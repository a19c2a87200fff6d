"""A board as combinations are run on it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from armload.bench.board import BenchBoard
from armload.boards.board import load_board
from armload.boards.group import Group
from armload.runs.request import Request
from armload.runs.session import ReachedBoard


def test_runs_on_a_group_are_kept_under_the_groups_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "boards"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text("target: rk3568\nreach: {kind: ssh, host: there}\n")
    alone = ReachedBoard(
        request=Request(board="one"), main_board=load_board("one"), found=Mock(), binaries={}
    )
    group = Group(name="both", members=("one", "two"))
    first = ReachedBoard(
        request=Request(board="both"),
        main_board=load_board("one"),
        found=Mock(),
        binaries={},
        group=group,
    )
    named = [BenchBoard(Mock(where=where), [], None).name for where in (alone, first)]
    assert named == ["one", "both"]
