"""Texts that are embedded: what is planned, predicted, measured and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.analysis.output_doubts import PromptCount, doubts_about_output
from armload.analysis.summary import summarise
from armload.boards.hardware import load_hardware
from armload.core.errors import DataError, UsageError
from armload.deploy.layout import STDOUT_FILE, TRACE_FILE
from armload.engines.embedding import (
    Embedding,
    embedding_need,
    embedding_plan,
    printed_embeddings,
)
from armload.engines.plan import Plan
from armload.engines.trace import Step
from armload.evaluation.similarity import JudgedPair, read_pairs, spearman
from armload.models.gguf import read_outline
from armload.models.model import check_generates, check_pools
from armload.models.tokens import prompt_of
from armload.runs.predicting import predict_from_facts
from armload.runs.texts import embedding_of
from tests.encoders import CONTEXT, RANK, WIDTH, write_bert
from tests.unit.runs import planned, quick_run
from tests.unit.samples import trace


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("encoders") / "bert.gguf")


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("rerankers") / "rank.gguf", pooling=RANK)


def test_a_text_for_an_encoder_counts_the_tokens_that_it_adds(bert: Path) -> None:
    assert len(prompt_of(bert, 16).split()) == 14
    with pytest.raises(UsageError, match="--prompt-tokens 3 or more"):
        prompt_of(bert, 2)


def test_a_plan_fills_every_pass(bert: Path) -> None:
    model, _ = read_outline(bert)
    plan = embedding_plan(Plan(embed=4, prompt_tokens=16, texts=6), model)
    assert (plan.texts, plan.context_tokens) == (8, 64)
    assert embedding_plan(Plan(embed=2), model).texts == 32


@pytest.mark.parametrize(
    "plan",
    [
        Plan(embed=1, prompt="a cat"),
        Plan(embed=1, n_predict=3),
        Plan(embed=1, depth_tokens=64),
        Plan(embed=1, micro_batch_tokens=64),
        Plan(embed=1, prompt_tokens=CONTEXT + 1),
        Plan(embed=1, pooling="rank"),
        Plan(embed=256, texts=1_000_000),
    ],
)
def test_what_no_embedding_has_is_refused(bert: Path, plan: Plan) -> None:
    model, _ = read_outline(bert)
    with pytest.raises(UsageError):
        embedding_plan(plan, model)


def test_rerankers_score_and_nothing_else(reranker: Path) -> None:
    model, _ = read_outline(reranker)
    assert (model.ranks, model.embeds, model.pooling) == (True, False, "rank")
    check_pools(model, "model", "--pooling")
    with pytest.raises(UsageError, match="--pooling rank"):
        check_pools(model, "mean", "--pooling")
    with pytest.raises(DataError, match="ranks texts"):
        check_generates(model)
    check_generates(model, or_embeds=True)


def test_the_embedding_table_of_an_encoder_is_read_by_row(bert: Path) -> None:
    model, header = read_outline(bert)
    tables = sum(
        tensor.size_bytes
        for tensor in header.tensors
        if tensor.name in ("token_embd.weight", "token_types.weight", "position_embd.weight")
    )
    whole = sum(tensor.size_bytes for tensor in header.tensors)
    assert model.bytes_per_token == whole - tables + 3 * 4 * WIDTH


def test_an_encoder_is_predicted_without_a_kv_cache_and_per_text(bert: Path) -> None:
    model, _ = read_outline(bert)
    plan = embedding_of(Plan(prompt_tokens=64), model)
    assert plan.embed == 1
    few, many = (embedding_need(plan.model_copy(update={"embed": n}), model) for n in (1, 8))
    assert few.kv_bytes == many.kv_bytes == 0
    assert many.program_bytes > few.program_bytes
    board = load_hardware("raspberry-pi-5-8gb")
    found = predict_from_facts(board.specs, board.hardware.target, model, plan)
    assert (found.token_s, found.ttft_s, found.verdict) == (None, None, "fits")
    assert found.texts is not None
    assert found.texts.text_s is not None
    longer = predict_from_facts(
        *(board.specs, board.hardware.target, model),
        plan.model_copy(update={"prompt_tokens": 255}),
    )
    assert longer.texts is not None
    assert longer.texts.text_s is not None
    assert longer.texts.text_s.value > found.texts.text_s.value


def test_times_are_of_passes_and_of_texts() -> None:
    steps = [
        Step(
            step=n,
            sequences=2,
            tokens=32,
            prompt_tokens=32,
            generated_tokens=0,
            speculated_tokens=0,
            accepted_tokens=0,
            start_ns=n * 10**9,
            end_ns=n * 10**9 + (n + 1) * 10**8,
            major_faults=0,
            read_bytes=0,
            rss_bytes=1,
            cpu_ns=1,
            involuntary_switches=0,
        )
        for n in range(3)
    ]
    found = summarise(None, steps, texts_at_a_time=2)
    assert found.texts is not None
    assert found.texts.texts == 6
    assert found.texts.texts_per_s == pytest.approx(10.0)
    assert found.median_s == found.texts.text_p50_s == pytest.approx(0.1)
    assert (found.ttft_s, found.token_s, found.decode_tps) == (None, None, None)
    assert found.prefill_tps == pytest.approx(160.0)


@pytest.mark.parametrize(
    ("printed", "rows"),
    [
        (b"[[0.5,1],[0,2]]\n", [[0.5, 1], [0, 2]]),
        (b"[[0.5,1],[0,", []),
        (b"", []),
        (b'{"a": 1}', []),
    ],
)
def test_embeddings_are_read_as_they_are_printed(printed: bytes, rows: list[list[float]]) -> None:
    assert list(printed_embeddings(printed)) == rows


def test_shipped_pairs_cover_all_scores() -> None:
    pairs = read_pairs("")
    assert {pair.score for pair in pairs} == set(range(6))
    assert len({pair.a for pair in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "holds no pairs"), ('{"a": "x"}', "b"), ("x", "not a line of JSON"), ("[1]", "pairs")],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read_pairs(str(path))


def test_ranks_agree_or_not() -> None:
    def judged(*similarities: float) -> list[JudgedPair]:
        scores = (0, 1, 1, 3)
        return [
            JudgedPair(a="x", b="y", score=score, similarity=similarity)
            for score, similarity in zip(scores, similarities, strict=True)
        ]

    assert spearman(judged(0.1, 0.2, 0.2, 0.9)) == pytest.approx(1.0)
    assert spearman(judged(0.9, 0.2, 0.2, 0.1)) == pytest.approx(-1.0)
    assert spearman(judged(0.5, 0.5, 0.5, 0.5)) is None


def test_texts_and_tokens_that_are_missing_make_a_run_not_valid(tmp_path: Path) -> None:
    run = planned(quick_run(), embed=2, texts=2, prompt_tokens=16, prompt="")
    header = trace()
    step = header.start_ns
    line = {
        "step": 0,
        "tokens": 30,
        "prompt_tokens": 30,
        "generated_tokens": 0,
        "start_ns": step,
        "end_ns": step + 500,
        "major_faults": 0,
        "rss_bytes": 1,
        "cpu_ns": 1,
    }
    (tmp_path / TRACE_FILE).write_text(f"{header.model_dump_json()}\n{json.dumps(line)}\n")
    for rows, is_missing in ((b"[[1,2],[3,4]]", False), (b"[[1,2]]", True)):
        (tmp_path / STDOUT_FILE).write_bytes(rows)
        output = Embedding.read(run, tmp_path)
        assert bool(output.missing) is is_missing
    short = PromptCount(requested_tokens=32, processed_tokens=30)
    assert short in doubts_about_output(run, output)
    whole = planned(run, prompt_tokens=15)
    assert not [each for each in doubts_about_output(whole, output) if each.name == short.name]
