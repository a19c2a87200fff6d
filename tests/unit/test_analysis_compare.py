"""Two sides are compared where they did the same work, and told apart where they did not."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from armload.analysis import pairing
from armload.analysis.benchmark_file import read_benchmark_file
from armload.analysis.compare import compare
from armload.analysis.comparison import Comparison
from armload.analysis.comparison_findings import (
    EnergyMixed,
    EnergyPerToken,
    Excluded,
    OnlyOneSide,
)
from armload.analysis.figures import DECODE
from armload.analysis.measurement import measurement_of
from armload.analysis.precision import TooFewRepeats
from armload.analysis.ratios import times, times_interval
from armload.analysis.run import Run
from armload.analysis.verdict import Verdict
from armload.boards.power import EnergyBasis
from armload.core.errors import UsageError
from armload.engines.job import ModelRecord, Workstation
from armload.engines.measurement import Measurement
from armload.report.comparison import boards_table, each_once
from armload.report.exchange.tables import llama_bench
from tests.unit.runs import failed_run, quick_run, storage_run
from tests.unit.sweeps import Q4, Q8, made_run
from tests.unit.test_analysis_benchmark_file import LLAMA_BENCH, LLM_DEMO


def repeats(
    label: str, count: int, times: float = 1.0, run: Run | None = None
) -> list[Measurement]:
    """Return figures of runs that differ by 1%, all of them so many times as slow."""
    chance = random.Random(label)
    base = measurement_of(run or quick_run())
    assert base.decode_tps is not None
    found = []
    for number in range(count):
        level = times * chance.gauss(1, 0.01)
        found.append(
            base.model_copy(
                update={
                    "name": f"{label}{number}",
                    "token_s": tuple(level * each for each in base.token_s),
                    "decode_tps": base.decode_tps / level,
                }
            )
        )
    return found


def one(a: list[Measurement], b: list[Measurement]) -> Comparison:
    (compared,) = compare(a, b)
    return compared


def changed(run: Run, **plan: object) -> Run:
    assert run.plan is not None
    return run.model_copy(update={"id": "other", "plan": run.plan.model_copy(update=plan)})


@pytest.mark.parametrize(
    ("times", "finding"), [(1.0, "not significant"), (1.05, "slower"), (0.95, "faster")]
)
def test_the_finding_follows_the_interval(times: float, finding: str) -> None:
    compared = one(repeats("a", 6), repeats("b", 6, times))
    assert compared.finding == finding
    decode = compared.figures[0]
    assert decode.key == "decode"
    assert decode.ratio.unit == "runs"
    assert decode.ratio.low <= times <= decode.ratio.high


def test_a_measure_of_a_spread_is_not_called_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = replace(DECODE, less="steadier", more="less steady")
    monkeypatch.setattr(pairing, "MEASURES", (spread,))
    a = repeats("a", 6)
    for level, said in ((0.95, "steadier"), (1.05, "less steady")):
        compared = one(a, repeats("b", 6, level))
        assert f"B is {said}: " in compared.sentence
        assert compared.figures[0].short_finding(compared.finding) == said


def test_measurement_of_a_run_are_its_own() -> None:
    run = quick_run()
    found = measurement_of(run)
    assert len(found.token_s) == 31
    assert found.decode_tps == run.summary.decode_tps
    assert found.work.prompt_tokens == 8
    assert found.work.kv_type == "f16/f16"
    assert found.garbage == ""


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (changed(quick_run(), n_predict=64), "output tokens (n_predict): A 32, B 64"),
        (changed(quick_run(), prompt="Hello"), "'Hello'"),
        (changed(quick_run(), temperature=0.8), "A temperature 0, seed 1, B temperature 0.8"),
    ],
)
def test_what_differs_in_the_work_is_said(other: Run, word: str) -> None:
    base = changed(quick_run(), context_tokens=512).model_copy(update={"id": "base"})
    assert other.plan is not None
    if other.plan.context_tokens is None:
        other = other.model_copy(
            update={"plan": other.plan.model_copy(update={"context_tokens": 512})}
        )
    compared = one([measurement_of(base)], [measurement_of(other)])
    assert compared.finding == "not comparable"
    assert any(word in each for each in compared.obstacles), compared.obstacles


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (changed(quick_run(), context_tokens=4096), "context: A 512, B 4096"),
        (changed(quick_run(), extra=("-ctk", "q8_0")), "KV cache type: A f16/f16, B q8_0/f16"),
        (changed(quick_run(), extra=("--cache-type-v=q4_0",)), "A f16/f16, B f16/q4_0"),
        (
            quick_run().model_copy(
                update={"board": quick_run().board.model_copy(update={"name": "kitchen"})}
            ),
            "board: A virtual-dayu200, B kitchen",
        ),
        (
            quick_run().model_copy(
                update={"model": ModelRecord(name="q8.gguf", sha256="e" * 64, size_bytes=1)}
            ),
            f"model: A {quick_run().model.name}, B q8.gguf",
        ),
    ],
)
def test_two_subjects_of_the_same_work_are_compared_and_it_is_said_what_they_differ_in(
    other: Run, said: str
) -> None:
    base = changed(quick_run(), context_tokens=512)
    assert other.plan is not None
    if other.plan.context_tokens is None:
        other = changed(other, context_tokens=512)
    compared = one(repeats("a", 4, run=base), repeats("b", 4, 1.2, run=other))
    assert compared.finding == "slower"
    assert not compared.obstacles
    assert [said in each for each in compared.subjects] == [True]
    assert compared.sentence.endswith(f"The sides differ in {compared.subjects[0]}.")


def test_sweeps_of_two_models_are_compared_plan_by_plan() -> None:
    def sweep(model: ModelRecord) -> list[Measurement]:
        runs = (made_run(model, threads, repeat=n) for threads in (1, 2, 4) for n in range(4))
        return [measurement_of(run) for run in runs]

    found = compare(sweep(Q4), sweep(Q8))
    assert [each.a.settings["threads"] for each in found] == [1, 2, 4]
    for each in found:
        assert each.finding == "slower"
        assert each.a.settings["threads"] == each.b.settings["threads"]
        assert each.subjects == [f"model: A {Q4.name}, B {Q8.name}"]


def test_energy_is_noted_and_what_was_measured_otherwise_is_left_out_and_said() -> None:
    wall, board = EnergyBasis(sees="wall"), EnergyBasis(sees="board")
    net = EnergyBasis(sees="wall", subtracts_idle=True)

    def drawing(label: str, *energies: tuple[float, EnergyBasis]) -> list[Measurement]:
        return [
            one.model_copy(update={"joules_per_token": joules, "energy_basis": basis})
            for one, (joules, basis) in zip(repeats(label, len(energies)), energies, strict=True)
        ]

    a = drawing("a", (3.0, wall), (3.2, wall), (9.0, board), (0.5, net), (3.4, wall))
    b = drawing("b", (1.6, wall), (1.6, wall))
    found = one(a, b).findings
    assert EnergyPerToken(a_j=3.2, b_j=1.6, a_basis=wall, b_basis=wall) in found
    assert [each for each in found if isinstance(each, EnergyMixed)] == [
        EnergyMixed(side="A", basis=wall, left_out=2)
    ]
    without = one(a, repeats("b", 2)).findings
    assert not [each for each in without if isinstance(each, EnergyPerToken)]


def test_two_boards_stand_side_by_side_and_one_does_not() -> None:
    found = []
    for board in ("kitchen", "cellar"):
        run = made_run(Q4, 4, board=board)
        (one,) = compare(repeats("a", 5, run=run), repeats("b", 5, 1.3, run=run))
        assert boards_table([one]) is None
        found.append(one)
    table = boards_table(found)
    assert table is not None
    assert len(table.rows) == 2


def test_a_not_comparable_pair_still_shows_its_ratio() -> None:
    compared = one([measurement_of(quick_run())], [measurement_of(storage_run())])
    assert compared.finding == "not comparable"
    assert compared.figures[0].ratio.ratio > 100
    assert re.search(r"For reference: B takes .*, [1-9]\d\d× A's time\.", compared.sentence)


def test_texts_that_continue_different_prompts_are_not_compared() -> None:
    a = measurement_of(quick_run()).model_copy(update={"text": "One text"})
    b = a.model_copy(update={"name": "b", "text": "Another text"})
    assert any("text differs" in said for said in one([a], [b]).notes)
    other = b.model_copy(update={"work": b.work.model_copy(update={"prompt": "Hello"})})
    assert not any("text differs" in said for said in one([a], [other]).notes)


@pytest.mark.parametrize("extra", [("-b", "64"), ("--poll", "0")])
def test_another_way_to_do_the_same_work_is_compared_and_noted(extra: tuple[str, ...]) -> None:
    compared = one(
        [measurement_of(quick_run())], [measurement_of(changed(quick_run(), extra=extra))]
    )
    assert compared.finding == "not significant"
    assert f"Options: A none, B {' '.join(extra)}." in compared.notes


def test_runs_whose_weights_were_repacked_are_no_repeats_of_others() -> None:
    repacked = repeats("a", 4)
    not_repacked = [
        each.model_copy(update={"method": each.method.model_copy(update={"repacked": False})})
        for each in repeats("b", 4, 1.1)
    ]
    alone, other = compare(repacked, [*repeats("c", 4), *not_repacked])
    assert alone.finding == "not significant"
    assert other.findings == (OnlyOneSide(side="B"),)
    assert "weights repacked: A yes, B no" in other.obstacles
    compared = one(repacked, not_repacked)
    assert compared.finding == "slower"
    assert any("Weights repacked: A yes, B no, so" in note for note in compared.notes)


@pytest.mark.parametrize(
    ("words", "extra", "known"),
    [
        ((), (), "yes"),
        (("--no-repack",), (), "no"),
        (("--no-repack",), ("-nr",), "no"),
        (("--no-repack", "--repack"), ("--repack",), "yes"),
    ],
)
def test_whether_weights_were_repacked_stands_in_the_command_of_old_runs_too(
    words: tuple[str, ...], extra: tuple[str, ...], known: str
) -> None:
    run = changed(quick_run(), extra=extra)
    method = measurement_of(run.model_copy(update={"command": (*run.command, *words)})).method
    assert (method.repacked, method.options) == (known == "yes", "")


def test_a_disturbed_repeat_is_left_out_and_named_where_others_are_not_disturbed() -> None:
    disturbed = {"doubts": ("Contended.",), "is_judged": False, "is_disturbed": True}
    slow = measurement_of(quick_run()).model_copy(
        update={"name": "b9", "decode_tps": 1.0, **disturbed}
    )
    compared = one(repeats("a", 4), [*repeats("b", 4), slow])
    assert compared == one(repeats("a", 4), repeats("b", 4)).model_copy(
        update={"findings": (Excluded(side="B", names=("b9",)),)}
    )
    alone = one(repeats("a", 4), [slow])
    assert alone.doubts == ["b9: Contended."]
    assert alone.finding == "inconclusive"


def test_repeats_that_are_merely_imprecise_are_judged() -> None:
    imprecise = Verdict.of([TooFewRepeats(runs=3, needed_runs=6)])
    run = quick_run().model_copy(update={"verdict": imprecise})
    found = measurement_of(run)
    assert (found.doubts, found.is_judged) == (imprecise.reasons, True)
    sides = (
        [found.model_copy(update={"name": f"{side}{number}"}) for number in range(6)]
        for side in "ab"
    )
    compared = one(*sides)
    assert (compared.finding, len(compared.doubts)) == ("not significant", 12)


def test_garbage_is_never_the_faster_one() -> None:
    quick = measurement_of(quick_run(text="," * 60).model_copy(update={"id": "other"}))
    compared = one([measurement_of(quick_run())], [quick])
    assert compared.finding == "not comparable"
    assert "repeated character" in compared.sentence
    again = quick.model_copy(update={"name": "again"})
    said = one([measurement_of(quick_run())], [quick, again]).sentence
    assert said.count("repeated character") == said.count("B: other, again: The text ends") == 1
    assert ".." not in said


def test_a_run_that_failed_is_not_comparable() -> None:
    failed = failed_run().model_copy(update={"id": "other"})
    compared = one([measurement_of(quick_run())], [measurement_of(failed)])
    assert compared.finding == "not comparable"
    assert "SIGILL" in compared.sentence


def test_times_that_cannot_be_give_no_ratio() -> None:
    run = quick_run()
    summary = run.summary.model_copy(
        update={"decode_tps": 0.0, "prefill_tps": -1.0, "ttft_s": float("nan")}
    )
    steps = tuple(step.model_copy(update={"end_ns": step.start_ns}) for step in run.steps)
    odd = run.model_copy(update={"id": "odd", "summary": summary, "steps": steps})
    compared = one([measurement_of(run)], [measurement_of(odd)])
    assert compared.finding == "not comparable"
    assert "no metric in common" in compared.sentence


def test_a_text_that_departs_is_noted() -> None:
    run = quick_run()
    other = run.model_copy(update={"id": "other", "text": run.text[:30] + "else"})
    notes = one([measurement_of(run)], [measurement_of(other)]).notes
    assert any("differs" in note and "character 30" in note for note in notes)


def test_plans_are_compared_one_by_one_and_repeats_pooled() -> None:
    short, long = quick_run(tokens=16), quick_run(tokens=32)
    a = repeats("a", 4, run=short) + repeats("aa", 4, run=long)
    b = repeats("b", 4, 1.1, run=long) + repeats("bb", 4, run=short)
    found = {each.a.settings["output_tokens"]: each for each in compare(a, b)}
    assert found[16].finding == "not significant"
    assert found[32].finding == "slower"
    assert [len(each.b.names) for each in found.values()] == [4, 4]


def test_a_plan_that_one_side_lacks_is_told_and_compares_to_nothing() -> None:
    a = repeats("a", 4, run=quick_run(tokens=16)) + repeats("aa", 4, run=quick_run(tokens=32))
    b = repeats("b", 4, run=quick_run(tokens=16)) + repeats("bb", 4, 3.0, run=quick_run(tokens=24))
    found = compare(a, b)
    assert [each.finding for each in found] == [
        "not significant",
        "not comparable",
        "not comparable",
    ]
    assert [each.obstacles for each in found[1:]] == [
        ["only A has runs with this configuration", "output tokens (n_predict): A 32, B 16"],
        ["only B has runs with this configuration", "output tokens (n_predict): A 16, B 24"],
    ]


def test_a_number_of_threads_that_one_side_lacks_is_named() -> None:
    both, alone = repeats("a", 1), repeats("aa", 1)
    method = alone[0].method.model_copy(update={"threads": 4})
    found = compare([*both, alone[0].model_copy(update={"method": method})], repeats("b", 1))
    assert found[1].obstacles == [
        "only A has runs with this configuration",
        "threads: A 4, B 2",
    ]


def test_a_run_is_not_compared_with_itself_nor_counted_twice() -> None:
    figures = measurement_of(quick_run())
    with pytest.raises(UsageError, match="is on both sides"):
        compare([figures], [figures])
    with pytest.raises(UsageError, match="twice"):
        compare([figures, figures], repeats("b", 1))


def test_two_programs_on_one_side_are_no_repeats() -> None:
    a = repeats("a", 2)
    other = a[1].model_copy(update={"method": a[1].method.model_copy(update={"engine": "another"})})
    with pytest.raises(UsageError, match="mixes runs of different programs"):
        compare([a[0], other], repeats("b", 1))


def test_a_run_and_llama_bench_are_compared_by_what_both_have(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    tests = [
        LLAMA_BENCH | {"n_prompt": 512, "n_gen": 0},
        LLAMA_BENCH | {"n_gen": 32, "type_v": "f16"},
    ]
    path.write_text(json.dumps(tests))
    (compared,) = compare([measurement_of(quick_run())], read_benchmark_file(path))
    assert [each.key for each in compared.figures] == ["decode"]
    assert compared.figures[0].ratio.unit == "none"
    assert compared.finding == "faster"
    assert any("Cannot verify" in note for note in compared.notes)
    assert "Context depth (tokens): A 8, B 0." in compared.notes
    assert len(compared.b.names) == 5


PREFILL = {"n_prompt": 512, "n_gen": 0}


@pytest.mark.parametrize("test", [{}, PREFILL], ids=["decode", "prefill"])
def test_tests_at_different_depths_are_not_the_same_work(
    tmp_path: Path, test: dict[str, int]
) -> None:
    def at(name: str, depth: int) -> list[Measurement]:
        path = tmp_path / name
        path.write_text(json.dumps([LLAMA_BENCH | test | {"n_depth": depth}]))
        return read_benchmark_file(path)

    compared = one(at("a", 0), at("b", 4096))
    assert compared.finding == "not comparable"
    assert compared.obstacles == ["context depth (tokens): A 0, B 4096"]
    assert one(at("a", 4096), at("b", 4096)).finding == "not significant"


def test_prefill_of_a_run_is_not_compared_with_a_test_that_begins_deeper(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps([LLAMA_BENCH | {"n_prompt": 8, "n_gen": 0, "n_depth": 4096}]))
    compared = one([measurement_of(quick_run())], read_benchmark_file(path))
    assert "context depth (tokens): A 0, B 4096" in compared.obstacles


def test_exported_runs_with_prompts_of_different_lengths_are_not_comparable(
    tmp_path: Path,
) -> None:
    def exported(prompt_tokens: int) -> list[Measurement]:
        base = quick_run()
        summary = base.summary.model_copy(update={"prefill_tokens": prompt_tokens})
        path = tmp_path / f"{prompt_tokens}.json"
        path.write_text(llama_bench([base.model_copy(update={"summary": summary})]))
        return [each for each in read_benchmark_file(path) if each.decode_tps]

    compared = one(exported(8), exported(4096))
    assert compared.obstacles == ["context depth (tokens): A 8, B 4096"]


def test_two_files_of_other_engines_are_compared(tmp_path: Path) -> None:
    one_path, other_path = tmp_path / "a.txt", tmp_path / "b.txt"
    one_path.write_text(LLM_DEMO)
    other_path.write_text(LLM_DEMO.replace("11.00", "9.00"))
    compared = one(read_benchmark_file(one_path), read_benchmark_file(other_path))
    assert [each.finding for each in compared.figures] == ["slower", "not significant"]


@pytest.mark.parametrize("runs", [1, 5])
def test_medians_over_a_part_of_the_tokens_say_over_which(runs: int) -> None:
    whole = repeats("a", runs)
    short = [
        each.model_copy(update={"name": f"short-{each.name}", "token_s": each.token_s[:9]})
        for each in whole
    ]
    decode = one(whole, short).figures[0]
    assert decode.heading == "decode, per token (first 9)"
    assert decode.a == decode.b
    alike = one(whole, repeats("b", runs))
    assert alike.figures[0].heading == "decode, per token"


def test_a_doubt_with_different_figures_is_told_once_in_full() -> None:
    doubts = [(name, f"Contended: 3{name} times.") for name in "123"]
    assert list(each_once(doubts)) == [
        "1: Contended: 31 times.",
        "2, 3: the same problem, with different figures.",
    ]


def test_more_repeats_are_advised_where_a_small_difference_would_not_be_seen() -> None:
    assert "4 or more runs per side" in one(repeats("a", 1), repeats("b", 1)).advice
    wild = [
        each.model_copy(update={"token_s": tuple(t * (0.94 + n / 25) for t in each.token_s)})
        for n, each in enumerate(repeats("a", 4))
    ]
    said = one(wild, repeats("b", 4)).advice
    assert "runs per side are needed to detect a difference of 3%" in said
    assert one(repeats("a", 6), repeats("b", 6, 1.1)).advice == ""


@pytest.mark.parametrize(
    ("workstation", "helps"),
    [
        (None, "the board, fix its clock (--governor performance)"),
        (Workstation(cores=2, load=1.5), "the workstation that emulates the board, and repeat"),
    ],
)
def test_where_no_number_of_runs_would_do_what_varies_is_named(
    workstation: Workstation | None, helps: str
) -> None:
    run = quick_run()
    board = run.board.model_copy(update={"workstation": workstation})
    run = run.model_copy(update={"board": board})
    wild = [
        each.model_copy(update={"token_s": tuple(t * (0.5 + n / 3) for t in each.token_s)})
        for n, each in enumerate(repeats("a", 4, run=run))
    ]
    said = one(wild, repeats("b", 4, run=run)).advice
    assert "no practical number of runs would detect a difference of 3%" in said
    assert f"stop other programs on {helps}" in said


@pytest.mark.parametrize(
    ("ratio", "low", "high", "cells"),
    [
        (1.031, 0.95, 1.069, ("1.031×", "0.950–1.069")),
        (0.814, 0.471, 1.28, ("0.814×", "0.471–1.280")),
        (2.728, 1.8, 12.34, ("2.73×", "1.800–12.3")),
        (0.0123, 0.01, 0.015, ("0.0123×", "0.0100–0.0150")),
        (1234.5, 987.6, 2345.6, ("1,234×", "988–2,346")),
    ],
)
def test_every_ratio_and_its_interval_are_written_as_factors(
    ratio: float, low: float, high: float, cells: tuple[str, str]
) -> None:
    assert (times(ratio), times_interval(low, high)) == cells
