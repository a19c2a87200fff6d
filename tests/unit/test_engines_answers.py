"""The scorer's answers, as they are read from its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import DataError
from armload.engines.answers import (
    FailedAnswer,
    GeneratedAnswer,
    LikelihoodAnswer,
    LogitsAnswer,
    TokenizedAnswer,
    read_answers,
)

GENERATED = (
    '{"id":"g","kind":"generate","prompt_tokens":5,"start_ns":1,"tokens":[7,8,9],'
    '"times_ns":[2,3,4],"text_bytes":[1,1,3],"text":"aé","think_tokens":0,"stop":"budget",'
    '"conclude_from":null}'
)
LIKELIHOOD = (
    '{"id":"l","kind":"likelihood","context_tokens":5,"continuations":[{"tokens":[7,8],'
    '"log_likelihoods":[-0.5,-1.25],"greedy":[true,false]}],"start_ns":1,"end_ns":2}'
)
ROWS = (
    '{"id":"x","kind":"logits","tokens":[1,2],"positions":[0,1],"offset_bytes":64,"rows":2,'
    '"columns":512}'
)
TOP = '{"id":"y","kind":"logits","tokens":[1,2],"positions":[1],"top":[{"ids":[3],"values":[1.5]}]}'
TOKENS = '{"id":"t","kind":"tokenize","tokens":[1,2]}'
FAILED = '{"id":"f","kind":"generate","error":"no"}'


def answers_in(folder: Path, text: str | bytes) -> tuple[object, ...]:
    path = folder / "stdout"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_answers(path)


def test_every_kind_of_answer_is_read(tmp_path: Path) -> None:
    lines = (GENERATED, LIKELIHOOD, ROWS, TOP, TOKENS, FAILED)
    generated, likelihood, rows, top, tokens, failed = answers_in(
        tmp_path, "".join(f"{line}\n" for line in lines)
    )
    assert isinstance(generated, GeneratedAnswer)
    assert isinstance(likelihood, LikelihoodAnswer)
    (continuation,) = likelihood.continuations
    assert continuation.log_likelihood == -1.75
    assert not continuation.is_greedy
    assert isinstance(rows, LogitsAnswer)
    assert isinstance(top, LogitsAnswer)
    assert isinstance(tokens, TokenizedAnswer)
    assert failed == FailedAnswer(id="f", kind="generate", error="no")


def test_a_text_is_cut_after_any_number_of_tokens(tmp_path: Path) -> None:
    (answer,) = answers_in(tmp_path, GENERATED + "\n")
    assert isinstance(answer, GeneratedAnswer)
    assert [answer.text_after(tokens) for tokens in range(5)] == ["", "a", "a", "aé", "aé"]


@pytest.mark.parametrize("cut", [1, 30, len(LIKELIHOOD) - len(',"start_ns":1,"end_ns":2}')])
def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path, cut: int) -> None:
    assert len(answers_in(tmp_path, f"{GENERATED}\n{LIKELIHOOD[:cut]}")) == 1


def test_a_block_that_a_power_cut_emptied_is_left_out(tmp_path: Path) -> None:
    assert len(answers_in(tmp_path, f"{GENERATED}\n".encode() + bytes(100))) == 1


def test_no_file_has_no_answers(tmp_path: Path) -> None:
    assert read_answers(tmp_path / "stdout") == ()


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"id":"g","kind":"another"}',
        GENERATED.replace("[2,3,4]", "[2,3]"),
        GENERATED.replace("[1,1,3]", "[1,3,1]"),
        LIKELIHOOD.replace('"end_ns"', '"end"'),
    ],
)
def test_a_whole_line_that_is_no_answer_is_refused_with_its_number(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(DataError, match="stdout, line 2: not an answer"):
        answers_in(tmp_path, f"{TOKENS}\n{line}\n")
