"""What a board went through during a run is a reason to doubt it, told with names and figures."""

from __future__ import annotations

import pytest

from armload.bench.measures import Cache, Swapped
from armload.bench.plan import Plan
from armload.bench.record import BoardRecord, Laptop
from armload.bench.run import Exit, Step
from armload.bench.strangers import Stranger
from armload.bench.verdict import Around, judge
from armload.boards.conditions import ClusterState
from tests.unit.samples import board_record, conditions, step, steps_with_prompt, trace


def reasons(
    steps: tuple[Step, ...],
    around: Around,
    *,
    n_predict: int = 9,
    plan: Plan | None = None,
    board: BoardRecord | None = None,
) -> tuple[str, ...]:
    verdict = judge(
        plan or Plan(n_predict=n_predict),
        ended=Exit(status=0, meaning="ended well"),
        header=trace(),
        steps=steps,
        text="a little girl",
        board=board or board_record(),
        around=around,
    )
    assert verdict.valid == (not verdict.reasons)
    return verdict.reasons


def test_who_pushed_the_threads_aside_is_named() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    steps = [step(n, busy_threads=0.94, involuntary_switches=40) for n in range(1, 21)]
    (reason,) = reasons((prompt, *steps), beside(("stress-ng", 0.93)), n_predict=21)
    assert "40 times per token, mostly by stress-ng, 93% of a core." in reason
    (kernel,) = reasons((prompt, *steps), beside(("kswapd0", 0.4), kernel=True), n_predict=21)
    assert "mostly by kswapd0 (the kernel), 40% of a core." in kernel
    (unnamed,) = reasons((prompt, *steps), beside(("init", 0.02)), n_predict=21)
    assert "mostly" not in unnamed
    (unsteady,) = reasons(
        steps_with_prompt([0.1] * 18 + [1.0] * 4), beside(("cc1", 1.9)), n_predict=23
    )
    assert "Something else used the CPU (cc1, 190% of a core)" in unsteady


def test_a_neighbour_that_took_nothing_away_is_no_doubt() -> None:
    assert reasons(steps_with_prompt([0.1] * 8), beside(("stress-ng", 0.93))) == ()


def test_a_virtual_board_s_neighbours_are_those_of_the_laptop() -> None:
    on_laptop = board_record().model_copy(update={"laptop": Laptop(cores=2, load=8.13)})
    prompt = step(0, phase="prompt", tokens=8)
    steps = [step(n, busy_threads=0.94, involuntary_switches=40) for n in range(1, 21)]
    (contended,) = reasons((prompt, *steps), beside(), n_predict=21, board=on_laptop)
    assert "End what else runs on this laptop" in contended
    assert "its load was 8.1 on 2 cores when the run began" in contended
    uneven = steps_with_prompt([0.1] * 18 + [1.0] * 4)
    (unsteady,) = reasons(uneven, beside(), n_predict=23, board=on_laptop)
    assert "End what else runs on this laptop" in unsteady
    (real,) = reasons(uneven, beside(), n_predict=23)
    assert "laptop" not in real


def beside(*strangers: tuple[str, float], kernel: bool = False) -> Around:
    return Around(
        before=conditions(),
        strangers=[
            Stranger(name=name, processes=1, cpu_s=10 * share, share=share, kernel=kernel)
            for name, share in strangers
        ],
    )


LITTLE_AND_BIG = (
    ClusterState(cores=(0, 1), governor="schedutil", khz=408_000, max_khz=1_800_000),
    ClusterState(cores=(2, 3), governor="powersave", khz=408_000, max_khz=2_400_000),
)


def at_khz(*khz: int, celsius: float | None = None) -> tuple[Step, ...]:
    prompt = step(0, phase="prompt", tokens=8)
    return (prompt, *(step(n, cpu_khz=khz, celsius=celsius) for n in range(1, 22)))


def throttled(
    steps: tuple[Step, ...],
    *,
    cpus: str | None = None,
    governor: str | None = None,
    arm: bool = True,
) -> str:
    board = board_record()
    found = reasons(
        steps,
        Around(before=conditions(clusters=LITTLE_AND_BIG), governor=governor),
        plan=Plan(n_predict=22, cpus=cpus),
        board=board if arm else board.model_copy(update={"cpu_features": ("sse2",)}),
    )
    return " ".join(found)


def test_a_board_that_is_slow_from_the_start_is_found_out_by_its_maximum() -> None:
    slow = at_khz(1_800_000, 1_800_000, 1_416_000, 1_200_000, celsius=85.0)
    said = throttled(slow)
    assert "Throttled from the start" in said
    assert "never ran above 1.42 of their 2.40 GHz under the governor powersave" in said
    assert "85 °C" in said
    assert "or say --governor performance" in said
    hot = throttled(slow, governor="performance")
    assert "under the governor performance" in hot
    assert "--governor" not in hot
    assert throttled(at_khz(408_000, 408_000, 408_000, 2_400_000)) == ""


def test_the_cores_that_the_engine_was_kept_to_are_those_that_count() -> None:
    little = at_khz(1_800_000, 408_000, 408_000, 408_000)
    assert throttled(little, cpus="0-1") == ""
    assert "0.41 of their 2.40 GHz" in throttled(little, cpus="0,3")


def test_without_frequencies_or_off_arm_nobody_is_called_slow_from_the_start() -> None:
    assert throttled(at_khz()) == ""
    slow = at_khz(1_000_000, 1_000_000, 1_000_000, 1_000_000)
    assert throttled(slow, arm=False) == ""
    assert "Throttled" in throttled(slow)


def test_swapping_is_told_in_figures() -> None:
    steps = steps_with_prompt([0.1] * 8)
    around = Around(
        before=conditions(swap_used=10_000_000),
        after=conditions(swap_used=130_000_000),
        swapped=Swapped(in_bytes=43_000_000, out_bytes=163_000_000),
    )
    (reason,) = reasons(steps, around)
    assert reason == (
        "The board swapped 163.0 MB out and 43.0 MB in during the run "
        "(10.0 MB were in use before, 130.0 MB of 1.0 GB after)."
    )
    little = Swapped(in_bytes=4096, out_bytes=0)
    quiet = Around(before=conditions(), after=conditions(swap_used=2 << 20), swapped=little)
    assert reasons(steps, quiet) == ()


@pytest.mark.parametrize(
    ("cache", "doubts"), [("dropped", 0), ("evicted", 0), ("as found", 1), (None, 1)]
)
def test_a_run_that_was_to_be_cold_and_was_not_is_not_valid(
    cache: Cache | None, doubts: int
) -> None:
    found = reasons(
        steps_with_prompt([0.1] * 8),
        Around(before=conditions(), cache=cache),
        plan=Plan(n_predict=9, cold=True),
    )
    assert len(found) == doubts
