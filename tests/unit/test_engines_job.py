"""A run's job says on which cores of what board it is to run, and how its rates are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.boards.board import Board
from armload.boards.probe import parse_probe
from armload.core.errors import UsageError
from armload.deploy.layout import Layout
from armload.engines.completion import Completion
from armload.engines.engine import RunContext
from armload.engines.job import BoardRecord
from armload.engines.plan import Plan
from armload.runs.assemble import new_job
from armload.runs.prepare import check_cores
from tests.unit.samples import binary, model
from tests.unit.test_boards_probe import core, output

FOUR_CORES = "".join(core(number) for number in range(4))
MEASURED = '{"memory_bytes_per_s":3100000000}\n{"storage_read_bytes_per_s":170000000}\n'


def board(**facts: str) -> Board:
    return Board.model_validate(
        {
            "name": "b",
            "target": "rk3568",
            "reach": {"kind": "ssh", "host": "x"},
            "workdir": "/w",
            "facts": facts,
        }
    )


def described(
    folder: Path, plan: Plan, *, on: Board | None = None, rates: str = ""
) -> tuple[tuple[str, ...], BoardRecord]:
    program = folder / "llama-completion"
    program.write_bytes(b"\x7fELF")
    weights = model().model_copy(update={"path": folder / "m.gguf"})
    weights.path.touch()
    program.write_bytes(b"\x7fELF" + weights.architecture.encode() + b"\0")
    found = parse_probe(output(FOUR_CORES, policies="", rates=rates), "b")
    engine = Completion(plan, binary(program), weights)
    where = on or board()
    check_cores(engine.settings, where, found)
    context = RunContext(
        layout=Layout(workdir=where.workdir), found=found, launcher=("taskset", "c")
    )
    job = new_job(engine, where, context)
    return job.command, job.board


def test_a_measured_rate_wins_over_a_declared_one(tmp_path: Path) -> None:
    declared = board(memory_bytes_per_s="2.8 GB", storage_read_bytes_per_s="165 MB")
    _, told = described(tmp_path, Plan(), on=declared)
    assert (told.memory_bytes_per_s, told.memory_rate) == (2_800_000_000, "declared")
    assert (told.storage_read_bytes_per_s, told.storage_read_rate) == (165_000_000, "declared")
    _, found = described(tmp_path, Plan(), on=declared, rates=MEASURED)
    assert (found.memory_bytes_per_s, found.memory_rate) == (3_100_000_000, "measured")
    assert (found.storage_read_bytes_per_s, found.storage_read_rate) == (170_000_000, "measured")
    _, neither = described(tmp_path, Plan())
    assert (neither.memory_bytes_per_s, neither.memory_rate) == (None, None)


def test_what_keeps_a_program_to_its_cores_goes_before_it_with_as_many_threads(
    tmp_path: Path,
) -> None:
    words, _ = described(tmp_path, Plan(cpus="2-3"))
    assert words[:3] == ("taskset", "c", "/w/bin/000000000000/llama-completion")
    assert words[words.index("-t") + 1] == "2"
    fewer, _ = described(tmp_path, Plan(cpus="2-3", threads=1))
    assert fewer[fewer.index("-t") + 1] == "1"
    every, _ = described(tmp_path, Plan())
    assert "-t" not in every


@pytest.mark.parametrize(
    ("plan", "message", "remedy"),
    [
        (Plan(cpus="3-5"), "--cpus 3-5: b has no core 4, 5", "It has: 0, 1, 2, 3."),
        (Plan(threads=5), "b has 4 cores", "Use --threads 4 or fewer."),
        (Plan(threads=3, cpus="0,1"), "--cpus 0,1 is 2 cores", "Use --threads 2 or fewer."),
    ],
)
def test_cores_that_are_not_there_are_refused(
    tmp_path: Path, plan: Plan, message: str, remedy: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        described(tmp_path, plan)
    assert caught.value.remedy == remedy
