"""A sweep's order, its journal, and what its repeats say together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from armload.analysis.run import Run
from armload.analysis.summary import Summary, TokenTimes
from armload.bench.run_names import folders_of
from armload.bench.sweep import (
    Sweep,
    SweepEntry,
    SweepFolder,
    find_sweep,
)
from armload.bench.sweeping import combinations
from armload.core.errors import RunError, UsageError
from armload.core.progress import Silent
from armload.core.values import as_json
from armload.core.workspace import RUN_FILE, runs_folder
from armload.deploy.exit_reason import Exit
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.report.cells import cells_of
from armload.report.settings import differing, settings_of
from armload.report.sweep import (
    SweepProgress,
    cell_results,
    comparison_of,
    names_of_cells,
    notes,
    sweep_table,
    swept_cells,
)
from armload.runs import store
from tests.unit.findings import verdict_of
from tests.unit.runs import failed_run, planned, quick_run
from tests.unit.samples import plan_cells, sweep_of


@pytest.fixture(autouse=True)
def _own_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sweep(*plans: Plan, identity: str = "one", repeats: int = 3, warmups: int = 1) -> Sweep:
    plans = plans or (Plan(threads=1), Plan(threads=2), Plan(threads=4), Plan(threads=8))
    return sweep_of(*plan_cells(*plans), identity=identity, repeats=repeats, warmups=warmups)


THROTTLED = verdict_of(throttled="Throttled: it was hot.")


def run(decode_tps: float, *, number: int = 0, valid: bool = True) -> Run:
    base = quick_run()
    times = TokenTimes(p50=1 / decode_tps, p90=1, p99=1, max=1)
    return base.model_copy(
        update={
            "id": f"{base.id}-{number}",
            "summary": Summary(
                ttft_s=1, prefill_tps=9, decode_tps=decode_tps, token_s=times, wall_s=1
            ),
            "verdict": base.verdict if valid else THROTTLED,
        }
    )


def test_every_round_runs_every_cell_once_and_not_always_in_the_same_order() -> None:
    places = list(sweep(repeats=6, warmups=2).places())
    rounds = [[place.cell for place in places[n : n + 4]] for n in range(0, len(places), 4)]
    assert len(rounds) == 8
    assert all(sorted(each) == [0, 1, 2, 3] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 3
    assert [place.warm_up for place in places] == [True] * 8 + [False] * 24
    assert places == list(sweep(repeats=6, warmups=2).places()), "a resumed sweep goes on in it"


def test_what_is_noted_is_not_run_again() -> None:
    journal = SweepFolder.begin(sweep())
    first, second, *_ = journal.missing()
    journal.append(SweepEntry(cell=first.cell, round=first.round, run="a"))
    journal.append(SweepEntry(cell=second.cell, round=second.round, error="no space"))
    again = SweepFolder.resume(sweep(identity="two"), Silent())
    assert again is not None
    assert again.sweep.id == journal.sweep.id
    assert again.missing() == list(sweep().places())[2:]


def test_a_sweep_that_is_done_is_not_gone_on_with() -> None:
    journal = SweepFolder.begin(sweep(Plan(), repeats=1, warmups=0))
    journal.append(SweepEntry(cell=0, round=0, run="a"))
    assert SweepFolder.resume(sweep(Plan(), repeats=1, warmups=0), Silent()) is None


def test_warm_ups_count_nowhere_and_a_lost_run_is_left_out() -> None:
    journal = SweepFolder.begin(sweep(Plan(), repeats=2, warmups=1))
    for number in range(3):
        each = run(10 + number, number=number)
        if number < 2:
            store.save(each, runs_folder() / each.id)
        journal.append(SweepEntry(cell=0, round=number, run=each.id))
    runs, errors = journal.results()
    assert [each.summary.decode_tps for each in runs[0]] == [11]
    assert errors == {}


def test_repeats_that_lie_far_apart_ask_for_more_of_them() -> None:
    def too_few(rates: Sequence[float]) -> str:
        (cell,) = cells_of(run(rate, number=number) for number, rate in enumerate(rates))
        return cell.too_few

    assert too_few(range(100, 108)) == ""
    assert too_few((60, 180)) == "", "two runs know nothing of their spread"
    assert "more repeats are needed" in too_few((90, 95, 100, 105, 110, 115))
    hopeless = too_few((1, 80, 100, 900, 140, 1600))
    assert "more repeats" not in hopeless
    assert "The runs differ too much for more of them to help" in hopeless


def test_cells_are_called_by_what_tells_them_apart() -> None:
    assert names_of_cells(sweep(Plan(threads=1), Plan(threads=2, kv_type="q8_0"))) == [
        {"threads": "1", "KV type": "default"},
        {"threads": "2", "KV type": "q8_0"},
    ]
    assert names_of_cells(sweep(Plan())) == [{"model": "m.gguf"}]


def test_long_prompts_that_begin_alike_are_told_apart() -> None:
    begin = "Tell me, in as many words as it takes, about "
    names = names_of_cells(sweep(Plan(prompt=begin + "rivers."), Plan(prompt=begin + "stones.")))
    assert [list(name) for name in names] == [["prompt"], ["prompt"]]
    assert names[0] != names[1]
    assert all(len(name["prompt"]) < 60 for name in names)


def test_a_sweep_and_a_report_say_the_same_of_the_same_choices() -> None:
    plans = (
        Plan(),
        Plan(
            prompt_tokens=64,
            threads=2,
            n_predict=7,
            context_tokens=512,
            kv_type="q8_0",
            cpus="0-1",
            flash_attention="on",
            cold=True,
            extra=("--no-warmup",),
        ),
    )
    names = names_of_cells(sweep(*plans))
    runs = [quick_run().model_copy(update={"plan": plan, "trace": None}) for plan in plans]
    settings = [settings_of(each) for each in runs]
    assert names == [{name: each[name] for name in differing(settings)} for each in settings]
    assert names[0] == {
        "threads": "auto",
        "prompt": "'I believe the meaning of life is'",
        "n": "128",
        "cores": "default",
        "context": "default",
        "KV type": "default",
        "flash attention": "default",
        "cache": "warm",
        "arguments": "none",
    }
    assert names[1]["prompt"] == "of 64 tokens"
    assert (names[1]["cache"], names[1]["arguments"]) == ("cold", "--no-warmup")


def test_progress_has_a_line_for_every_run() -> None:
    journal = SweepFolder.begin(sweep(Plan(threads=1), Plan(threads=2), repeats=1))
    journal.append(SweepEntry(cell=0, round=0))
    lines = SweepProgress(Silent())
    lines.begin(journal)
    place = SweepPoint(sweep="s", cell=1, round=1)
    head, first = lines.lines(place, run(12.34))
    assert head.startswith("run  per token  prefill   decode")
    assert first == "2/4    81.0 ms     9.00     12.3  2 threads: valid"
    (warm_up,) = lines.lines(place.model_copy(update={"warm_up": True}), run(1))
    assert "warm-up" in warm_up
    (failed,) = lines.lines(place, RunError("full"))
    assert failed.endswith("full")


def _printed(table: object) -> str:
    from rich.console import Console

    console = Console(width=150)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_the_table_marks_the_fastest_valid_cell() -> None:
    cells = sweep(Plan(threads=1), Plan(threads=2), Plan(threads=4))
    runs = {0: [run(10)], 1: [run(50, valid=False)], 2: [run(20)]}
    results = cell_results(cells, runs, {})
    shown = _printed(sweep_table(results))
    (best,) = [line for line in shown.splitlines() if "fastest" in line]
    assert best.split()[:2] == ["3", "4"], "as SWEEP/3 names it"
    assert "throttled" in shown
    assert notes(results)[0] == "2 threads: Throttled: it was hot."


def test_what_disturbed_several_cells_is_told_once_with_their_names() -> None:
    def disturbed(tps: float, share: int) -> Run:
        verdict = run(tps, valid=False).verdict
        said = f"Throttled: it was {share} °C."
        (kept,) = verdict.findings
        kept = kept.model_copy(update={"sentence": said})
        verdict = verdict.model_copy(update={"reasons": (said,), "findings": (kept,)})
        return run(tps, valid=False).model_copy(update={"verdict": verdict})

    cells = sweep(Plan(threads=1), Plan(threads=2), Plan(threads=4))
    runs = {0: [disturbed(10, 91)], 1: [run(50)], 2: [disturbed(20, 92)]}
    assert notes(cell_results(cells, runs, {}))[:2] == [
        "1 thread: Throttled: it was 91 °C.",
        "4 threads: the same problem, with different figures.",
    ]
    same = {0: [disturbed(10, 91)], 2: [disturbed(20, 91)]}
    assert (
        notes(cell_results(cells, same, {}))[0] == "1 thread, 4 threads: Throttled: it was 91 °C."
    )


def test_the_fastest_cell_is_marked_even_if_one_of_its_runs_is_not_valid() -> None:
    runs = {0: [run(10)], 1: [run(50, number=1), run(51, number=2, valid=False)]}
    results = cell_results(sweep(Plan(threads=1), Plan(threads=2)), runs, {})
    assert "fastest, throttled" in _printed(sweep_table(results))


def test_a_cell_that_failed_stays_in_the_table() -> None:
    ended = Exit(kind="signal", status=137, meaning="Killed.")
    dead = failed_run().model_copy(update={"exit": ended})
    cells = sweep(Plan(threads=1), Plan(threads=2))
    results = cell_results(cells, {0: [dead]}, {1: "no space"})
    assert _printed(sweep_table(results)).count("failed") == 2
    said = json.loads(as_json(swept_cells(cells, results)))["cells"]
    assert [(cell["ended"], cell["error"]) for cell in said] == [(0, ""), (0, "no space")]


def test_a_cell_whose_weights_were_repacked_in_some_runs_only_is_told_twice() -> None:
    cells = sweep(Plan(threads=1), Plan(threads=2))
    short = run(20)
    short = short.model_copy(update={"id": "short", "command": (*short.command, "--no-repack")})
    results = cell_results(cells, {0: [run(10), short], 1: [run(30)]}, {})
    names = [(each.name["threads"], each.name["weights repacked"]) for each in results]
    assert sorted(names) == [("1", "no"), ("1", "yes"), ("2", "yes")]
    said = json.loads(as_json(swept_cells(cells, results)))["cells"]
    assert sorted(
        (cell["plan"]["threads"], cell["weights_repacked"], len(cell["runs"])) for cell in said
    ) == [(1, False, 1), (1, True, 1), (2, True, 1)]
    plain = cell_results(cells, {0: [run(10)], 1: [run(30)]}, {})
    assert "weights repacked" not in plain[0].name


def test_a_sweep_is_named_by_its_id_or_as_the_latest_and_repeats_by_their_id() -> None:
    one, two = SweepFolder.begin(sweep(identity="aaaa")), SweepFolder.begin(sweep(identity="bbbb"))
    repeats = two.sweep.model_copy(update={"id": "20261122T000000Z-repeats-b-cccc"})
    SweepFolder.begin(repeats)
    for reference, found in {
        "repeats-b-cccc": repeats,
        "latest-sweep": two.sweep,
        "sweep-b-aaaa": one.sweep,
        "aaaa": one.sweep,
    }.items():
        named = find_sweep(reference)
        assert named is not None
        assert named.sweep == found
    assert find_sweep("latest") is None
    assert find_sweep("aaa") is None, "the end of a run's id may be meant"
    (runs_folder() / "20260101T000000Z-b-m-aaaa").mkdir(parents=True)
    (runs_folder() / "20260101T000000Z-b-m-aaaa" / RUN_FILE).touch()
    with pytest.raises(UsageError, match=f"ambiguous: 20260101T000000Z-b-m-aaaa or {one.sweep.id}"):
        find_sweep("aaaa")


def test_a_sweep_s_runs_are_one_side_of_a_comparison_without_the_warm_ups() -> None:
    journal = SweepFolder.begin(sweep(Plan(), repeats=2, warmups=1))
    for number in range(3):
        each = run(10, number=number)
        store.save(each, runs_folder() / each.id)
        journal.append(SweepEntry(cell=0, round=number, run=each.id))
    names = [folder.name for folder in folders_of("latest-sweep")]
    assert names == [run(10, number=number).id for number in (1, 2)]
    SweepFolder.begin(sweep(identity="zzzz"))
    assert len(folders_of("latest-sweep")) == 2, "the last one has not begun to run"
    with pytest.raises(UsageError, match="none of its runs is on this machine"):
        folders_of("zzzz")


def test_a_repeated_sweep_ends_with_the_command_that_compares_two_of_its_cells() -> None:
    several = sweep(Plan(threads=1), Plan(threads=2), Plan(threads=4), repeats=4)
    rates = {
        cell: [run(tps, number=number) for number in range(4)]
        for cell, tps in enumerate((10, 30, 20))
    }
    results = cell_results(several, rates, {})
    assert comparison_of(several, results) == (f"armload compare {several.id}/1 {several.id}/2")
    # What is not the same work cannot be compared.
    other = sweep(Plan(n_predict=8), Plan(n_predict=9), repeats=4)
    runs = {0: [planned(run(10), n_predict=8)], 1: [planned(run(30), n_predict=9)]}
    assert comparison_of(other, cell_results(other, runs, {})) == ""


@pytest.mark.parametrize(("repeats", "said"), [(1, "1 run per cell"), (3, "3 runs per cell")])
def test_a_sweep_of_few_runs_ends_with_the_repeats_that_a_comparison_needs(
    repeats: int, said: str
) -> None:
    two = sweep(Plan(threads=1), Plan(threads=2), repeats=repeats)
    results = cell_results(two, {0: [run(10)], 1: [run(30)]}, {})
    shown = comparison_of(two, results)
    assert shown.startswith("run the sweep with --repeats 4 first")
    assert said in shown
    assert "armload compare" not in shown


def test_two_names_of_one_model_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    shape = Shape(
        layers=1,
        width=64,
        feed_forward=64,
        heads=2,
        kv_heads=2,
        vocabulary=512,
        context_length=64,
    )
    path = tmp_path / "m.gguf"
    synthesise(shape, path, quantisation="F16", seed=1, progress=Silent())
    with pytest.raises(UsageError, match=r"m\.gguf and \./m\.gguf are the same file"):
        combinations(["m.gguf", "./m.gguf"], [Plan()], Silent())
