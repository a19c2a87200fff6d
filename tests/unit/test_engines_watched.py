"""What a watched program wrote becomes a run, without any figure that nobody measured."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import jsonschema
import pytest

from armload.analysis.compare import compare
from armload.analysis.comparison_findings import PeakMemory, SideDifference, UnequalConditions
from armload.analysis.measurement import measurement_of
from armload.analysis.run import FORMAT, Run
from armload.core.errors import DataError
from armload.engines.job import ModelRecord
from armload.engines.output import Memory
from armload.engines.watched import read
from armload.engines.watched.output import read_output
from armload.engines.watched.pattern import compiled, find
from armload.engines.watched.read import read_watching
from armload.engines.watched.reader import load_reader
from armload.report.table import NewRun, list_table, run_table
from armload.runs import store
from tests.unit.runs import quick_run
from tests.unit.watched import (
    HEAD,
    START_NS,
    WORDS,
    demo_run,
    summary,
    tokens_of,
    watched_job,
    watched_run,
    write_raw,
)

LLM_BENCH = {
    "model": "qwen/config.json",
    "backend": "CPU",
    "threads": 4,
    "results": [
        {"type": "prefill", "prompt_len": 64, "generate_len": 0, "tps": 33.5, "std": 0.1},
        {"type": "decode", "prompt_len": 0, "generate_len": 32, "tps": 7.25, "std": 0.1},
    ],
}


def shown(thing: object) -> str:
    from rich.console import Console

    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


def test_each_write_is_a_token_where_the_counts_agree(tmp_path: Path) -> None:
    run = demo_run(tmp_path)
    count = len(WORDS)
    assert run.text == "".join(f" {word}" for word in WORDS) + "\n"
    assert [step.generated_tokens for step in run.steps] == [1] * (count - 1)
    assert run.steps[0].start_ns == START_NS + 200_000_000
    assert run.summary.token_s is not None
    assert run.summary.token_s.p50 == pytest.approx(0.1)
    assert run.verdict.valid, run.verdict.reasons
    assert run.notes == ()


def test_the_figures_are_the_engine_s_and_the_first_token_is_ours(tmp_path: Path) -> None:
    run = demo_run(tmp_path)
    assert (run.summary.prefill_tokens, run.summary.prefill_s) == (15, 0.5)
    assert (run.summary.prefill_tps, run.summary.decode_tps) == (30.0, 10.0)
    assert run.summary.decode_tokens == len(WORDS)
    assert run.summary.ttft_s == pytest.approx(0.2)  # the second write is the first token
    assert run.summary.wall_s == pytest.approx(0.1 * (len(WORDS) + 3))
    assert run.engine is not None
    assert run.engine.load_ms is None
    assert run.engine.prompt_ms == 500.0


def test_what_is_not_known_stays_none(tmp_path: Path) -> None:
    run = demo_run(tmp_path)
    assert run.plan is None
    assert run.trace is not None
    assert (run.trace.threads, run.trace.engine_commit) == (None, "")
    assert (run.model.parameters, run.model.bytes_per_token) == (None, None)
    assert all(step.involuntary_switches is None for step in run.steps)
    assert run.limit.cause == "unknown"
    assert "2.0 of 2 cores" in run.limit.sentence


def test_the_peak_is_the_highest_that_anybody_saw(tmp_path: Path) -> None:
    run = demo_run(tmp_path / "one")
    assert run.memory == Memory(max_rss_bytes=70_000_000, max_vms_bytes=90_000_000)
    seen = Memory(max_rss_bytes=80_000_000, max_vms_bytes=85_000_000)
    more = watched_run(tmp_path / "two", [b"text of some length"], reads="text", seen=seen)
    assert more.memory == Memory(max_rss_bytes=80_000_000, max_vms_bytes=90_000_000)


def test_without_an_agreement_there_are_no_times_per_token_and_it_is_said(tmp_path: Path) -> None:
    joined = b"".join(tokens_of(WORDS))
    run = watched_run(tmp_path, [HEAD + joined[:20], joined[20:], summary(len(WORDS), 1.9)])
    assert run.steps == ()
    assert run.summary.token_s is None
    assert run.summary.decode_tps == pytest.approx(len(WORDS) / 1.9, abs=0.01)
    assert f"{len(WORDS)} tokens, but printed its answer in 2 writes" in run.notes[0]
    assert run.verdict.valid, run.verdict.reasons


def test_an_end_of_line_behind_the_answer_is_no_token_but_a_token_may_be_one(
    tmp_path: Path,
) -> None:
    tokens = tokens_of(WORDS)
    with_stop = watched_run(tmp_path / "1", [HEAD, *tokens, b"\n", summary(len(tokens) + 1, 2.0)])
    assert len(with_stop.steps) == len(tokens)
    with_more = watched_run(tmp_path / "2", [HEAD, *tokens, b" so", summary(len(tokens), 2.0)])
    assert with_more.steps == ()


def test_times_that_disagree_with_the_engine_s_are_noted(tmp_path: Path) -> None:
    tokens = tokens_of(WORDS)
    run = watched_run(tmp_path, [HEAD, *tokens, b"\n", summary(len(tokens), 0.9)])
    assert len(run.steps) == len(tokens) - 1
    assert "47.4 ms per token, but its writes came every 100 ms" in run.notes[0]


def test_text_of_any_program_has_neither_tokens_nor_speeds(tmp_path: Path) -> None:
    run = watched_run(tmp_path, tokens_of(WORDS), reads="text")
    assert run.steps == ()
    assert (run.summary.decode_tps, run.summary.decode_tokens, run.engine) == (None, None, None)
    assert "its tokens are not counted" in run.notes[0]
    assert run.summary.ttft_s is None, "its first write need not be a token"
    assert run.verdict.valid, run.verdict.reasons


def test_a_program_that_prints_nothing_is_said_to_print_nothing(tmp_path: Path) -> None:
    run = watched_run(tmp_path, [], reads="text")
    assert run.notes[:1] == ("The program printed nothing.",)


def test_llm_bench_fills_the_same_run(tmp_path: Path) -> None:
    said = b"The device supports: i8sdot:1\n" + json.dumps(LLM_BENCH).encode() + b"\n"
    run = watched_run(tmp_path, [said], reads="llm_bench")
    assert (run.summary.prefill_tps, run.summary.prefill_tokens) == (33.5, 64)
    assert (run.summary.decode_tps, run.summary.decode_tokens) == (7.25, 32)
    assert (run.summary.prefill_s, run.summary.decode_s, run.summary.ttft_s) == (None, None, None)
    assert run.text == ""
    assert run.verdict.valid, run.verdict.reasons


def test_of_several_results_none_is_taken_for_the_run_s(tmp_path: Path) -> None:
    results = [*LLM_BENCH["results"], *LLM_BENCH["results"]]  # type: ignore[misc]
    said = json.dumps(LLM_BENCH | {"results": results}).encode()
    run = watched_run(tmp_path, [said], reads="llm_bench")
    assert run.summary.decode_tps is None
    assert "4 results" in run.notes[0]


@pytest.mark.parametrize(
    ("reads", "stdout", "said"),
    [
        ("mnn", b"User: ", "No line of the output matches 'prompt tokens num"),
        ("mnn", b"", "No line of the output matches 'prompt tokens num"),
        ("llm_bench", b"| model | size |\n", "no JSON"),
        ("llm_bench", b'{"results": [{"type": "odd"}]}', "not llm_bench's"),
        ("llm_bench", b'{"model": "m", "results": []}', "no result"),
        ("llm_bench", b"{" * 5000, "no JSON"),
    ],
)
def test_figures_that_lack_make_a_run_that_ended_well_not_valid(
    tmp_path: Path, reads: str, stdout: bytes, said: str
) -> None:
    run = watched_run(tmp_path, [stdout] if stdout else [], reads=reads)
    assert not run.verdict.valid
    assert said in " ".join(run.verdict.reasons)


def test_two_summaries_are_not_mixed() -> None:
    said = read_output(load_reader("mnn"), b"Hello there." + summary(3, 1.0) + summary(4, 1.0))
    assert said.decode_tps is None
    assert "2 reports" in said.notes[0]


def test_what_stands_before_the_answer_is_no_part_of_it() -> None:
    head = b"The device supports: i8sdot:1\nmain, 228, cost time: 9.5 ms\n"
    wheel = b"[MNNLLM] response: text=one\ntwo, stream=1, max_new_tokens=-1\n"
    for before, after in (
        (b"", b""),
        (head, b""),
        (head + HEAD, b""),
        (HEAD + wheel, b"[MNNLLM] response: \n"),
        (HEAD + head + wheel, b"[MNNLLM] response: \n"),
        (HEAD + head + wheel, b""),
    ):
        stdout = before + b"It is so." + after + summary(3, 1.0)
        said = read_output(load_reader("mnn-wheel" if wheel in before else "mnn"), stdout)
        assert said.answer is not None
        assert stdout[slice(*said.answer)] == b"It is so."


def test_bytes_that_are_no_text_are_kept_apart_and_doubted(tmp_path: Path) -> None:
    tokens = [b" so", b"\0", b"\xff\xfe", b" it"]
    run = watched_run(tmp_path, [HEAD, *tokens, summary(4, 0.4)])
    assert len(run.steps) == 3
    assert run.text == " so\0\ufffd\ufffd it"
    assert "not valid UTF-8" in " ".join(run.verdict.reasons)


def test_a_program_that_was_killed_keeps_what_it_wrote(tmp_path: Path) -> None:
    write_raw(tmp_path, [HEAD, *tokens_of(WORDS)])
    content = (tmp_path / "trace.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "trace.jsonl").write_text("".join(content[:-1])[:-9])  # its last line is cut
    noted = read_watching(tmp_path / "trace.jsonl")
    assert (noted.end, len(noted.writes)) == (None, len(WORDS))
    run = watched_run(tmp_path / "again", [HEAD, *tokens_of(WORDS)], status=137)
    assert not run.verdict.valid
    (reason,) = run.verdict.reasons
    assert reason.startswith("killed from outside (SIGKILL)")
    assert run.text.startswith(" The large")


def test_writes_that_were_not_noted_and_a_costly_watch_are_told(tmp_path: Path) -> None:
    run = watched_run(
        tmp_path,
        tokens_of(WORDS),
        reads="text",
        end={"writes_left_out": 9, "watch_cpu_ns": 100_000_000},
    )
    assert "9 further writes were not recorded." in run.notes
    assert any("of one core" in note for note in run.notes)


@pytest.mark.parametrize("whole_writes", [True, False])
def test_a_kernel_that_merges_writes_is_noted(tmp_path: Path, *, whole_writes: bool) -> None:
    run = watched_run(tmp_path, tokens_of(WORDS), reads="text", whole_writes=whole_writes)
    assert any("merges writes" in note for note in run.notes) is not whole_writes


def test_a_line_that_watch_does_not_write_is_named(tmp_path: Path) -> None:
    write_raw(tmp_path, [b"a"])
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write('{"step":1}\n')
    with pytest.raises(DataError, match=r"trace\.jsonl, line 5"):
        read_watching(tmp_path / "trace.jsonl")
    assert read_watching(tmp_path / "none").header is None


def test_the_run_is_kept_loaded_and_fits_the_schema(tmp_path: Path) -> None:
    run = demo_run(tmp_path)
    store.save(run, tmp_path)
    assert store.load(tmp_path) == run
    schema = Path(__file__).parents[2] / "docs" / "schema" / f"run-{FORMAT}.json"
    document = json.loads(run.model_dump_json())
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(document)


def test_the_run_is_shown_without_any_fact_that_is_not_known(tmp_path: Path) -> None:
    run = demo_run(tmp_path)
    table = shown(run_table(run))
    assert "not built by armload" in table
    assert "as reported by the program" in table
    assert "None" not in table
    assert "llm_demo: qwen" in shown(list_table([run]))
    page = NewRun(run=run, folder=tmp_path).files["page"]
    text = page.read_text()
    body = text[: text.index('<script type="application/json"')]
    assert "None" not in body
    assert "qwen/config.json" in body


def test_a_note_stands_in_table_and_page(tmp_path: Path) -> None:
    run = watched_run(tmp_path, [HEAD + b"It is so.", summary(3, 1.0)])
    assert "No times per token" in shown(run_table(run))
    page = NewRun(run=run, folder=tmp_path).files["page"]
    assert "No times per token" in page.read_text()


def test_a_run_without_a_model_or_figures_can_be_shown(tmp_path: Path) -> None:
    nothing = ModelRecord(name="", sha256="", size_bytes=None)
    run = watched_run(tmp_path, [b"hello world"], reads="text", model=nothing)
    assert "None" not in shown(run_table(run))
    line = shown(list_table([run])).splitlines()[-1]
    assert "llm_demo" in line
    assert "100 ms" not in line, "there is no first token"
    page = NewRun(run=run, folder=tmp_path).files["page"]
    text = page.read_text()
    assert "llm_demo ran for" in text
    assert '<dl class="figures">' not in text, "there is none to show"


def comparable(run: Run, *, tokens: int) -> Run:
    """Return one of our own runs on the same board, with as many tokens."""
    assert run.watched is not None
    return quick_run(tokens=tokens, prompt="a prompt of its own")


def test_a_watched_run_compares_with_one_of_ours(tmp_path: Path) -> None:
    tokens = tokens_of([*WORDS, *WORDS[::-1]])
    watched = watched_run(tmp_path, [HEAD, *tokens, b"\n", summary(len(tokens), 3.6)])
    ours = comparable(watched, tokens=len(tokens))
    (found,) = compare([measurement_of(watched)], [measurement_of(ours)])
    assert found.finding == "faster", found.differences
    assert found.figures[0].a == pytest.approx(0.1)
    assert any("Cannot verify" in each for each in found.notes)
    (unequal,) = (each for each in found.findings if isinstance(each, UnequalConditions))
    assert {each.name: (each.a, each.b) for each in unequal.conditions} == {
        "type of the weights": (None, "Q4_0"),
        "prompt": (None, "'a prompt of its own'"),
        "prompt tokens": (15, 8),
        "KV cache type": (None, "f16/f16"),
        "sampling": (None, "temperature 0, seed 1"),
    }
    (memory,) = (each for each in found.findings if isinstance(each, PeakMemory))
    assert (memory.a_bytes, memory.b_bytes) == (70_000_000, 131_000_000)


def test_what_stands_against_a_comparison_is_said(tmp_path: Path) -> None:
    watched = demo_run(tmp_path)
    (found,) = compare([measurement_of(watched)], [measurement_of(comparable(watched, tokens=64))])
    assert found.finding == "not comparable"
    assert found.obstacles == [f"output tokens (n_predict): A {len(WORDS)}, B 64"]
    assert found.advice == f"To compare them, run B with -n {len(WORDS)}."


def test_two_models_of_the_same_foreign_format_are_told_apart(tmp_path: Path) -> None:
    other = ModelRecord(name="llama", sha256="e" * 64, size_bytes=1)
    tokens = tokens_of(WORDS)
    writes = [HEAD, *tokens, b"\n", summary(len(tokens), 1.9)]
    one = measurement_of(demo_run(tmp_path / "one"))
    two = measurement_of(watched_run(tmp_path / "two", writes, model=other))
    (found,) = compare([one], [two.model_copy(update={"name": "other"})])
    assert SideDifference(name="model", role="subject", a="qwen", b="llama") in found.differences


def test_of_much_output_only_the_end_is_read_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_MOST_BYTES", 4096)
    noise = [b"\x1b[2K\rloading tokens num = 1 % " * 40] * 10
    run = watched_run(tmp_path / "end", [*noise, HEAD, b"It is so.", summary(19, 1.9)])
    assert run.summary.decode_tps == pytest.approx(10.0)
    assert (run.text, run.steps, run.summary.ttft_s) == ("", (), None)
    assert "The program printed 12.3 kB; only the last 4 KiB were read" in run.notes[0]
    assert not any("were not recorded" in note for note in run.notes)
    lost = watched_run(tmp_path / "lost", [summary(19, 1.9), *noise])
    assert not lost.verdict.valid
    assert "No line of the output matches" in " ".join(lost.verdict.reasons)


def test_of_a_long_text_the_run_keeps_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_MOST_TEXT_BYTES", 1024)
    run = watched_run(tmp_path, [b"The house by the sea. " * 100], reads="text")
    assert len(run.text) == 1024
    assert any("keeps the first 1 KiB" in note for note in run.notes)


def test_a_reader_that_nobody_asked_for_makes_no_run_invalid(tmp_path: Path) -> None:
    write_raw(tmp_path, tokens_of(WORDS))
    job = watched_job("mnn")
    assert job.watched is not None
    guessed = job.watched.model_copy(update={"is_guessed": True})
    output = read.read_watched(guessed, tmp_path)
    assert output.missing == ""
    assert "No line of the output matches" in output.notes[0]


def test_output_that_comes_in_blocks_has_no_first_token(tmp_path: Path) -> None:
    run = watched_run(tmp_path, [HEAD, b" ".join(tokens_of(WORDS)), summary(len(WORDS), 1.9)])
    assert run.summary.ttft_s is None
    assert run.summary.decode_tokens == len(WORDS)


def test_a_line_for_each_token_gives_each_its_time(tmp_path: Path) -> None:
    line = "🔶 Pred   45 ms Sync    1 ms | Sent   156 kB Recv   313 kB | {}\n"
    tokens = [line.format(f" {word}").encode() for word in WORDS]
    end = f"\nEvaluation\n   nBatches: 32\n    nTokens: 3\n   tokens/s: 5.56 (180.00 ms/tok)\n\
Prediction\n    nTokens: {len(WORDS)}\n   tokens/s: 10.00 (100.00 ms/tok)\n"
    head = b"How is it?\n\xf0\x9f\x94\xb7 Eval  532 ms Sync    8 ms | (3 tokens)\n"
    run = watched_run(tmp_path, [head, *tokens, end.encode()], reads="distributed-llama")
    assert [step.generated_tokens for step in run.steps] == [1] * (len(WORDS) - 1)
    assert run.summary.ttft_s == pytest.approx(0.2)
    assert run.text == "".join(f" {word}" for word in WORDS)
    assert any("root node's alone" in note for note in run.notes)


def test_a_hostile_output_takes_a_time_that_grows_with_its_length_alone() -> None:
    pattern = compiled("load time {load_s:s}\ndecode {decode_s:duration}")
    digits = b"9" * 2000
    lines = b"load time 1 s\n" + b"\r\n" * 1_000_000 + b"decode " + digits + b"s\n"
    (found,) = find(pattern, lines)
    assert found.figures["load_s"].value == 1.0
    assert math.isnan(found.figures["decode_s"].value)
