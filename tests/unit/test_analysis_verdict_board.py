"""What a board went through during a run is a reason to doubt it, told with names and figures."""

from __future__ import annotations

import pytest

from armload.analysis.background import BackgroundProcess
from armload.analysis.conditions_log import Cache, RunConditions, Swapped
from armload.analysis.contention import Contended, Unsteady
from armload.analysis.finding import RunFinding
from armload.analysis.throttling import Throttled, ThrottledFromStart
from armload.analysis.verdict import NotCold, Swapping, judge
from armload.boards.conditions import ClusterState, Conditions, SwapDevice
from armload.deploy.exit_reason import Exit
from armload.engines.job import BoardRecord, Workstation
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.trace import Step, Trace
from tests.unit.runs import quick_run
from tests.unit.samples import board_record, conditions, step, steps_with_prompt, trace


def reasons(
    steps: tuple[Step, ...],
    around: RunConditions,
    *,
    before: Conditions | None = None,
    n_predict: int = 9,
    plan: Plan | None = None,
    board: BoardRecord | None = None,
    header: Trace | None = None,
) -> list[RunFinding]:
    return judge(
        quick_run().model_copy(
            update={
                "plan": plan or Plan(n_predict=n_predict),
                "board": board or board_record(),
                "before": before or conditions(),
            }
        ),
        Output(header=header or trace(), steps=steps, text="a little girl"),
        Exit(kind="done", status=0, meaning="ended well"),
        around,
    )


def test_what_preempted_the_threads_is_named() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    steps = [step(n, busy_threads=0.94, involuntary_switches=40) for n in range(1, 21)]
    (reason,) = reasons((prompt, *steps), beside(("stress-ng", 0.93)), n_predict=21)
    assert isinstance(reason, Contended)
    assert (reason.switches, reason.per) == (40, "token")
    assert reason.process is not None
    assert (reason.process.name, reason.process.share) == ("stress-ng", 0.93)
    (kernel,) = reasons((prompt, *steps), beside(("kswapd0", 0.4), kernel=True), n_predict=21)
    assert isinstance(kernel, Contended)
    assert kernel.process is not None
    assert kernel.process.kernel
    (unnamed,) = reasons((prompt, *steps), beside(("init", 0.02)), n_predict=21)
    assert isinstance(unnamed, Contended)
    assert unnamed.process is None
    (unsteady,) = reasons(
        steps_with_prompt([0.1] * 18 + [1.0] * 4), beside(("cc1", 1.9)), n_predict=23
    )
    assert isinstance(unsteady, Unsteady)
    assert unsteady.process is not None
    assert (unsteady.process.name, unsteady.process.share) == ("cc1", 1.9)


def test_a_neighbour_that_took_nothing_away_is_no_doubt() -> None:
    assert reasons(steps_with_prompt([0.1] * 8), beside(("stress-ng", 0.93))) == []


def test_a_run_of_a_prompt_alone_is_contended_if_its_threads_were_preempted() -> None:
    def read(busy_threads: float, switches: int) -> list[RunFinding]:
        prompt = step(
            0, phase="prompt", tokens=128, busy_threads=busy_threads, involuntary_switches=switches
        )
        return reasons((prompt,), beside(("cc1", 1.2)), plan=Plan(n_predict=1, prompt_tokens=128))

    (reason,) = read(busy_threads=0.9, switches=40)
    assert isinstance(reason, Contended)
    assert (reason.switches, reason.per) == (40, "prompt")
    assert reason.process is not None
    assert reason.process.name == "cc1"
    assert read(busy_threads=0.9, switches=0) == []
    assert read(busy_threads=1.9, switches=40) == []


