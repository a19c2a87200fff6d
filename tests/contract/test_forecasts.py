"""Whatever goes wrong with a forecast on a board is one line, and the run goes on."""

from __future__ import annotations

import json
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from armload.analysis.compute import WHOLE_TOKEN
from armload.analysis.run import Run
from armload.core.files import sha256_of
from armload.core.progress import ProgressStep, Silent
from armload.engines.completion import PROGRAM, Completion
from armload.engines.footprint import FOOTPRINT_VARIABLE
from armload.engines.operations import OPERATIONS_VARIABLE
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.models.find import model_called
from armload.models.model import Model
from armload.models.whole_header import whole_header
from armload.runs import cached_answers, footprint, operations, predicting
from armload.runs.pipeline import execute
from armload.runs.predicting import predict_there, predictor_of
from armload.runs.request import Request
from armload.runs.session import Session, session
from tests.unit.samples import binary

LISTED = json.dumps(
    {
        "load_s": 0.1,
        "timed_bytes": 1000,
        "graphs": [{"tokens": 1, "depth": 256, "counts": [[0, 10], [1, 20]]}],
        "operations": [
            {"key": "MUL_MAT", "weights_bytes": 100, "moved_bytes": 1},
            {"key": "ADD", "weights_bytes": 0, "moved_bytes": 1},
        ],
    }
)

STUB = """#!/bin/sh
if [ -n "$ARMLOAD_OPERATIONS" ]; then
    echo "$ARMLOAD_OPERATIONS" >>"$0.asked"
    case $ARMLOAD_OPERATIONS in
    list) {list} ;;
    *) {time} ;;
    esac
elif [ -n "$ARMLOAD_FOOTPRINT" ]; then
    {footprint}
fi
exit 0
"""
"""Takes the place of llama-completion."""

PRINTS_LIST = f"echo 'ARMLOAD_OPERATIONS {LISTED}'"
TIMES_ALL = """
for number in ${ARMLOAD_OPERATIONS#* }; do
    case $number in
    0) time_s=0.00${matrix:-2} ;;
    1) time_s=0.000${sum:-1} ;;
    esac
    echo "ARMLOAD_TIMED {\\"number\\":$number,\\"time_s\\":$time_s}"
done
"""
TIMES_FIRST = """
set -- $ARMLOAD_OPERATIONS
echo "ARMLOAD_TIMED {\\"number\\":$2,\\"time_s\\":0.002}"
sleep 0.3
"""
DIES = "kill -ILL $$"
HANGS = "exec sleep 60"


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a board, this machine, where nothing was timed before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cached_answers, "cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "here.yaml").write_text(
        f"target: host\nreach: {{kind: local}}\nworkdir: {tmp_path}/board\n"
    )
    return tmp_path


@contextmanager
def stub(
    folder: Path,
    *,
    lists: str = PRINTS_LIST,
    times: str = TIMES_ALL,
    needs: str = "",
    variables: tuple[str, ...] = (FOOTPRINT_VARIABLE, OPERATIONS_VARIABLE),
) -> Iterator[tuple[Session, Model]]:
    """Reach the board with a program that does nothing but answer."""
    program = folder / PROGRAM
    script = STUB.format(list=lists, time=times, footprint=needs or ":")
    strings = "".join(f"\0{each}\0" for each in ("llama", *variables))
    program.write_bytes((script + strings).encode())
    like_all = binary(program, sha256=sha256_of(program)).model_copy(
        update={"architecture": platform.machine(), "target": "host"}
    )
    known = model_called("word-problems:Q2_K", Silent())
    with session(Request(board="here", wait_s=0), (), Silent()) as where:
        yield replace(where, binaries={PROGRAM: like_all}), known


PLAN = Plan(prompt="a b c", n_predict=2, threads=1)


def _predicted(where: Session, model: Model) -> Prediction:
    return predict_there(where, model, whole_header(model.path), PLAN, Silent())


def _ran(where: Session, model: Model) -> Run:
    engine = Completion(PLAN, where.binaries[PROGRAM], model)
    predictor = predictor_of(where, engine.forecastable, Silent())
    return execute(where, engine, Silent(), new=True, predictor=predictor)[0]


def _asked(folder: Path) -> list[str]:
    (log,) = folder.glob(f"board/**/{PROGRAM}.asked")
    # Before the operations' numbers is how long timing them may take.
    return [line.partition(" ")[2] or line for line in log.read_text().splitlines()]


def test_an_operation_is_timed_by_one_command_and_the_run_uses_it(workspace: Path) -> None:
    with stub(workspace) as (where, model):
        first, second = _predicted(where, model), _predicted(where, model)
        run = _ran(where, model)
    assert first.compute == second.compute == "operations"
    assert first.token_s is not None
    assert first.token_s.value == pytest.approx(WHOLE_TOKEN * (10 * 0.002 + 20 * 0.0001))
    assert _asked(workspace) == ["list", "0 1 0 1", "0"], "the largest is checked"
    assert run.prediction is not None
    assert run.prediction.token_s == first.token_s


