"""What a member of a group is known to give."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from armload.boards.board import load_board
from armload.boards.rates import Rates
from armload.runs.request import Request
from armload.runs.resources import member_resources
from armload.runs.session import ReachedBoard


@pytest.mark.parametrize(
    ("others_cpu", "declared", "counts"),
    [
        (None, "", 9_000_000_000),
        (0.0, "", 9_000_000_000),
        (1.5, "", None),
        (1.5, "memory_bytes_per_s: 8000000000", 8_000_000_000),
    ],
)
def test_a_model_is_divided_by_rates_that_were_measured_undisturbed(
    others_cpu: float | None,
    declared: str,
    counts: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    text = f"target: rk3568\nreach: {{kind: ssh, host: there}}\nfacts: {{{declared}}}\n"
    (tmp_path / "boards" / "one.yaml").write_text(text)
    found = Mock()
    found.conditions = Mock(
        memory_available_bytes=1 << 30, memory_total_bytes=1 << 30, memory_limit_bytes=None
    )
    member = ReachedBoard(
        request=Request(board="one"), main_board=load_board("one"), found=found, binaries={}
    )
    rates = Rates(memory_bytes_per_s=9_000_000_000, memory_others_cpu=others_cpu)
    assert member_resources(member, rates).memory_bytes_per_s == counts
