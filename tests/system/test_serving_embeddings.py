"""Encoders and rerankers are served for embeddings and rankings, and for nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.encoders import CONTEXT, RANK, WIDTH, write_bert
from tests.person import Person
from tests.system.serving import Serving, serving

pytestmark = pytest.mark.build

TEXTS = ["the cat sat on a mat", "a mat", "the cat sat on a mat"]


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("encoders") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    write_bert(Path(person.folder / "bert.gguf"))
    write_bert(Path(person.folder / "rank.gguf"), pooling=RANK)
    return person


@pytest.fixture(scope="module")
def service(ann: Person) -> Iterator[Serving]:
    words = ("--model", "bert.gguf", "--threads", "1", "--slots", "2", "--embeddings", "model")
    with serving(ann, *words) as service:
        yield service


def test_each_text_gets_a_vector_of_the_models_width_and_length_1(service: Serving) -> None:
    answer = service.ask("v1/embeddings", input=TEXTS)
    assert answer.status_code == 200, answer.text
    vectors = [each["embedding"] for each in answer.json()["data"]]
    assert [len(each) for each in vectors] == [WIDTH] * len(TEXTS)
    for each in vectors:
        assert math.isclose(math.hypot(*each), 1.0, abs_tol=1e-4)
    first, other, same = vectors
    assert math.isclose(_cosine(first, same), 1.0, abs_tol=1e-4)
    assert _cosine(first, other) < 0.999


def _cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_a_text_as_long_as_the_context_is_embedded_in_one_pass(service: Serving) -> None:
    text = " ".join(["cat"] * (CONTEXT - 2))
    answer = service.ask("v1/embeddings", input=text)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["prompt_tokens"] == CONTEXT


def test_nothing_else_takes_an_encoder_or_a_reranker(ann: Person) -> None:
    for name, what in {"bert": "is an encoder, which computes embeddings", "rank": "ranks"}.items():
        for verb in ("bench", "serve"):
            done = ann.types(verb, "--board", "here", "--model", f"{name}.gguf", status=3)
            assert what in done.stderr
            assert "--embeddings model" in done.stderr


def test_what_a_model_cannot_pool_is_refused_before_it_is_copied(ann: Person) -> None:
    command = ("serve", "--board", "here", "--embeddings")
    for pooling, name, words in (
        ("rank", "bert.gguf", "is not a reranker"),
        ("mean", "rank.gguf", "--embeddings rank"),
        ("model", "word-problems:Q8_0", "--embeddings mean"),
    ):
        assert words in ann.types(*command, pooling, "--model", name, status=2).stderr
    assert not list((ann.folder / "here-board").rglob("rank.gguf"))


def test_a_reranker_ranks_and_a_load_of_rankings_has_no_times_of_tokens(
    ann: Person, service: Serving
) -> None:
    del service  # the board is in use until it has ended
    ann.add_emulated("other")
    texts = {"query": "the cat", "documents": ["the cat sat on a mat", "a mat", "sat"]}
    (ann.folder / "ranked.jsonl").write_text(json.dumps(texts) + "\n")
    found = ann.types(
        *("load", "--board", "other", "--model", "rank.gguf", "--threads", "1"),
        *("--dialect", "rerank", "--data", "ranked.jsonl", "--rate", "8", "--requests", "4"),
        *("--arrivals", "constant", "--json"),
    )
    (point,) = json.loads(found.stdout)["points"]
    metrics = point["metrics"]
    assert (metrics["ok"], metrics["embedded"], metrics["tpot"]) == (4, 4, None)
    assert metrics["prompt_tokens"] > 0
    records = max((ann.folder / "loads").iterdir()) / "requests-0.jsonl"
    (ranked,) = {json.loads(line)["dimensions"] for line in records.read_text().splitlines()}
    assert ranked == len(texts["documents"])