similar = pytest.mark.exhaustive(covers=["armload/engines", "armload/runs"])


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ({"variables": (FOOTPRINT_VARIABLE,)}, "cannot list what a model computes"),
        pytest.param({"lists": DIES}, "did not list what ", marks=similar),
        pytest.param(
            {"lists": "echo 'ARMLOAD_OPERATIONS {}'"},
            "did not list what ",
            marks=similar,
        ),
        ({"lists": "exit 1"}, "did not list what "),
        pytest.param(
            {"times": DIES}, "only 0% of the model's computation was timed", marks=similar
        ),
        (
            {"times": f"""echo 'ARMLOAD_TIMED {{"number":0,"signal":{signal.SIGILL:d}}}'"""},
            "only 0% of the model's computation was timed",
        ),
        pytest.param(
            {"times": """echo 'ARMLOAD_TIMED {"number":99,"time_s":1}'"""}, "only 0%", marks=similar
        ),
        pytest.param({"lists": HANGS}, "took longer than", marks=similar),
        ({"times": HANGS}, "took longer than"),
    ],
)
def test_a_program_without_an_answer_leaves_the_forecast_to_the_boards_facts(
    behaviour: dict[str, str], why: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "_TIMEOUT_S", 1.0)
    with stub(workspace, **behaviour) as (where, model):  # type: ignore[arg-type]
        found = _predicted(where, model)
        run = _ran(where, model)
    assert found.verdict == "fits"
    assert found.compute != "operations"
    (said,) = (each.sentence for each in found.notes if each.kind == "operations failed")
    assert why in said
    assert run.exit.status == 0


def test_a_program_that_hangs_when_asked_for_its_memory_delays_the_run_only(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprint, "_TIME_LIMIT_S", 1.0)
    monkeypatch.setattr(footprint, "CERTAIN", 1 << 40)
    with stub(workspace, needs=HANGS) as (where, model):
        run = _ran(where, model)
    assert run.exit.status == 0


def test_what_one_command_left_untimed_or_timed_once_is_timed_by_the_next(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LIMIT_S", 0.2)
    with stub(workspace, times=TIMES_FIRST) as (where, model):
        assert _predicted(where, model).compute == "operations"
        assert _predicted(where, model).compute == "operations"
    assert _asked(workspace) == ["list", "0 1 0 1", "1 0 1 0"]


def test_while_operations_are_timed_their_number_is_shown(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LIMIT_S", 0.5)
    shown: list[tuple[float, float | None]] = []

    class Recorded(Silent):
        @contextmanager
        def step(
            self, label: str, *, total: float | None = None, unit: str = ""
        ) -> Iterator[ProgressStep]:
            with super().step(label, total=total, unit=unit) as step:
                yield _Updates() if label.startswith("Timing operations") else step

    class _Updates:
        def update(self, completed: float, *, total: float | None = None, **_: object) -> None:
            shown.append((completed, total))

    with stub(workspace, times=TIMES_FIRST) as (where, model):
        predict_there(where, model, whole_header(model.path), PLAN, Recorded())
    assert shown[:2] == [(1, 4), (2, 4)]


def test_when_the_largest_operation_takes_another_time_than_it_did_all_are_timed_again(
    workspace: Path,
) -> None:
    times = f"""[ "$(wc -l <"$0.asked")" -gt 2 ] && matrix=1 sum=05; {TIMES_ALL}"""
    with stub(workspace, times=times) as (where, model):
        before, after = _predicted(where, model), _predicted(where, model)
    assert before.token_s is not None
    assert after.token_s is not None
    assert _asked(workspace)[2:] == ["0", "0 1 0 1"]
    assert before.token_s.value == pytest.approx(WHOLE_TOKEN * (10 * 0.002 + 20 * 0.0001))
    assert after.token_s.value == pytest.approx(WHOLE_TOKEN * (10 * 0.0014 + 20 * 0.000075))
    assert after.token_s.high == pytest.approx(before.token_s.value)
    assert after.token_s.low == pytest.approx(before.token_s.value / 2)


def test_what_no_group_can_hold_is_refused_before_anything_is_timed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "boards" / "there.yaml").write_text(
        f"target: host\nreach: {{kind: local}}\nworkdir: {workspace}/other\n"
    )
    (workspace / "boards" / "pair.yaml").write_text("members: [here, there]\n")

    def measured(*_: object) -> Never:
        raise AssertionError("rates were measured")

    monkeypatch.setattr(predicting, "measured_resources", measured)
    request = Request(board="pair", wait_s=0)
    with (
        stub(workspace) as (alone, model),
        session(request, (), Silent(), takes_groups=True) as where,
    ):
        now = where.found.conditions.model_copy(update={"memory_available_bytes": 1 << 20})
        full = where.found.model_copy(update={"conditions": now})
        (other,) = where.other_members
        pair = replace(
            where,
            found=full,
            binaries=alone.binaries,
            other_members=(replace(other, found=full),),
        )
        found = _predicted(pair, model)
        assert found.division is not None
        assert found.division.refused
        assert not list(workspace.glob("**/*.asked"))
        with pytest.raises(AssertionError, match="rates were measured"):
            _predicted(where, model)
