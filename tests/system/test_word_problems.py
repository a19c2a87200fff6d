"""llama.cpp and the word problems' model: tokens, template and answers as in training."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.evaluation.word_problems import TELL_BUDGET, problems
from armload.models.find import resolve
from armload.models.vocabulary import BEGIN_ID
from tests.system.engines import emulator, engine
from training.word_problems.accuracy import answer, tokens_until_right
from training.word_problems.examples import learned_vocabulary, prompt
from training.word_problems.vocabulary import Encoder

pytestmark = pytest.mark.build

ASKED = problems("test", 20, seed=7)
FEWEST_RIGHT = 15


@pytest.fixture(scope="module")
def program() -> list[str]:
    return [*emulator(), str(engine(None).path)]


@pytest.fixture(scope="module")
def encode() -> Encoder:
    return Encoder(learned_vocabulary())


def model(quantisation: str) -> Path:
    return resolve(f"word-problems:{quantisation}", Silent())


def completed(program: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    fixed = ["-m", str(model("Q8_0")), "--temp", "0", "-t", "1"]
    return subprocess.run(
        [*program, *fixed, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",  # half a character is a token, too
        check=True,
    )


@pytest.mark.parametrize(
    "text",
    [
        prompt(ASKED[0].question) + " " + ASKED[0].solution,
        prompt(ASKED[1].question) + " " + ASKED[1].equations_only,
        "Zebras  pay 1,024 euros\nfor \\boxes{} and boxed{ 3 }",
        " Ünïcode: 算数",
    ],
)
def test_llama_cpp_reads_a_text_as_the_tokens_of_training(
    program: list[str], encode: Encoder, text: str
) -> None:
    done = completed(program, "-p", text, "-no-cnv", "-n", "1", "--verbose-prompt")
    tokens = re.findall(r"^\S+ I +(\d+) -> '", done.stderr, re.MULTILINE)
    assert [int(each) for each in tokens] == [BEGIN_ID, *encode(text)]


def test_the_model_s_own_template_makes_the_prompt_of_training(
    program: list[str], encode: Encoder
) -> None:
    asked = ASKED[0].question
    words = ["-cnv", "--single-turn", "--jinja", "-n", "1", "--verbose-prompt"]
    done = completed(program, "-p", asked, *words)
    tokens = re.findall(r"^\S+ I +(\d+) -> '", done.stderr, re.MULTILINE)
    assert [int(each) for each in tokens] == [BEGIN_ID, *encode(prompt(asked))]


@pytest.mark.exhaustive(covers=["armload/evaluation/word_problems.py", "armload/models/trained"])
def test_8_bits_solve_most_problems_of_the_test_split_and_2_bits_fewer(encode: Encoder) -> None:
    (host,) = build(load_target("host"))
    program = [str(host.path)]
    right = {
        quantisation: sum(
            tokens_until_right(each, answer(program, model(quantisation), each.question), encode)
            is not None
            for each in ASKED
        )
        for quantisation in ("Q8_0", "Q2_K")
    }
    assert right["Q8_0"] >= FEWEST_RIGHT
    assert right["Q2_K"] < right["Q8_0"]


def test_an_answer_has_reasons_unless_the_told_budget_is_too_small_for_them(
    program: list[str], encode: Encoder
) -> None:
    short, whole = (
        answer(program, model("Q8_0"), f"{ASKED[0].question}\n{TELL_BUDGET.format(budget=budget)}")
        for budget in (10, 90)
    )
    assert len(encode(short)) <= 10
    assert short.startswith(r" \boxed{")
    assert whole == " " + ASKED[0].solution
