"""Governors of one device or of several, as one text; and which clock a bandwidth belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from armload.analysis.conditions_log import read_governor
from armload.boards.device_clocks import ClockKind, DeviceClock
from armload.boards.governors import cpu_governor, governors_in, governors_text
from armload.boards.rates import Rates
from armload.core.errors import BoardError
from armload.deploy.launch import governor_settings
from armload.deploy.rates import has_other_clock
from armload.engines.plan import Plan
from armload.report.exchange.forms import device_clock_name, governor_name


@pytest.mark.parametrize(
    ("text", "governors"),
    [
        ("performance", {"cpu": "performance"}),
        ("cpu=performance", {"cpu": "performance"}),
        ("memory=performance", {"memory": "performance"}),
        ("memory=userspace+cpu=schedutil", {"cpu": "schedutil", "memory": "userspace"}),
    ],
)
def test_a_text_names_the_governor_of_each_device(
    text: str, governors: dict[ClockKind, str]
) -> None:
    assert governors_in(text) == governors
    assert Plan(governor=text).governor == text
    written = governors_text(governors)
    assert written is not None
    assert governors_in(written) == governors
    assert cpu_governor(text) == governors.get("cpu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("disk=performance", "no device 'disk'; use one of cpu, memory, gpu, npu, interconnect"),
        ("", "name a governor"),
        ("memory=", "name a governor"),
        ("performance+cpu=ondemand", "governor of cpu is given twice"),
        ("other=performance", "no device 'other'"),
    ],
)
def test_a_text_of_another_form_is_refused_with_what_there_is(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        governors_in(text)
    with pytest.raises(ValidationError, match=message):
        Plan(governor=text)


def test_a_kernel_without_such_a_device_is_said_before_anything_is_set() -> None:
    npu = DeviceClock(path="/sys/d/npu/cur_freq", name="npu", kind="npu", governor="ondemand")
    silent = DeviceClock(path="/sys/d/dmc/cur_freq", name="dmc", kind="memory")
    assert governor_settings("b", None, (npu,)) == ()
    assert governor_settings("b", "npu=performance", (npu, silent)) == (
        ("performance", ("/sys/d/npu",)),
    )
    with pytest.raises(BoardError, match="no governor of memory") as caught:
        governor_settings("b", "memory=performance", (npu, silent))
    assert caught.value.remedy == "Omit memory from --governor. Beside the CPU, there is: npu."


def test_what_devices_had_in_a_run_is_read_by_kind(tmp_path: Path) -> None:
    def read(*lines: str) -> str | None:
        (tmp_path / "governors").write_text("".join(f"{line}\n" for line in lines))
        return read_governor(tmp_path)

    cpu, dmc = "/sys/devices/system/cpu/cpufreq/policy0", "/sys/class/devfreq/dmc"
    both = ("a performance " + cpu, f"dmc_ondemand performance {dmc}")
    assert read(*both) == "cpu=performance+memory=performance"
    assert read(both[1]) == "memory=performance"
    assert read(both[0], f"dmc_ondemand - {dmc}") == "performance", "it was not written"


def test_only_known_governors_and_names_of_drivers_are_published() -> None:
    assert governor_name("cpu=performance+memory=zaphod") == "performance"
    assert governor_name("memory=dmc_ondemand") == "memory=dmc_ondemand"
    assert governor_name("zaphod") is None
    assert governor_name("zaphod=performance") is None
    names = ("dmc", "fdab0000.npu", "zaphod.gpu", "memory")
    assert [device_clock_name(each) for each in names] == ["dmc", "fdab0000.npu", "gpu", "memory"]
    assert device_clock_name(device_clock_name("zaphod")) == "other"


@pytest.mark.parametrize(
    ("measured_mhz", "governor", "wanted", "differs"),
    [
        (2112, "dmc_ondemand", None, False),
        (528, "dmc_ondemand", None, True),
        (None, "dmc_ondemand", None, True),
        (528, "powersave", None, False),
        (2112, "powersave", None, True),
        (528, "powersave", "performance", True),
        (2112, "dmc_ondemand", "performance", False),
        (2112, "dmc_ondemand", "powersave", True),
    ],
)
def test_a_bandwidth_counts_for_the_clock_that_the_memory_will_have(
    measured_mhz: int | None, governor: str, wanted: str | None, *, differs: bool
) -> None:
    clock = DeviceClock(
        path="/d/cur_freq",
        name="dmc",
        kind="memory",
        governor=governor,
        hz=528_000_000,
        limit_hz=2_112_000_000,
        highest_hz=2_112_000_000,
    )
    hz = measured_mhz and measured_mhz * 1_000_000
    known = Rates(memory_bytes_per_s=9_000_000_000, memory_clock_hz=hz)
    assert has_other_clock(known, clock, wanted) == differs
    assert not has_other_clock(known, None, wanted)