def test_a_virtual_board_s_neighbours_are_those_of_this_machine() -> None:
    on_workstation = board_record().model_copy(
        update={"workstation": Workstation(cores=2, load=8.13)}
    )
    prompt = step(0, phase="prompt", tokens=8)
    steps = [step(n, busy_threads=0.94, involuntary_switches=40) for n in range(1, 21)]
    (contended,) = reasons((prompt, *steps), beside(), n_predict=21, board=on_workstation)
    assert isinstance(contended, Contended)
    assert contended.workstation == Workstation(cores=2, load=8.13)
    uneven = steps_with_prompt([0.1] * 18 + [1.0] * 4)
    (unsteady,) = reasons(uneven, beside(), n_predict=23, board=on_workstation)
    assert isinstance(unsteady, Unsteady)
    assert unsteady.workstation == Workstation(cores=2, load=8.13)
    (real,) = reasons(uneven, beside(), n_predict=23)
    assert isinstance(real, Unsteady)
    assert real.workstation is None


def beside(*background_processes: tuple[str, float], kernel: bool = False) -> RunConditions:
    return RunConditions(
        background=tuple(
            BackgroundProcess(name=name, processes=1, cpu_s=10 * share, share=share, kernel=kernel)
            for name, share in background_processes
        ),
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
    header: Trace | None = None,
) -> RunFinding | None:
    board = board_record()
    found = reasons(
        steps,
        RunConditions(governor=governor),
        before=conditions(clusters=LITTLE_AND_BIG),
        plan=Plan(n_predict=22, cpus=cpus),
        board=board if arm else board.model_copy(update={"cpu_features": ("sse2",)}),
        header=header,
    )
    assert len(found) <= 1
    return found[0] if found else None


def test_a_board_that_is_slow_from_the_start_is_found_out_by_its_maximum() -> None:
    slow = at_khz(1_800_000, 1_800_000, 1_416_000, 1_200_000, celsius=85.0)
    said = throttled(slow)
    assert said == ThrottledFromStart(
        highest_khz=1_416_000, maximum_khz=2_400_000, governor="powersave", celsius=85
    )
    hot = throttled(slow, governor="performance")
    assert isinstance(hot, ThrottledFromStart)
    assert hot.governor == "performance"
    assert throttled(at_khz(408_000, 408_000, 408_000, 2_400_000)) is None


def _from_start(found: RunFinding | None) -> tuple[int, int]:
    assert isinstance(found, ThrottledFromStart)
    return found.highest_khz, found.maximum_khz


def test_the_cores_that_the_engine_was_kept_to_are_those_that_count() -> None:
    little = at_khz(1_800_000, 408_000, 408_000, 408_000)
    assert throttled(little, cpus="0-1") is None
    assert _from_start(throttled(little, cpus="0,3")) == (408_000, 2_400_000)


def changing(first: tuple[int, ...], then: tuple[int, ...]) -> tuple[Step, ...]:
    steps = at_khz(*first)
    return (*steps[:12], *(each.model_copy(update={"cpu_khz": then}) for each in steps[12:]))


BIG_CORES_IDLE = changing(
    (1_800_000, 1_800_000, 2_400_000, 2_400_000), (1_800_000, 1_800_000, 408_000, 408_000)
)
LITTLE_CORES_SLOW = changing(
    (1_800_000, 1_800_000, 2_400_000, 2_400_000), (1_200_000, 1_200_000, 2_400_000, 2_400_000)
)


@pytest.mark.parametrize(("cpus", "allowed"), [("0-1", None), (None, "0-1"), ("0-1", "0-1")])
def test_cores_that_the_run_could_not_use_throttle_nothing(
    cpus: str | None, allowed: str | None
) -> None:
    header = allowed and trace().model_copy(update={"khz_cores": "0-3", "allowed_cores": allowed})
    assert throttled(BIG_CORES_IDLE, cpus=cpus, header=header or None) is None
    said = throttled(LITTLE_CORES_SLOW, cpus=cpus, header=header or None)
    assert isinstance(said, Throttled)
    assert (said.lowest_khz, said.peak_khz) == (1_200_000, 1_800_000)
    assert isinstance(throttled(BIG_CORES_IDLE), Throttled)
    assert throttled(LITTLE_CORES_SLOW) is None


