"""What was timed on a board with one program is known to the others of the same build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from armload.boards.board import load_board
from armload.boards.probe import FoundCluster, Probe, probe
from armload.boards.rates import Rates
from armload.build.binary import Binary
from armload.core.progress import Silent
from armload.engines.completion import PROGRAM, Completion
from armload.engines.llama_cpp import repacked
from armload.engines.operations import Timed
from armload.engines.plan import Plan
from armload.engines.scorer import SCORER, ScoringPlan
from armload.models.find import model_called
from armload.models.whole_header import whole_header
from armload.runs import operations
from armload.runs.cached_answers import write_cached
from armload.runs.request import Request
from armload.runs.session import Connection, Session
from tests.unit.samples import binary
from tests.unit.test_analysis_compute import FOUND, TIMES_S
from tests.unit.test_engines_scorer import PROGRAM as CONTENT

PLAN = ScoringPlan(items_sha256="0" * 64, items_count=2, context_tokens=512, threads=1).continuation


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    board = f"target: rk3568\nreach: {{kind: local}}\nworkdir: {tmp_path}/work\n"
    (tmp_path / "boards" / "here.yaml").write_text(board)


def session_of(built: Binary) -> Session:
    connection = Connection(load_board("here"), Silent())
    return Session(
        request=Request(board="here"),
        main_board=connection.board,
        connection=connection,
        found=probe(connection.host, connection.board),
        binaries={built.program: built},
    )


def keep_times(built: Binary) -> None:
    """Keep what ``fit`` keeps after it has timed all operations."""
    model = model_called("word-problems:Q2_K", Silent())
    where = session_of(built)
    engine = operations._engine(where, built, model, PLAN)
    listed = operations._list_path(where, built, engine, whole_header(model.path))
    write_cached(listed, FOUND)
    times = {key: Timed(number=0, time_s=time_s) for key, time_s in TIMES_S.items()}
    write_cached(
        operations._times_path(where, built, PLAN, FOUND),
        operations.OperationTimes(rates=Rates(), times=times),
    )


@pytest.mark.parametrize("other", ["none", "of the same build", "of another build"])
def test_a_scorer_knows_what_was_timed_with_the_same_build(tmp_path: Path, other: str) -> None:
    for name in (PROGRAM, SCORER):
        (tmp_path / name).write_bytes(CONTENT)
    completion, scorer = binary(tmp_path / PROGRAM), binary(tmp_path / SCORER)
    if other != "none":
        keep_times(completion)
    if other == "of another build":
        scorer = scorer.model_copy(update={"build_id": "0" * 12})
    model = model_called("word-problems:Q2_K", Silent())
    known = operations.known_compute(session_of(scorer), model, PLAN)
    assert (known is not None) == (other == "of the same build")
    if known is not None:
        assert known[0].source == "operations"
        assert known == operations.known_compute(session_of(completion), model, PLAN)


def test_weights_are_laid_out_as_in_the_run_itself_whose_context_is_smaller(
    tmp_path: Path,
) -> None:
    (tmp_path / PROGRAM).write_bytes(CONTENT + b"\0--repack\0--no-repack\0")
    built, model = binary(tmp_path / PROGRAM), model_called("word-problems:Q8_0", Silent())
    plan = Plan(prompt="x", n_predict=1, context_tokens=32, weights="mapped")
    where = session_of(built)
    usual = operations._engine(where, built, model, plan)
    need_bytes = [
        2 * model.size_bytes + model.context_memory.size_bytes(tokens)
        for tokens in (32, usual.plan.context_tokens or 0)
    ]
    assert need_bytes[0] < need_bytes[1]
    for available, is_repacked in ((sum(need_bytes) / 1.6, True), (need_bytes[0], False)):
        now = where.found.conditions.model_copy(update={"memory_available_bytes": int(available)})
        found = where.found.model_copy(update={"conditions": now})
        there = replace(where, found=found)
        context = operations.run_context(there, plan)
        run = Completion(plan, built, model).command(context)
        listed = operations._engine(there, built, model, plan).command(context)
        assert repacked(run) == repacked(listed) == is_repacked


def test_operations_are_timed_on_the_cores_of_the_run_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PROGRAM).write_bytes(CONTENT)
    built, model = binary(tmp_path / PROGRAM), model_called("word-problems:Q8_0", Silent())
    plan, where = Plan(prompt="x", n_predict=1), session_of(built)
    before = operations._times_path(where, built, plan, FOUND)
    fast = (FoundCluster(name="Cortex-A76", cores=4, numbers=(4, 5, 6, 7)),)
    monkeypatch.setattr(Probe, "fast_clusters", fast)
    engine = operations._engine(where, built, model, plan)
    words = engine.command(operations.run_context(where, plan))
    assert words[words.index("-t") + 1] == "4"
    # What was timed on other cores is not taken for it.
    assert operations._times_path(where, built, plan, FOUND) != before
    all_cores = plan.model_copy(update={"cpus": "0-7"})
    words = engine.command(operations.run_context(where, all_cores))
    assert words[words.index("-t") + 1] == "8"
