"""A sweep on several boards: its cells below each other, and boards that differ are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from armload.analysis.run import Run
from armload.bench.sweep import SweepFolder
from armload.core.errors import CombinedError, ConnectError
from armload.core.values import as_json
from armload.core.workspace import runs_folder
from armload.engines.plan import Plan
from armload.report.multi_run import runs_page
from armload.report.side_by_side import BoardsSweep
from armload.report.sweep import CellResult, cell_results, notes, sweep_table, swept_cells
from armload.runs import store
from tests.unit.samples import plan_cells, sweep_of
from tests.unit.sweeps import Q4, made_run

PLANS = (Plan(threads=2), Plan(threads=4))
REPEATS = 4
SLOWER = {"kitchen": 1.0, "cellar": 1.3}


@pytest.fixture(autouse=True)
def _own_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(board: str, threads: int, repeat: int, *, slower: float = 1.0) -> Run:
    made = made_run(Q4, threads, repeat=repeat, board=board)
    assert made.summary.token_s is not None
    times = made.summary.token_s
    times = times.model_copy(update={"p50": times.p50 * slower})
    return made.model_copy(
        update={
            "board": made.board.model_copy(update={"labels": ("rk",)}),
            "summary": made.summary.model_copy(update={"token_s": times}),
        }
    )


def journals(slower: dict[str, float]) -> dict[str, SweepFolder]:
    found = {}
    for board, times in slower.items():
        sweep = sweep_of(*plan_cells(*PLANS), identity=board, repeats=REPEATS, boards=(board,))
        journal = found[board] = SweepFolder.begin(sweep)
        for place in journal.missing():
            threads = PLANS[place.cell].threads or 0
            each = run(board, threads, place.round, slower=times)
            store.save(each, runs_folder() / each.id)
            journal.note(place, each)
    return found


def cells_of_boards(slower: dict[str, float]) -> list[CellResult]:
    errors = dict.fromkeys(slower)
    return list(BoardsSweep(journals=journals(slower), errors=errors).cells)


def printed(table: object) -> list[str]:
    console = Console(width=150)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def test_the_boards_of_a_cell_stand_below_each_other() -> None:
    results = cells_of_boards(SLOWER)
    names = [(each.name["threads"], each.name["board"]) for each in results]
    assert names == [("2", "kitchen"), ("2", "cellar"), ("4", "kitchen"), ("4", "cellar")]
    lines = printed(sweep_table(results))
    assert lines[0].split()[:3] == ["cell", "threads", "board"]
    assert sum("fastest" in line for line in lines) == 1


def test_boards_that_are_called_equal_and_differ_are_noted_wherever_they_are_shown() -> None:
    unequal = cells_of_boards(SLOWER)
    (said,) = [note for note in notes(unequal) if "declared identical" in note]
    assert said.startswith(
        "cellar and kitchen are declared identical (@rk rk3568), but cellar takes 1.296× as long"
    )
    errors = {"kitchen": None, "cellar": None}
    document = BoardsSweep(journals=journals(SLOWER), errors=errors).document()
    assert said in document.notes
    runs = [each for result in unequal if result.cell for each in result.cell.runs]
    assert said in str(runs_page(runs))


def test_boards_that_are_equal_are_not_noted() -> None:
    results = cells_of_boards(dict.fromkeys(SLOWER, 1.0))
    assert not [note for note in notes(results) if "declared identical" in note]


def test_a_board_that_failed_has_its_error_and_what_it_did() -> None:
    begun = journals({"kitchen": 1.0})
    away = ConnectError("cellar: no answer.")
    result = BoardsSweep(journals=begun, errors={"kitchen": None, "cellar": away})
    assert isinstance(result.error, CombinedError)
    assert result.error.first is away
    said = json.loads(as_json(result.document()))["boards"]
    assert [(each["board"], each["error"] and each["error"]["kind"]) for each in said] == [
        ("kitchen", None),
        ("cellar", "connection"),
    ]
    assert [len(cell["runs"]) for cell in said[0]["result"]["cells"]] == [REPEATS] * 2
    assert said[1]["result"] is None


def test_sweeps_are_listed_in_the_boards_order_whichever_began_first() -> None:
    begun = journals({"cellar": 1.3, "kitchen": 1.0})
    result = BoardsSweep(journals=begun, errors={"kitchen": None, "cellar": None})
    lines = [str(part) for part in result.view() if str(part).startswith(("sweep", "charts"))]
    kitchen, cellar = (begun[board].sweep.id for board in ("kitchen", "cellar"))
    assert [line.rpartition("/")[2] for line in lines[:2]] == [kitchen, cellar]
    assert lines[2].endswith(f" report {kitchen} {cellar}")


def test_a_cell_of_a_divided_sweep_is_listed_for_each_board_that_ran_it() -> None:
    sweep = sweep_of(*plan_cells(*PLANS), repeats=2, boards=("kitchen", "cellar"))
    runs = {
        0: [run("kitchen", 2, 0), run("cellar", 2, 1)],
        1: [run("cellar", 4, 0), run("cellar", 4, 1)],
    }
    results = cell_results(sweep, runs, {})
    names = sorted((each.number, each.name["board"]) for each in results)
    assert names == [(0, "cellar"), (0, "kitchen"), (1, "cellar")]
    assert "weights repacked" not in results[0].name
    cells = swept_cells(sweep, results).cells
    assert sorted((cell.board, len(cell.runs)) for cell in cells) == [
        ("cellar", 1),
        ("cellar", 2),
        ("kitchen", 1),
    ]
    none = cell_results(sweep, {0: runs[0]}, {1: "no space"})
    assert [each.name["board"] for each in none if each.number == 1] == ["-"]
