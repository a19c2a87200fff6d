"""At which clock the memory ran, and whether that was the highest it could have."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.compare import compare
from armload.analysis.conditions_log import RunConditions
from armload.analysis.device_clocks import (
    FILE_NAME,
    ClockUse,
    SlowMemory,
    TimeAtClock,
    read_device_clocks_of_run,
    read_transitions,
)
from armload.analysis.measurement import measurement_of
from armload.boards.conditions import Conditions
from armload.boards.device_clocks import (
    ClockKind,
    kind_of,
    read_device_clocks,
    sampled_clocks,
)
from armload.engines.measurement import Measurement
from armload.engines.trace import Step
from tests.unit.runs import quick_run
from tests.unit.samples import conditions, step, steps_with_prompt
from tests.unit.test_analysis_verdict_board import reasons

DMC = "/sys/class/devfreq/dmc/cur_freq"
STEPS_HZ = "528000000 1068000000 1560000000 2112000000"
SHOWN = (
    f"{DMC};dmc;dmc_ondemand;528000000;528000000;2112000000;{STEPS_HZ}",
    (
        "/sys/class/devfreq/fdab0000.npu/cur_freq;fdab0000.npu;rknpu_ondemand;1000000000;300000000;"
        "1000000000;300000000 1000000000"
    ),
)


def board(*lines: str) -> Conditions:
    return conditions().model_copy(update={"device_clocks": read_device_clocks(lines or SHOWN)})


def at_mhz(*mhz: int) -> tuple[Step, ...]:
    first, *others = steps_with_prompt([0.1] * len(mhz))
    return (
        first,
        *(
            each.model_copy(update={"device_khz": (clock * 1000, 1_000_000)})
            for each, clock in zip(others, mhz, strict=True)
        ),
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # As sbc-bench's results list them.
        ("dmc", "memory"),
        ("a020000.dmcfreq", "memory"),
        ("1c62000.dram-controller", "memory"),
        ("10c20000.memory-controller", "memory"),
        ("emc", "memory"),
        ("fb000000.gpu", "gpu"),
        ("17000000.gpu", "gpu"),
        ("fdab0000.npu", "npu"),
        ("51c00000.eswin-npu", "npu"),
        ("14260000.aipu", "npu"),
        ("soc:mdla_devfreq", "npu"),
        ("soc:bus_wcore", "interconnect"),
        ("bus-wcore", "interconnect"),
        ("1d84000.ufshc", "other"),
        ("fdf80200.rkvdec", "other"),
        ("15340000.vic", "other"),
        # As Qualcomm's drivers call their votes for bandwidth.
        ("soc:qcom,cpubw", "interconnect"),
        ("soc:qcom,gpubw", "interconnect"),
    ],
)
def test_what_a_clock_drives_is_known_by_its_name(name: str, kind: ClockKind) -> None:
    assert kind_of(name) == kind


def test_what_a_devfreq_tree_lacks_is_unknown() -> None:
    silent, cut, vote, odd = read_device_clocks(
        [
            "/sys/class/devfreq/dmc/cur_freq;dmc;;;;;",
            "/sys/class/devfreq/x;gpu",
            "no clock at all",
            "/sys/class/devfreq/fb000000.gpu/cur_freq;fb000000.gpu;simple_ondemand;-5;;x;a b 0",
            "/sys/class/devfreq/soc:qcom,cpubw/cur_freq;soc:qcom,cpubw;bw_hwmon;762;762;13763;762",
            "with space/cur_freq;dmc;;528000000;;18446744073709551615;",
        ]
    )
    assert (silent.hz, silent.allowed_hz, silent.governor) == (None, None, None)
    assert (cut.hz, cut.highest_hz, cut.governor) == (None, None, "simple_ondemand")
    assert (vote.hz, vote.limit_hz) == (None, None), "megabytes per second"
    assert (odd.hz, odd.path, odd.limit_hz) == (528_000_000, "", None)
    assert sampled_clocks([silent, cut, vote, odd]) == ()
    assert len(read_device_clocks([SHOWN[0]] * 1000)) == 32


def test_memory_below_its_highest_clock_is_a_doubt_with_its_share_and_its_governor() -> None:
    steps, before = at_mhz(*[528] * 14, *[2112] * 6), board()
    used = read_device_clocks_of_run(Path("nowhere"), steps, before)
    assert [(each.name, each.phase) for each in used] == [
        ("dmc", "decode"),
        ("fdab0000.npu", "decode"),
    ]
    (doubt,) = reasons(steps, RunConditions(device_clocks=used), before=before, n_predict=21)
    assert isinstance(doubt, SlowMemory)
    assert doubt.time_share == pytest.approx(0.7)
    assert doubt.fact() == (
        "The memory ran at 528 of 2112 MHz for 70% of the decode (governor dmc_ondemand)."
    )
    assert "--governor memory=performance" in doubt.advice()
    several = at_mhz(*[528] * 5, *[1560] * 5, *[2112] * 10)
    used = read_device_clocks_of_run(Path("nowhere"), several, before)
    (doubt,) = reasons(several, RunConditions(device_clocks=used), before=before, n_predict=21)
    assert "528 to 1560 of 2112 MHz for 50%" in doubt.sentence


@pytest.mark.parametrize(
    ("limit", "mhz"),
    [
        ("2112000000", [2112] * 19 + [528]),  # a moment
        ("1068000000", [1068] * 20),  # as the board is set up
        ("2112000000", [0] * 20),  # no answer
    ],
)
def test_memory_at_the_highest_clock_it_may_have_is_none(limit: str, mhz: list[int]) -> None:
    steps = at_mhz(*mhz)
    before = board(f"{DMC};dmc;dmc_ondemand;528000000;528000000;{limit};{STEPS_HZ}")
    used = read_device_clocks_of_run(Path("nowhere"), steps, before)
    assert reasons(steps, RunConditions(device_clocks=used), before=before, n_predict=21) == []


def test_a_slow_gpu_beside_a_run_on_the_cpu_is_no_doubt() -> None:
    slow = ClockUse(
        name="fb000000.gpu",
        kind="gpu",
        phase="decode",
        times=(TimeAtClock(hz=300_000_000, share=1),),
        allowed_hz=1_000_000_000,
    )
    assert reasons(at_mhz(*[2112] * 20), RunConditions(device_clocks=(slow,)), n_predict=21) == []


def transitions(*rows: tuple[int, int], now: int) -> str:
    """Write a table as devfreq's trans_stat_show does."""
    heading = "".join(f"{hz:10}" for hz, _ in rows)
    lines = ["     From  :   To", f"           :{heading}   time(ms)"]
    lines += [
        f"{'*' if hz == now else ' '}{hz:10}:{f'{7:10}' * len(rows)}{ms:10}" for hz, ms in rows
    ]
    return "\n".join([*lines, "Total transition : 42", ""])


