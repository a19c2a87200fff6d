"""A launcher that does not end, or runs nothing, is found out within a bound."""

from __future__ import annotations

import pytest

from armload.boards import probe
from armload.boards.board import load_board
from armload.boards.local import LocalHost
from armload.boards.probe import probe as probe_host
from armload.core.errors import BoardError


@pytest.mark.parametrize("launcher", [("tail", "-f"), ("sh", "-c", "exec yes >/dev/null")])
def test_a_launcher_that_does_not_end_is_named(
    launcher: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_LAUNCHED_WITHIN_S", 1.0)
    board = load_board("this-machine")
    with pytest.raises(BoardError, match=r"its launcher .* has not ended within 1 s") as error:
        probe_host(LocalHost("mine", launcher), board)
    assert "'launcher' in boards/mine.yaml" in error.value.remedy


@pytest.mark.parametrize("launcher", [("true",), ("sh", "-c", "echo fp asimd; exit 1")])
def test_under_a_launcher_that_runs_nothing_no_feature_is_known(launcher: tuple[str, ...]) -> None:
    board = load_board("this-machine")
    found = probe_host(LocalHost("mine", launcher), board)
    assert found.cpu_features == ()
