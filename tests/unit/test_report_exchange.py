"""Published runs in the formats of others, and on a leaderboard."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest

from armload.analysis.benchmark_file import read_benchmark_file
from armload.analysis.emulation import EmulatorDelayed
from armload.analysis.repeats import known
from armload.analysis.run import Run
from armload.analysis.verdict import Verdict
from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.core.values import as_json
from armload.engines.job import SweepPoint
from armload.report.cells import cells_of
from armload.report.exchange import leaderboard, tables
from armload.report.exchange.document import implausible, results_of
from armload.report.exchange.excerpt import EVERYTHING, excerpt_of
from armload.report.exchange.tables import llama_bench
from armload.report.run_words import median_range
from tests.unit.pages import HOSTILE, Page
from tests.unit.published import talkative_run
from tests.unit.runs import failed_run, planned, quick_run
from tests.unit.sweeps import Q4, Q8, made_run

FIELDS = """
build_commit build_number cpu_info gpu_info backends model_filename model_type model_size
model_n_params n_batch n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers
n_cpu_moe split_mode main_gpu no_kv_offload flash_attn devices tensor_split tensor_buft_overrides
load_mode lazy_mode embeddings no_op_offload no_host repack fit_target fit_min_ctx n_prompt n_gen
n_depth test_time avg_ns stddev_ns avg_ts stddev_ts samples_ns samples_ts
"""
"""Of ``llama-bench -o json`` in the pinned release, in its order."""


def test_a_table_for_an_issue_has_a_row_for_each_cell_and_what_it_was_measured_with() -> None:
    runs = [excerpt_of(made_run(model, 4, repeat=n)) for model in (Q4, Q8) for n in range(5)]
    lines = tables.markdown([*runs, excerpt_of(failed_run())]).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert len({len(row) for row in rows}) == 1
    assert set("".join(rows[1])) == set(":-")
    first, second, failed = sorted(rows[2:], key=lambda row: row[-1] != "valid")
    assert first[1:5] == ["llama-1.24B-Q4_0", "770.9 MB", "4", "8 + 32"]
    assert float(first[7].partition(" ")[0]) == pytest.approx(6.97, abs=0.2)
    assert re.fullmatch(r"1[34]\d ms \(1[34]\d–1[45]\d ms\)", first[8])
    assert (first[10], second[10], failed[10]) == ("5/5", "5/5", "0/1")
    assert [first[11], second[11], failed[11]] == ["valid", "valid", "failed"]
    assert "" in lines
    facts = "\n".join(lines[lines.index("") :])
    assert "- llama-completion, llama.cpp b7000 from llama-cpp-python 0.3.36, zig 0.15.2" in facts
    assert "- 1 of 11 runs not valid: The program failed: illegal instruction." in facts
    assert "kernel 6.12.48-cloud-arm64, 8 cores, 2.1 GB of memory" in facts
    assert f"`{Q4.sha256}`" in facts


def test_an_emulated_board_is_not_published_as_one_with_its_cpu() -> None:
    run = quick_run()
    emulated = run.board.model_copy(update={"device": "linux,dummy-virt"})
    board = excerpt_of(run.model_copy(update={"board": emulated}), ()).board
    assert board.name.startswith(f"emulated-{run.board.target}")
    assert board.device == "linux,dummy-virt"
    assert excerpt_of(run.model_copy(update={"board": board}), ()).board.name.startswith(
        "emulated-"
    )
    assert not excerpt_of(run, ()).board.name.startswith("emulated-")


def test_runs_whose_prompts_were_left_out_are_pooled_only_if_these_are_equally_long() -> None:
    def run(words: str, tokens: int, repeat: int) -> Run:
        base = planned(quick_run(), prompt=words)
        prefill, *others = base.steps
        prefill = prefill.model_copy(update={"tokens": tokens, "prompt_tokens": tokens})
        named = {"id": f"{base.id[:-4]}{tokens:02x}{repeat:02x}", "steps": (prefill, *others)}
        return excerpt_of(base.model_copy(update=named))

    runs = [run("one", 8, 0), run("one", 8, 1), run("a longer one", 16, 0)]
    rows = tables.markdown(runs).splitlines()[2:4]
    assert [row.split(" | ")[4] for row in rows] == ["8 + 32", "16 + 32"]
    assert [row.split(" | ")[10][-1] for row in rows] == ["2", "1"]


def test_a_line_of_csv_has_one_run_with_units_and_no_formula() -> None:
    runs = [excerpt_of(made_run()), excerpt_of(failed_run()), excerpt_of(talkative_run())]
    rows = list(csv.DictReader(io.StringIO(tables.csv(runs), newline="")))
    assert [row["id"] for row in rows] == [run.id for run in runs]
    times = runs[0].summary.token_s
    assert times is not None
    assert float(rows[0]["token_p50_s"]) == times.p50
    assert rows[0]["is_valid"] == "True"
    assert (rows[1]["decode_tps"], rows[1]["is_valid"]) == ("", "False")
    assert rows[1]["findings"] == "failed"
    assert rows[1]["reasons"] == "The program failed: illegal instruction."
    assert rows[2]["governors"] == "schedutil"
    assert (rows[2]["power_sees"], rows[2]["subtracts_idle"]) == ("wall", "False")
    assert not any(text.startswith(("=", "+", "-", "@")) for row in rows for text in row.values())


def test_llama_bench_fields_are_those_of_its_own_output_and_read_as_such(tmp_path: Path) -> None:
    runs = [excerpt_of(made_run(Q4, 4, repeat=n), ["model"]) for n in range(5)]
    path = tmp_path / "bench.json"
    path.write_text(llama_bench(runs))
    tests = json.loads(path.read_text())
    assert [list(test) for test in tests] == [FIELDS.split()] * 2
    prompt, decode = tests
    assert [(test["n_prompt"], test["n_gen"], test["n_depth"]) for test in tests] == [
        (8, 0, 0),
        (0, 31, 8),
    ]
    assert (decode["build_commit"], decode["build_number"]) == ("b7000", 7000)
    assert (decode["model_filename"], decode["n_threads"]) == (Q4.name, 4)
    assert decode["samples_ns"] == [round((run.summary.decode_s or 0) * 1e9) for run in runs]
    assert decode["avg_ts"] == pytest.approx(1e9 * 31 / decode["avg_ns"], rel=0.01)
    assert prompt["stddev_ts"] > 0
    figures = read_benchmark_file(path)
    assert len(figures) == 10
    read = [each.decode_tps for each in figures if each.decode_tps]
    assert read == pytest.approx([run.summary.decode_tps for run in runs])


def test_what_has_no_tokens_is_no_test_of_llama_bench() -> None:
    assert json.loads(llama_bench([excerpt_of(failed_run())])) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, runs in {
        "slow": [made_run(Q8, 4, repeat=n, board="attic") for n in range(4)],
        "fast": [made_run(Q4, 4, repeat=n) for n in range(4)],
        "throttled": [made_run(Q4, 8, throttled=True)],
        "failed": [failed_run()],
    }.items():
        results = results_of([excerpt_of(run, EVERYTHING) for run in runs])
        (tmp_path / f"{name}.json").write_text(as_json(results))
    return tmp_path


def test_a_leaderboard_ranks_valid_results_by_their_median(folder: Path, tmp_path: Path) -> None:
    documents = leaderboard.read_folders([folder], Silent())
    written = leaderboard.write_leaderboard(documents, tmp_path / "site")
    page = Page(written.page.read_text())
    assert page.rows == 4
    assert [str(row["verdict"]).partition(" (")[0] for row in written.table] == [
        *("valid", "valid", "not valid", "failed")
    ]
    medians = [row["token_p50_s"] for row in written.table]
    assert medians[0] < medians[1]  # type: ignore[operator]
    assert medians[2] < medians[1]  # type: ignore[operator]
    assert medians[3] == "-"
    assert re.search(r"1[34]\d ms 1[34]\d–1[45]\d ms", page.shown)
    assert "3 models on 3 boards" in written.headline
    assert "8 + 32" in page.shown
    assert page.links == [f"./results/{name}.json" for name in sorted(documents)]
    for link in page.links:
        again = leaderboard.read_folders([tmp_path / "site" / link], Silent())
        assert list(again.values()) == [documents[Path(link).stem]]


def test_a_leaderboard_runs_no_script_but_its_own_and_shows_no_html(
    folder: Path, tmp_path: Path
) -> None:
    content = json.loads((folder / "fast.json").read_text())
    for run in content["runs"]:
        run["board"]["name"] = run["board"]["device"] = run["before"]["kernel"] = HOSTILE
        run["binary"]["source"] = run["binary"]["engine_commit"] = HOSTILE
    (folder / f"{HOSTILE.replace('/', '')}.json").write_text(json.dumps(content))
    written = leaderboard.write_leaderboard(
        leaderboard.read_folders([folder], Silent()), tmp_path / "site"
    )
    text = written.page.read_text()
    page = Page(text)
    assert len(page.scripts) == 1
    assert "alert(" not in page.scripts[0]
    assert "img" not in page.tags
    assert all(re.fullmatch(r"\./results/[A-Za-z0-9._-]+\.json", link) for link in page.links)
    assert "default-src 'none'" in text


def test_one_malformed_document_does_not_stop_the_others(
    folder: Path,
) -> None:
    said: list[str] = []

    class Telling(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    text = (folder / "fast.json").read_text()
    (folder / "half.json").write_text(text[: len(text) // 2])
    assert set(leaderboard.read_folders([folder], Telling())) == {
        "fast",
        "slow",
        "throttled",
        "failed",
    }
    assert len(said) == 1
    assert "half.json" in said[0]
    with pytest.raises(DataError, match=r"half\.json"):
        leaderboard.read_folders([folder / "half.json"], Silent())
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no \.json file"):
        leaderboard.read_folders([folder / "empty"], Silent())
    with pytest.raises(UsageError, match="There is no folder or file"):
        leaderboard.read_folders([folder / "nowhere"], Silent())


def test_the_same_result_in_two_documents_is_ranked_once(folder: Path, tmp_path: Path) -> None:
    (folder / "again.json").write_text((folder / "fast.json").read_text())
    documents = leaderboard.read_folders([folder], Silent())
    table = leaderboard.write_leaderboard(documents, tmp_path / "site").table
    assert len(table) == 4


def test_a_single_result_is_counted_in_the_singular(tmp_path: Path) -> None:
    results = results_of([excerpt_of(quick_run())])
    (tmp_path / "one.json").write_text(as_json(results))
    documents = leaderboard.read_folders([tmp_path / "one.json"], Silent())
    written = leaderboard.write_leaderboard(documents, tmp_path / "site")
    assert written.headline == "1 result: 1 model on 1 board"
    assert written.figures == ()


def test_a_run_has_the_same_interval_in_show_and_export() -> None:
    run = quick_run()
    found = cells_of([run])[0].per_token_s
    times = run.summary.token_s
    assert found is not None
    assert times is not None
    assert (found.value, found.low, found.high) == pytest.approx(
        (times.p50, times.p50_low, times.p50_high)
    )
    _, _, bounds = median_range(run).partition("95% CI ")
    assert f"({bounds.replace(' ms to ', '–')})" in tables.markdown([run])


def test_repeats_have_the_same_interval_in_show_and_export() -> None:
    place = SweepPoint(sweep="repeats", cell=0, round=0, precision=0.05)
    runs = [
        made_run(repeat=number).model_copy(update={"place": place, "id": f"r{number}"})
        for number in range(7)
    ]
    few = cells_of(runs[:3])[0].per_token_s
    assert few is not None
    assert few.high == math.inf
    found, together = cells_of(runs)[0].per_token_s, known(runs)
    assert found is not None
    assert together is not None
    assert together.interval_s is not None
    assert (found.value, found.low, found.high) == (
        together.median_s,
        together.interval_s.low,
        together.interval_s.high,
    )


def test_one_run_is_told_in_the_singular_why_it_is_not_valid() -> None:
    assert "\n- The run is not valid: The program failed" in tables.markdown(
        [excerpt_of(failed_run())]
    )


def test_reasons_that_differ_in_figures_alone_are_one_line_of_an_export() -> None:
    verdicts = [
        Verdict.of([EmulatorDelayed(cpu_share=share, cores=2, load=40.0, board_cores=2)])
        for share in (0.05, 0.06)
    ]
    runs = [
        quick_run().model_copy(update={"id": f"r{number}", "verdict": each})
        for number, each in enumerate(verdicts)
    ]
    (line,) = [
        each for each in tables.markdown(runs).splitlines() if "not valid: Contended" in each
    ]
    assert "only 5% of the CPU time" in line
    assert line.startswith("- 2 of 2 runs not valid: ")


@pytest.mark.parametrize(("cores", "faults"), [(-1, 2), (1, 0), (4096, 0), (4097, 1)])
def test_a_board_of_another_document_has_a_possible_number_of_cores(
    cores: int, faults: int
) -> None:
    run = quick_run()
    board = run.board.model_copy(update={"cores": cores})
    assert len(list(implausible(run.model_copy(update={"board": board})))) == faults