def test_a_trace_says_whose_frequencies_it_holds() -> None:
    some = trace().model_copy(update={"khz_cores": "2-3", "allowed_cores": "0-3"})
    found = throttled(at_khz(408_000, 408_000), header=some)
    assert _from_start(found) == (408_000, 2_400_000)
    kept = some.model_copy(update={"allowed_cores": "0-1"})
    assert throttled(at_khz(408_000, 408_000), header=kept) is None, "none of its cores reports one"
    none = some.model_copy(update={"khz_cores": ""})
    assert throttled(at_khz(), header=none) is None


def test_an_older_trace_of_the_last_cores_holds_the_frequencies_of_the_first() -> None:
    little = changing((1_800_000, 1_800_000), (408_000, 408_000))
    assert throttled(little, cpus="2-3") is None


def test_without_frequencies_or_off_arm_nobody_is_called_slow_from_the_start() -> None:
    assert throttled(at_khz()) is None
    slow = at_khz(1_000_000, 1_000_000, 1_000_000, 1_000_000)
    assert throttled(slow, arm=False) is None
    assert isinstance(throttled(slow), ThrottledFromStart)


def test_swapping_is_told_in_figures() -> None:
    steps = steps_with_prompt([0.1] * 8)
    around = RunConditions(
        after=conditions(swap_used=130_000_000),
        swapped=Swapped(in_bytes=43_000_000, out_bytes=163_000_000),
    )
    (reason,) = reasons(steps, around, before=conditions(swap_used=10_000_000))
    assert reason == Swapping(
        out_bytes=163_000_000,
        in_bytes=43_000_000,
        used_before_bytes=10_000_000,
        used_after_bytes=130_000_000,
        total_bytes=10**9,
    )
    little = Swapped(in_bytes=4096, out_bytes=0)
    quiet = RunConditions(after=conditions(swap_used=2 << 20), swapped=little)
    assert reasons(steps, quiet) == []


@pytest.mark.parametrize(
    ("in_bytes", "out_bytes", "zram_in", "zram_out", "device"),
    [
        # What others do not need may be compressed once and stay so.
        (0, 60_000_000, 0, 60_000_000, None),
        (4096, 60_000_000, 4096, 60_000_000, None),
        (9_000_000, 60_000_000, 9_000_000, 60_000_000, "zram"),
        (0, 60_000_000, 0, 50_000_000, "disk"),
        (9_000_000, 60_000_000, 0, 60_000_000, "disk"),
    ],
)
def test_swapping_is_judged_by_its_device(
    in_bytes: int, out_bytes: int, zram_in: int, zram_out: int, device: str | None
) -> None:
    swapped = Swapped(
        in_bytes=in_bytes, out_bytes=out_bytes, zram_in_bytes=zram_in, zram_out_bytes=zram_out
    )
    found = reasons(steps_with_prompt([0.1] * 8), RunConditions(swapped=swapped))
    assert [isinstance(each, Swapping) and each.zram for each in found] == (
        [] if device is None else [device == "zram"]
    )


def test_where_swapping_is_not_counted_the_use_of_disks_tells() -> None:
    zram = SwapDevice(name="/dev/zram0", kind="zram", total_bytes=10**9, used_bytes=50_000_000)
    after = conditions(swap_used=50_000_000).model_copy(update={"swaps": (zram,)})
    assert reasons(steps_with_prompt([0.1] * 8), RunConditions(after=after)) == []
    disk = zram.model_copy(update={"kind": "disk"})
    (found,) = reasons(
        steps_with_prompt([0.1] * 8),
        RunConditions(after=after.model_copy(update={"swaps": (disk,)})),
    )
    assert isinstance(found, Swapping)
    assert found.out_bytes == 50_000_000


@pytest.mark.parametrize(
    ("cache", "doubts"), [("dropped", 0), ("evicted", 0), ("as found", 1), (None, 1)]
)
def test_a_run_that_was_to_be_cold_and_was_not_is_not_valid(
    cache: Cache | None, doubts: int
) -> None:
    found = reasons(
        steps_with_prompt([0.1] * 8),
        RunConditions(cache=cache),
        plan=Plan(n_predict=9, cold=True),
    )
    assert found == [NotCold()] * doubts