def test_columns_that_touch_each_other_are_read() -> None:
    table = transitions((528_000_000, 6_534_203), (2_112_000_000, 1_234_567_890), now=528_000_000)
    assert "7 1234567890" not in table, "eleven and a half days leave no space"
    read = read_transitions(table)
    assert read is not None
    assert dict(read.times) == {528_000_000: 6534.203, 2_112_000_000: 1_234_567.890}
    assert read.now_hz == 528_000_000


@pytest.mark.parametrize(
    "table",
    ["", "Not Supported.\n", " 528000000:\n", "*528000000: x\n", f"* 1:{' ' * 10}99\x00\n"],
)
def test_a_table_of_another_form_is_none(table: str) -> None:
    assert read_transitions(table) is None


def noted(folder: Path, *moments: tuple[float, str]) -> Path:
    words = "".join(f"#at {up_s}\n#clock {DMC}\n{table}" for up_s, table in moments)
    (folder / FILE_NAME).write_text(words)
    return folder


def test_of_a_program_without_steps_the_kernels_count_tells(tmp_path: Path) -> None:
    noted(
        tmp_path,
        (100.0, transitions((528_000_000, 90_000), (2_112_000_000, 5_000), now=528_000_000)),
        (200.0, transitions((528_000_000, 150_000), (2_112_000_000, 45_000), now=528_000_000)),
    )
    (used,) = read_device_clocks_of_run(
        tmp_path, (), board(), {"/sys/class/devfreq/dmc": "powersave"}
    )
    assert (used.phase, used.governor) == ("run", "powersave")
    assert [each.hz for each in used.times] == [528_000_000, 2_112_000_000]
    assert [each.share for each in used.times] == pytest.approx([0.6, 0.4])


def test_time_that_the_kernel_has_not_counted_yet_is_that_of_the_present_frequency(
    tmp_path: Path,
) -> None:
    table = transitions((528_000_000, 90_000), (2_112_000_000, 5_000), now=2_112_000_000)
    noted(tmp_path, (100.0, table), (160.0, table))
    (used,) = read_device_clocks_of_run(tmp_path, (), board())
    assert used.times == (TimeAtClock(hz=2_112_000_000, share=1),)


def test_counts_that_were_set_back_or_cut_off_count_for_nothing(tmp_path: Path) -> None:
    full = transitions((528_000_000, 90_000), (2_112_000_000, 5_000), now=528_000_000)
    empty = transitions((528_000_000, 10), (2_112_000_000, 0), now=528_000_000)
    noted(tmp_path, (100.0, full), (160.0, empty))
    assert read_device_clocks_of_run(tmp_path, (), board()) == ()
    noted(tmp_path, (100.0, full))
    assert read_device_clocks_of_run(tmp_path, (), board()) == ()
    assert read_device_clocks_of_run(tmp_path / "none", (step(0),), board()) == ()


@pytest.mark.parametrize(("other_mhz", "differs"), [(528, True), (2050, False), (None, False)])
def test_a_comparison_names_memory_clocks_that_differ(
    other_mhz: int | None, *, differs: bool
) -> None:
    def at(mhz: int | None) -> Measurement:
        times = (TimeAtClock(hz=(mhz or 0) * 1_000_000, share=1),)
        memory = ClockUse(name="dmc", kind="memory", phase="decode", times=times)
        clocks = (memory,) if mhz else ()
        update = {"id": f"at-{mhz}", "device_clocks": clocks}
        return measurement_of(quick_run().model_copy(update=update))

    (compared,) = compare([at(2112)], [at(other_mhz)])
    named = [(each.a, each.b) for each in compared.differences if "memory clock" in each.name]
    assert named == ([(2112, other_mhz)] if differs else [])
