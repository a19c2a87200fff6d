"""What was noted around a run is shown: in the table, on the page, and to a comparison."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from armload.analysis.background import BackgroundProcess
from armload.analysis.conditions_log import Swapped
from armload.analysis.measurement import measurement_of
from armload.analysis.run import Run
from armload.boards.board import load_board
from armload.boards.conditions import ClusterState
from armload.boards.host import TransportChoice
from armload.boards.probe import parse_probe
from armload.boards.sensors import Sensor
from armload.boards.specs import DeclaredSpecs
from armload.deploy.rates import Missing
from armload.engines.plan import Plan
from armload.report import run_words
from armload.report.boards import probe_table
from armload.report.pages import render
from armload.report.run_page import run_page
from armload.report.table import run_table
from tests.unit.runs import planned, quick_run
from tests.unit.test_boards_probe import core, output

BACKGROUND = (
    BackgroundProcess(name="<b>cc1 [red]", processes=4, cpu_s=13.0, share=1.3),
    BackgroundProcess(name="kswapd0", processes=1, cpu_s=2.0, share=0.2, kernel=True),
)


def disturbed() -> Run:
    run = quick_run()
    before = run.before.model_copy(
        update={
            "swap_total_bytes": 1_000_000_000,
            "workdir_filesystem": "f2fs",
            "clusters": (
                ClusterState(
                    cores=(0, 1, 2, 3), governor="schedutil", khz=408_000, max_khz=1_992_000
                ),
                ClusterState(cores=(4, 6), khz=2_400_000),
                ClusterState(cores=(7,)),
            ),
            "celsius": 52.0,
            "sensors": (Sensor(name="soc", celsius=52), Sensor(name="gpu", celsius=49.4)),
        }
    )
    board = run.board.model_copy(
        update={
            "storage_read_rate": "declared",
            "memory_bytes_per_s": 3_100_000_000,
            "memory_rate": "measured",
        }
    )
    changed = {
        "plan": Plan(n_predict=32, cpus="0-3", cold=True),
        "before": before,
        "board": board,
        "cache": "dropped",
        "governor": "performance",
        "background_processes": BACKGROUND,
        "swapped": Swapped(in_bytes=5_000_000, out_bytes=9_000_000),
    }
    return run.model_copy(update=changed)


def shown(renderable: RenderableType) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(renderable)
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_the_table_names_background_processes_and_what_was_set() -> None:
    table = shown(run_table(disturbed()))
    assert (
        "background processes <b>cc1 [red] 130% of a core, kswapd0 (the kernel) 20% of a core"
        in table
    )
    assert "cores 0-3, governor performance, cold: page cache dropped" in table
    plain = shown(run_table(quick_run()))
    assert "background processes" not in plain
    assert "conditions set" not in plain


def test_the_page_holds_all_conditions() -> None:
    run = disturbed()
    page = render(run_page(run))
    for part in (
        "f2fs",
        "soc 52 °C, gpu 49 °C",
        "cores 0-3: schedutil 0.41 of 1.99 GHz; cores 4,6: 2.40 of - GHz",
        "&lt;b&gt;cc1 [red] 130% of a core",
        "9.0 MB out, 5.0 MB in",
        "3.1 GB/s (measured)",
        "165.0 MB/s (declared)",
        "governor performance",
    ):
        assert part in page, part
    assert "<b>cc1" not in page


def test_a_run_of_which_little_is_known_has_a_page_too() -> None:
    run = quick_run()
    page = render(run_page(run))
    assert "beside the run" not in page
    assert "165.0 MB/s<" in page


@pytest.mark.parametrize(
    ("cache", "said"),
    [("evicted", "cold: model evicted from the page cache"), ("as found", "not cold"), (None, "")],
)
def test_what_a_cold_run_did_is_said(cache: str | None, said: str) -> None:
    run = quick_run().model_copy(update={"cache": cache})
    assert run_words.setting_line(run).startswith(said)
    assert bool(run_words.setting_line(run)) == bool(said)


def test_a_run_whose_weights_were_not_repacked_says_why() -> None:
    run = planned(quick_run(), extra=())
    short = run.model_copy(update={"command": (*run.command, "--no-repack")})
    assert "too little free memory" in run_words.setting_line(short)
    asked = planned(short, extra=("-nr",))
    assert run_words.setting_line(asked) == "weights not repacked"
    assert "weights not repacked" in render(run_page(short))


def test_runs_that_were_set_up_otherwise_are_another_way_of_doing_it() -> None:
    assert measurement_of(disturbed()).method.options == "cpus 0-3 cold True governor performance"
    assert measurement_of(quick_run()).method.options == ""


def test_a_probed_board_shows_what_a_person_can_use_of_it() -> None:
    board = load_board("virtual-dayu200")
    found = parse_probe(output(core(0)), board.name)
    transports = [
        TransportChoice(purpose=purpose, chosen="it", reason="so")
        for purpose in ("commands", "long commands", "bulk data", "checksums", "CPU pinning")
    ]
    found = found.model_copy(update={"transports": tuple(transports), "tools": frozenset()})
    table = " ".join(shown(probe_table(board, found, Missing(), in_use="")).split())
    assert "commands it (so) bulk data it (so)" in table
    for inside in ("long commands", "checksums", "CPU pinning", "missing tools", "truncate"):
        assert inside not in table
    assert " ".join(found.cpu_features) in table
    many = found.model_copy(update={"cpu_features": tuple(f"f{n}" for n in range(99))})
    assert "CPU features 99, listed by --json" in " ".join(
        shown(probe_table(board, many, Missing(), in_use="")).split()
    )


def test_a_probed_board_shows_its_rates_and_how_they_are_known() -> None:
    board = load_board("virtual-dayu200")
    rates = '{"memory_bytes_per_s":2900000000,"memory_threads":4}\n'
    found = parse_probe(output(core(0), rates=rates), board.name)
    table = shown(probe_table(board, found, Missing(), in_use=""))
    assert "memory bandwidth 2.9 GB/s, measured in this boot with 4 threads" in table
    assert "storage bandwidth 165.0 MB/s, declared" in table
    assert "frequencies cores 0-1: schedutil 0.41 of 1.99 GHz" in table
    assert "temperature soc-thermal 42 °C, gpu-thermal 43 °C" in table
    assert "free (f2fs)" in table
    none = found.conditions.model_copy(update={"swap_used_bytes": 0, "swap_total_bytes": 0})
    without = found.model_copy(update={"conditions": none})
    assert ", no swap" in shown(probe_table(board, without, Missing(), in_use=""))
    found = parse_probe(output(core(0), df="", place=""), board.name)
    table = " ".join(shown(probe_table(board, found, Missing(), in_use="")).split())
    assert "free space unknown (unknown file system)" in table
    rates = '{"storage_read_bytes_per_s":160000000,"storage_way":"cache dropped"}\n'
    found = parse_probe(output(core(0), rates=rates), board.name)
    table = " ".join(shown(probe_table(board, found, Missing(), in_use="")).split())
    assert (
        "160.0 MB/s, measured in this boot through the page cache (no direct I/O there)"
    ) in table
    rates = rates.replace("}", ',"storage_other_way_bytes_per_s":120000000}')
    found = parse_probe(output(core(0), rates=rates), board.name)
    table = " ".join(shown(probe_table(board, found, Missing(), in_use="")).split())
    assert "through the page cache (direct I/O: 120.0 MB/s)" in table
    found = parse_probe(output(core(0), rates=rates.replace("cache dropped", "direct")), board.name)
    table = " ".join(shown(probe_table(board, found, Missing(), in_use="")).split())
    assert "with direct I/O (through the page cache: 120.0 MB/s)" in table
    unknown = load_board("dayu200").model_copy(update={"facts": DeclaredSpecs()})
    found = parse_probe(output(core(0)), board.name)
    table = shown(probe_table(unknown, found, Missing(memory="a", storage="no model"), in_use=""))
    assert "memory bandwidth unknown: a" in table
    assert "storage bandwidth unknown: no model" in table
