"""Boards declared identical are told to differ where they do, and hardly ever where not."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from armload.analysis.equal_boards import unequal_boards
from armload.analysis.measurement import measurement_of
from armload.analysis.pairing import called_equal
from armload.analysis.run import Run
from armload.engines.job import SweepPoint
from armload.report.cells import cells_of, configurations_of
from tests.unit.runs import quick_run
from tests.unit.sweeps import Q4, Q8, made_run

BASE = quick_run()


def run(
    board: str,
    time_s: float,
    *,
    labels: Sequence[str] = ("rk",),
    hardware: str = "rock",
    target: str = "rk3568",
    sweep: str = "",
) -> Run:
    assert BASE.summary.token_s is not None
    record = BASE.board.model_copy(
        update={"name": board, "labels": tuple(labels), "hardware": hardware, "target": target}
    )
    times = BASE.summary.token_s.model_copy(update={"p50": time_s})
    place = SweepPoint(sweep=sweep, cell=0, round=0) if sweep else None
    return BASE.model_copy(
        update={
            "board": record,
            "summary": BASE.summary.model_copy(update={"token_s": times}),
            "place": place,
        }
    )


def lab(
    chance: random.Random,
    boards: dict[str, float],
    *,
    repeats: int = 4,
    configurations: int = 1,
    noise: float = 0.01,
) -> list[list[Run]]:
    """Return runs of configurations on boards, each of which takes so many times as long."""
    return [
        [
            run(board, 0.1 * (number + 1) * times * chance.gauss(1, noise))
            for board, times in boards.items()
            for _ in range(repeats)
        ]
        for number in range(configurations)
    ]


def test_a_board_that_is_slower_beyond_its_repeats_is_named_with_the_fastest() -> None:
    boards = {"a": 1.0, "b": 1.1, "c": 1.0}
    (found,) = unequal_boards(lab(random.Random(1), boards, configurations=3))
    assert found.slowest == "b"
    assert found.fastest in "ac"
    assert found.ratio == pytest.approx(1.1, abs=0.02)
    assert 1 < found.repeats_ratio < 1.06
    assert found.called == "@rk rock rk3568"
    assert found.sentence().startswith(
        f"b and {found.fastest} are declared identical (@rk rock rk3568), "
    )
    assert "× as long per token. Repeats on one board differ by " in found.sentence()


def test_four_repeats_on_each_of_two_boards_are_enough() -> None:
    assert unequal_boards(lab(random.Random(2), {"a": 1.0, "b": 1.2}))


def test_equal_boards_are_hardly_ever_told_to_differ() -> None:
    told = sum(
        bool(unequal_boards(lab(random.Random(seed), dict.fromkeys("abcd", 1.0), repeats=3)))
        for seed in range(100)
    )
    assert told <= 10, "5 are expected of 100"


@pytest.mark.parametrize("repeats", [1, 2])
def test_too_few_repeats_tell_nothing(repeats: int) -> None:
    assert unequal_boards(lab(random.Random(3), {"a": 1.0, "b": 3.0}, repeats=repeats)) == []


@pytest.mark.parametrize(
    "other",
    [{"labels": ()}, {"labels": ("pi",)}, {"hardware": "pi"}, {"target": "rk3588"}],
)
def test_boards_that_nothing_calls_equal_may_differ(other: dict[str, object]) -> None:
    runs = [run("a", 0.1 + n / 1000) for n in range(6)]
    runs += [run("b", 0.2 + n / 1000, **other) for n in range(6)]  # type: ignore[arg-type]
    assert unequal_boards([runs]) == []


def test_sharing_a_sweep_calls_boards_equal() -> None:
    runs = [run("a", 0.1 + n / 1000, labels=(), sweep="s") for n in range(6)]
    runs += [run("b", 0.2 + n / 1000, labels=(), sweep="s") for n in range(6)]
    (found,) = unequal_boards([runs])
    assert (found.called, found.slowest, found.fastest) == ("s", "b", "a")
    a, b, other = (measurement_of(each) for each in (runs[0], runs[6], run("b", 0.2, labels=())))
    assert called_equal(a, b) == "s"
    assert called_equal(a, other) == ""


def test_sharing_an_evaluation_does_not() -> None:
    runs = [
        run(board, 0.1 * times + n / 1000, labels=(), sweep="eval").model_copy(
            update={"plan": None}
        )
        for times, board in ((1, "a"), (2, "b"))
        for n in range(6)
    ]
    assert unequal_boards([runs]) == []


def test_two_labels_for_the_same_boards_give_one_warning() -> None:
    labels = ("rk", "kitchen")
    runs = [run("a", 0.1 + n / 1000, labels=labels) for n in range(6)]
    runs += [run("b", 0.2 + n / 1000, labels=labels) for n in range(6)]
    assert len(unequal_boards([runs])) == 1


def test_cells_of_the_same_configuration_are_compared_across_boards() -> None:
    runs = []
    for name, model in (("kitchen", Q4), ("cellar", Q4), ("cellar", Q8)):
        for number in range(5):
            each = made_run(model, 2, repeat=number, board=name)
            board = each.board.model_copy(update={"labels": ("rk",)})
            runs.append(each.model_copy(update={"board": board}))
    cells = cells_of(runs)
    assert sorted(map(len, configurations_of(cells))) == [5, 10]
