"""Real boards, as public dumps show them: the probe's facts are right, and nothing is doubted."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.conditions_log import RunConditions
from armload.analysis.throttling import throttle_events
from armload.boards.probe import Probe
from armload.boards.rates import Rates
from armload.boards.throttling import ThrottleReading
from armload.deploy.compatibility import check_folder, target_mismatch
from armload.deploy.rates import Missing
from armload.engines.completion import settings_of
from armload.engines.engine import Settings
from armload.engines.plan import Plan
from armload.engines.weights import BoardMemory
from armload.report.boards import probe_table
from armload.runs.assemble import board_record
from armload.runs.predicting import expected
from armload.runs.resources import resources_of_board
from tests.recorded_boards import RECORDED, board_of, numbers, probed
from tests.unit.samples import model
from tests.unit.test_analysis_verdict_board import at_khz, reasons

SHELLS = ("dash", "mksh", "busybox")


@pytest.fixture(params=sorted(RECORDED))
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_tells_the_facts_of_every_board(name: str, shell: str, tmp_path: Path) -> None:
    found, recorded = probed(name, tmp_path, shell), RECORDED[name]
    now, expected = found.conditions, recorded["expected"]
    assert f"{now.kernel} {found.machine}" == recorded["kernel"]
    assert found.device == recorded["device"]
    names = ", ".join(f"{each.cores} {each.name}" for each in found.clusters)
    assert names == expected["clusters"]
    assert found.cores == sum(core["count"] for core in recorded["cores"])
    assert found.cpu_features == tuple(recorded["features"].split())
    assert found.max_khz == tuple(highest_khz(recorded))
    assert sum(len(each.cores) for each in now.clusters) == found.cores
    assert now.zram_total_bytes == expected.get("zram_kib", 0) * 1024
    assert {each.name: each.value for each in now.throttling} == expected.get("throttling", {})
    sensors = recorded.get("sensors", {})
    left_out = {each.name: each.left_out for each in now.sensors if each.left_out}
    assert left_out == expected.get("left_out", {})
    counting = {each.name: each.celsius or 0 for each in now.sensors if not each.left_out}
    if "zones" in recorded:
        assert now.celsius == expected["hottest"]
        assert len(now.sensors) == len(recorded["zones"])
    else:
        assert counting == {n: c for n, c in sensors.items() if n not in left_out}
        assert now.celsius == max(counting.values(), default=None)
    clocks = {each.name: each.kind for each in now.device_clocks}
    assert clocks == expected.get("clocks", {})
    for each in now.device_clocks:
        device = recorded["devices"][each.name]
        assert (each.governor, each.hz) == (device["governor"], device["mhz"] * 1_000_000)
        assert each.allowed_hz == device["steps"][-1] * 1_000_000
    assert [len(node.cores) for node in found.nodes] == expected.get("nodes", [])
    assert now.workdir_filesystem == "ext4"
    assert not now.workdir_in_memory
    memory = BoardMemory.of(now)
    assert 0 < memory.available_bytes < memory.total_bytes


@pytest.mark.parametrize(
    ("name", "cores"),
    [
        ("turing-rk1-rk3588", "4-7"),
        ("nanopc-t4-rk3399", "4-5"),
        ("macbook-pro-m1-asahi", "2-9"),
        *(
            (name, board["expected"]["fast_cores"])
            for name, board in RECORDED.items()
            if "fast_cores" in board["expected"]
        ),
        ("raspberry-pi-5", None),
        ("altra-max-2-sockets", None),
    ],
)
def test_a_mixed_boards_fast_cores_are_used_unless_told_otherwise(
    name: str, cores: str | None, tmp_path: Path
) -> None:
    found = probed(name, tmp_path, "dash")
    assert settings_of(Plan()).cores_on(found) == cores
    assert settings_of(Plan(threads=2)).cores_on(found) == cores
    # More threads than fast cores, and an own choice, are taken at their word.
    assert settings_of(Plan(threads=found.cores)).cores_on(found) is None
    assert settings_of(Plan(cpus="0")).cores_on(found) == "0"
    assert settings_of(Plan(numa="distribute")).cores_on(found) is None
    assert Settings().cores_on(found) is None, "a watched program chooses by itself"


def highest_khz(recorded: dict[str, object]) -> list[int]:
    policies = recorded.get("policies", [])
    assert isinstance(policies, list)
    return [
        policy["max"] * 1000
        for policy in policies
        for _ in numbers(policy.get("cores") or policy["each"])
    ]


def run_at(khz: tuple[int, ...], found: Probe, board_name: str, work: Path) -> list[str]:
    """Return what is doubted of a run in which the cores had these frequencies all the time."""
    now = found.conditions
    readings = tuple(ThrottleReading(at_s=at, states=now.throttling) for at in (10.0, 70.0))
    figures = reasons(
        at_khz(*khz, celsius=now.celsius),
        RunConditions(after=now, throttling=readings),
        before=now,
        plan=Plan(n_predict=22),
        board=board_record(board_of(board_name, work), found),
    )
    return [figure.name for figure in figures]


def test_a_run_at_full_speed_is_not_doubted_on_any_board(name: str, tmp_path: Path) -> None:
    found, recorded = probed(name, tmp_path, "dash"), RECORDED[name]
    board = board_of(name, tmp_path)
    check_folder(board, found)
    doubts = run_at(found.max_khz[:128], found, name, tmp_path)
    if "under-voltage" in name:
        assert doubts == ["under-voltage"]
        assert "kernel is armv7l" in target_mismatch(board, found)
    else:
        assert doubts == []
        assert throttle_events([ThrottleReading(at_s=1, states=found.conditions.throttling)]) == ()
        assert target_mismatch(board, found) == ""
    missing = Missing(memory="not measured", storage="not measured")
    labels = [label for label, _ in probe_table(board, found, missing, in_use="").rows]
    assert ("throttling" in labels) == bool(recorded["expected"].get("throttling"))
    assert ("temperature" in labels) == bool(recorded.get("sensors") or recorded.get("zones"))
    assert ("device clocks" in labels) == bool(recorded.get("devices"))
    assert ("NUMA nodes" in labels) == (len(found.nodes) > 1)


def test_a_run_below_the_full_speed_is(name: str, tmp_path: Path) -> None:
    found = probed(name, tmp_path, "dash")
    half = tuple(khz // 2 for khz in found.max_khz[:128])
    doubts = run_at(half, found, name, tmp_path)
    if "under-voltage" in name:
        assert doubts == ["under-voltage"]
    else:
        assert doubts == (["throttled"] if half else [])


def test_fit_says_what_each_boards_memory_holds(name: str, tmp_path: Path) -> None:
    found = probed(name, tmp_path, "dash")
    rates = Rates(memory_bytes_per_s=4_000_000_000, storage_read_bytes_per_s=100_000_000)
    resources = resources_of_board(board_of(name, tmp_path), found.conditions, rates)
    small = expected(Plan(), model(), resources, None)
    assert (small.verdict, small.notes) == ("fits", ())
    # zram makes no room for a model that is larger than the memory.
    memory_bytes = found.conditions.memory_total_bytes
    large = model().model_copy(update={"size_bytes": memory_bytes, "bytes_per_token": memory_bytes})
    assert expected(Plan(), large, resources, None).verdict != "fits"
