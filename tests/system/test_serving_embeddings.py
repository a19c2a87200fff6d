"""Encoders, which people embed texts with, are served for that and for nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.encoders import CONTEXT, WIDTH, write_bert
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


def test_nothing_else_takes_an_encoder(ann: Person) -> None:
    for verb in ("bench", "serve", "fit"):
        done = ann.types(verb, "--board", "here", "--model", "bert.gguf", status=3)
        assert "is an encoder, which computes embeddings" in done.stderr
        assert "--embeddings model" in done.stderr
