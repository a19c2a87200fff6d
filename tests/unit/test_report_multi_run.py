"""The report of several runs as text; what a browser makes of it is a system test."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from armload.analysis.run import Run
from armload.core.errors import UsageError
from armload.engines.job import ModelRecord
from armload.engines.placement import CpuOperation, DeviceShare, Placement
from armload.report.cells import cells_of
from armload.report.multi_run import (
    counted,
    doubts,
    headline,
    new_folder,
    runs_page,
    verdict_line,
)
from armload.report.pages import PAGE_NAME, Report, write_report
from tests.command_line import share_charts
from tests.unit.pages import HOSTILE, Page
from tests.unit.runs import failed_run, quick_run, storage_run
from tests.unit.sweeps import Q4, Q8, made_run, sweep
from tests.unit.watched import watched_run


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    cache = tmp_path_factory.mktemp("workspace") / "cache"
    share_charts(cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARMLOAD_CACHE", str(cache))
        yield


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, _cache: object) -> Report:
    return write_report(runs_page(sweep()), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def folder(report: Report) -> Path:
    return report.page.parent


def test_each_figure_lies_beside_the_page_in_both_formats(folder: Path) -> None:
    names = ["distribution", "memory", "models", "threads-decode", "threads-prefill"]
    names += ["time-per-token"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [PAGE_NAME, *(f"{name}.{kind}" for name in names for kind in ("png", "svg"))]
    )
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / f"{name}.svg").read_text().startswith("<svg")


def test_page_and_pictures_are_drawn_from_one_specification(report: Report) -> None:
    data = json.loads(Page(report.page.read_text()).scripts[0])
    for picture in report.figures:
        specification = picture.specification
        assert data[picture.name] == json.loads(
            json.dumps({key: value for key, value in specification.items() if key != "title"})
        )
        assert picture.title in picture.svg.read_text()


def test_the_page_asks_for_nothing_but_the_pictures_beside_it(folder: Path) -> None:
    links = Page((folder / PAGE_NAME).read_text()).links
    assert links
    for link in links:
        assert link.startswith("./")
        assert (folder / link).is_file()


def test_the_policy_lets_only_the_page_s_own_script_run(folder: Path) -> None:
    text = (folder / PAGE_NAME).read_text()
    _, script = Page(text).scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1] == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:"
    )


def hostile(run: Run, name: str) -> Run:
    return run.model_copy(
        update={
            "id": f"{HOSTILE}{name}",
            "text": HOSTILE,
            "model": run.model.model_copy(
                update={"name": HOSTILE + name, "quantisation": HOSTILE, "sha256": name * 64}
            ),
            "board": run.board.model_copy(update={"name": HOSTILE, "description": HOSTILE}),
            "binary": run.binary.model_copy(update={"source": HOSTILE}),
            "verdict": run.verdict.model_copy(update={"valid": False, "reasons": (HOSTILE,)}),
        }
    )


def test_text_from_runs_stays_text(tmp_path: Path) -> None:
    runs = [hostile(made_run(Q4, threads), name) for threads in (1, 2) for name in ("a", "b")]
    page = write_report(runs_page(runs), tmp_path).page.read_text()
    parsed = Page(page)
    assert parsed.tags.count("script") == 2
    assert "img" not in parsed.tags
    assert HOSTILE in "".join(parsed.words)
    json.loads(parsed.scripts[0])


def of_a_program(folder: Path, name: str = "echo") -> Run:
    """Return a valid run of a program without a model, of whose tokens nobody knows."""
    nothing = ModelRecord(name="", sha256="", size_bytes=None)
    run = watched_run(folder, [b"hello world"], reads="text", model=nothing)
    binary = run.binary.model_copy(update={"program": name, "sha256": 32 * f"{len(name):02}"})
    return run.model_copy(update={"binary": binary, "id": f"{run.id}-{name}"})


def test_a_valid_run_of_a_program_without_tokens_is_called_valid_throughout(tmp_path: Path) -> None:
    run = of_a_program(tmp_path / "raw")
    report = write_report(runs_page([run]), tmp_path / "report")
    assert report.headline == f"echo ran for 100 ms on {run.board.name}"
    page = report.page.read_text()
    body = page[page.index("<body>") :]
    assert "This run is valid." in body
    assert "not valid" not in Page(body).shown
    assert "No run is valid" not in Page(body).shown
    assert "1 run: echo (not built by armload" in body
    assert "<th>model</th>" not in body
    assert next(iter(report.table[0].items())) == ("program", "echo")
    assert "<td></td>" not in body
    assert re.fullmatch(r"\d{8}T\d{6}Z-[a-z0-9-]+-echo", new_folder([run]).name)


def test_a_sweep_of_devices_says_what_each_gpu_left_to_the_cpu(tmp_path: Path) -> None:
    placement = Placement(
        passes=9,
        devices=(DeviceShare(name="Vulkan0", description="Mali-G610", operations=729),),
        on_cpu=(CpuOperation(name="MUL_MAT", type="q6_K", operations=18, unsupported=True),),
    )
    runs = [
        run.model_copy(
            update={
                "plan": run.plan.model_copy(update={"device": device}),
                "placement": placement if device == "gpu" else None,
            }
        )
        for device in ("cpu", "gpu", "gpu", "other")
        for run in [made_run(threads=4)]
        if run.plan
    ]
    shown = Page(write_report(runs_page(runs), tmp_path / "report").page.read_text()).shown
    left = "gpu: Vulkan0, Mali-G610; CPU, because the GPU lacks them: MUL_MAT q6_K (2 per pass)"
    assert shown.count(left) == 1
    assert shown.count("other: not known") == 1
    assert "as requested" not in shown


def test_valid_runs_without_a_rate_are_counted(tmp_path: Path) -> None:
    runs = [of_a_program(tmp_path / name, name) for name in ("echo", "ls")]
    board = runs[0].board.name
    assert headline(cells_of(runs)) == f"2 valid runs on {board}, without tokens per second"
    assert counted(cells_of(runs)) == "2 runs of 2 configurations: echo, ls"
    assert new_folder(runs).name.endswith("-2-programs")
    assert headline(cells_of([*runs, quick_run()])).startswith("66.6 ms per token (15.0 tokens")


def test_the_verdict_counts_what_may_not_be_believed() -> None:
    assert verdict_line(cells_of([made_run(), made_run(repeat=1)])) == "Both runs are valid."


def test_warm_ups_are_counted_aside() -> None:
    assert counted(cells_of([made_run()]), 2).startswith("1 run, 2 warm-ups left out: Llama-3.2")
    assert "warm-up" not in counted(cells_of([made_run()]))


def test_runs_that_failed_alike_are_named_together() -> None:
    found = doubts(cells_of(sweep()))
    assert [(doubt.label, len(doubt.runs)) for doubt in found] == [
        ("Q8_0, 8 threads", 1),
        ("F16, 4 threads", 2),
    ]


@pytest.mark.parametrize(
    "runs",
    [[failed_run()], [storage_run()], [quick_run(tokens=2)], [failed_run(), quick_run(tokens=1)]],
    ids=["failed", "from storage", "one decode step", "no decode step"],
)
def test_any_runs_make_a_page(runs: list[Run], tmp_path: Path) -> None:
    report = write_report(runs_page(runs), tmp_path / "new" / "folder")
    assert report.headline in Page(report.page.read_text()).shown


def test_a_folder_of_a_report_is_named_after_time_and_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = new_folder([made_run()])
    assert one.parent == tmp_path / "reports"
    assert re.fullmatch(r"\d{8}T\d{6}Z-kitchen-Llama-3.2-1B-Instruct-Q4_0", one.name)
    assert new_folder([made_run(), made_run(Q8)]).name.endswith("-kitchen-2-models")
    one.mkdir(parents=True)
    assert not new_folder([made_run()]).exists()


def test_a_file_is_no_folder_for_a_report(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="taken is a file"):
        write_report(runs_page([quick_run()]), tmp_path / "taken")


def test_a_report_written_again_is_the_same(folder: Path, tmp_path: Path) -> None:
    write_report(runs_page(list(reversed(sweep()))), tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()
