"""llama.cpp's own program, asked as another one, answers as armload's scorer does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.models.find import model_called
from tests.person import Person

pytestmark = pytest.mark.build

MODEL = "word-problems:Q8_0"
BUDGET, QUESTIONS = 40, 6
TEMPLATE = "Question: {prompt}\nAnswer:"
"""What the model's own chat template makes of a user's message."""


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    person.add_emulated("here")
    (completion,) = build(load_target("rk3568"), programs=["llama-completion"])
    shutil.copy(completion.path, person.folder / "llama-completion")
    shutil.copy(model_called(MODEL, Silent()).path, person.folder / "words.gguf")
    return person


def asked(*words: str) -> tuple[str, ...]:
    task = ("--task", "word-problems", "--limit", str(QUESTIONS), "--budget", str(BUDGET))
    return ("eval", "--board", "here", *task, "--json", *words)


def answers(person: Person, evaluation: str) -> dict[str, dict[str, Any]]:
    path: Path = person.folder / "evaluations" / evaluation / "answers-0.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {each["id"]: each for each in found}


@pytest.mark.exhaustive(
    covers=["armload/evaluation/program.py", "armload/engines/watched", "toolchains/board"]
)
def test_answers_of_another_program_equal_those_of_the_scorer(ann: Person) -> None:
    ours = json.loads(ann.types(*asked("--model", MODEL, "--threads", "1")).stdout)
    put = ("--put", "llama-completion", "--put", "words.gguf")
    greedy = ("--temp", "0", "-t", "1", "-c", "256", "-no-cnv", "--no-display-prompt")
    program = ("llama-completion", "-m", "words.gguf", "-n", "{budget}", *greedy, "--no-escape")
    theirs = json.loads(ann.types(*asked(*put), "--", *program, "-p", TEMPLATE).stdout)
    a, b = (answers(ann, each["evaluation"]) for each in (ours, theirs))
    assert len(a) == QUESTIONS
    # The program ends its output with empty lines.
    texts = {number: each["text"].rstrip("\n") for number, each in b.items()}
    assert texts == {number: each["text"] for number, each in a.items()}
    for number, each in b.items():
        assert each["prompt_tokens"] == a[number]["prompt_tokens"]
        # Its count includes the token that ends a text.
        is_ended = a[number]["stop"] == "end"
        assert each["tokens"] == len(a[number]["tokens"]) + is_ended
    correct = [found["points"][0]["correct"] for found in (ours, theirs)]
    assert correct[0] == correct[1] > 0
    said = " ".join(ann.types("tradeoff", ours["evaluation"], theirs["evaluation"]).stdout.split())
    assert "Weights and their type: the same file." in said
    assert "what llama-completion applies to the text" in said
