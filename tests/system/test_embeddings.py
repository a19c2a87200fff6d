"""Texts are embedded on a board, and how many in a second is measured by length and batch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.encoders import RANK, WIDTH, write_bert
from tests.person import Person

pytestmark = pytest.mark.build

LENGTHS, BATCHES, TEXTS = (16, 32), (1, 4), 8


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("embeddings") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    write_bert(person.folder / "bert.gguf")
    write_bert(person.folder / "rank.gguf", pooling=RANK)
    return person


def embed(ann: Person, model: str, *words: str, status: int = 0) -> dict[str, Any]:
    command = ("bench", "--board", "here", "--model", model, "--threads", "1", *words, "--json")
    done = ann.types(*command, status=status)
    return dict(json.loads(done.stdout)) if not status else {"stderr": done.stderr}


@pytest.fixture(scope="module")
def sweep(ann: Person) -> dict[str, Any]:
    lengths = ("--prompt-tokens", ",".join(map(str, LENGTHS)))
    batches = ("--embed", ",".join(map(str, BATCHES)), "--texts", str(TEXTS))
    return embed(ann, "bert.gguf", *lengths, *batches)


def runs_of(ann: Person, sweep: dict[str, Any]) -> list[dict[str, Any]]:
    names = [name for cell in sweep["cells"] for name in cell["runs"]]
    return [json.loads((ann.runs / name / "run.json").read_text()) for name in names]


def test_a_pass_takes_as_many_texts_of_the_length_as_asked_for(
    ann: Person, sweep: dict[str, Any]
) -> None:
    found = runs_of(ann, sweep)
    assert {(run["plan"]["embed"], run["plan"]["prompt_tokens"]) for run in found} == {
        (batch, length) for batch in BATCHES for length in LENGTHS
    }
    for run in found:
        batch, length = run["plan"]["embed"], run["plan"]["prompt_tokens"]
        assert [each["tokens"] for each in run["steps"]] == [batch * length] * (TEXTS // batch)
        assert {each["sequences"] for each in run["steps"]} == {batch}
        assert run["result"] == {"texts": TEXTS, "dimensions": WIDTH}


def test_there_are_texts_per_second_and_no_times_of_tokens(
    ann: Person, sweep: dict[str, Any]
) -> None:
    for run in runs_of(ann, sweep):
        summary, length = run["summary"], run["plan"]["prompt_tokens"]
        assert (summary["ttft_s"], summary["decode_tps"], summary["token_s"]) == (None, None, None)
        texts = summary["texts"]
        assert texts["texts"] == TEXTS
        assert texts["texts_per_s"] * length == pytest.approx(summary["prefill_tps"])
    shown = ann.types("show", sweep["sweep"])
    assert "texts" in shown.stdout


def test_a_single_run_is_repeated_shown_reported_and_compared(ann: Person) -> None:
    words = ("--embed", "2", "--prompt-tokens", "16", "--precision-time", "1")
    run = embed(ann, "bert.gguf", *words)
    assert run["summary"]["texts"]["texts"] == 32
    other = embed(ann, "bert.gguf", "--embed", "4", "--prompt-tokens", "16", "--repeats", "1")
    for verb in ("show", "report"):
        ann.types(verb, run["id"])
    compared = ann.types("compare", run["id"], other["id"]).stdout
    assert "prefill, per token" in compared
    assert "The text" not in compared, "embeddings are no text"


def test_a_reranker_scores(ann: Person) -> None:
    run = embed(ann, "rank.gguf", "--embed", "4", "--prompt-tokens", "16", "--repeats", "1")
    assert run["result"] == {"texts": 64, "dimensions": 1}
    assert run["command"][run["command"].index("--pooling") + 1] == "rank"


def test_a_model_of_text_embeds_with_a_pooling_that_is_given(ann: Person) -> None:
    words = ("--embed", "2", "--prompt-tokens", "16", "--repeats", "1")
    refused = embed(ann, "word-problems:Q8_0", *words, status=2)
    assert "--pooling mean" in refused["stderr"]
    run = embed(ann, "word-problems:Q8_0", *words, "--pooling", "last")
    assert [each["tokens"] for each in run["steps"]] == [32] * 16


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--embed", "2", "--prompt", "a cat"), "--prompt"),
        (("--embed", "2", "-n", "5"), "-n"),
        (("--embed", "2", "--depth", "64"), "--depth"),
        (("--embed", "2", "--prompt-tokens", "100000"), "--prompt-tokens 256 or less"),
        (("--embed", "2", "--prompt-tokens", "2"), "--prompt-tokens 3 or more"),
        (("--embed", "2", "--pooling", "rank"), "not a reranker"),
        (
            (
                "--embed",
                "1000",
            ),
            "embed",
        ),
    ],
)
def test_what_no_embedding_has_is_refused_before_the_model_is_copied(
    ann: Person, words: tuple[str, ...], said: str
) -> None:
    assert said in embed(ann, "bert.gguf", *words, status=2)["stderr"]


def test_a_run_of_text_of_an_encoder_is_refused_with_what_to_type(ann: Person) -> None:
    refused = embed(ann, "bert.gguf", status=3)
    assert "armload bench --embed 8" in refused["stderr"]
