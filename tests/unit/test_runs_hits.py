"""A mixture's hits in earlier runs on the same board."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.board_resources import MeasuredHits
from armload.analysis.run import Run
from armload.analysis.summary import ExpertReads
from armload.runs import store
from armload.runs.predicting import measured_hits
from tests.unit.samples import model
from tests.unit.streamed import HELD, MODEL, streamed_run

MIXTURE = model().model_copy(
    update={
        "path": Path(MODEL.name),
        "size_bytes": MODEL.size_bytes,
        "expert_bytes": 800_000_000,
    }
)


@pytest.fixture(autouse=True)
def _own_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kept(name: str, hit_rate: float, *, tokens: int = 40) -> Run:
    held = HELD.model_copy(update={"expert_bytes": 800_000_000, "expert_slot_bytes": 200_000_000})
    run = streamed_run(held, tokens=tokens)
    reads = ExpertReads(
        hit_rate=hit_rate, bytes_per_token=1e8, missed_bytes_per_token=1e7, wait_s_per_token=0.1
    )
    run = run.model_copy(
        update={"id": name, "summary": run.summary.model_copy(update={"experts": reads})}
    )
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    store.save(run, folder)
    return run


def test_the_newest_run_that_is_long_enough_tells_its_hits() -> None:
    board = kept("20261122T120000Z-virtual-dayu200-m-0001", 0.5).board.name
    kept("20261122T130000Z-virtual-dayu200-m-0002", 0.7)
    kept("20261122T140000Z-virtual-dayu200-m-0003", 0.9, tokens=8)
    assert measured_hits(board, MIXTURE) == MeasuredHits(hit_rate=0.7, slot_share=0.25)


def test_another_model_or_board_and_one_without_experts_has_none() -> None:
    board = kept("20261122T120000Z-virtual-dayu200-m-0001", 0.5).board.name
    assert measured_hits(board, MIXTURE.model_copy(update={"size_bytes": 1})) is None
    assert measured_hits("cellar", MIXTURE) is None
    assert measured_hits(board, MIXTURE.model_copy(update={"expert_bytes": 0})) is None
