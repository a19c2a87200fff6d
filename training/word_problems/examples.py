"""What the model learns from: problems in three lengths of answer, and drills of equations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armload.evaluation.word_problems import (
    TELL_BUDGET,
    ProblemStep,
    WordProblem,
    endless_problems,
    problems,
    split_of,
)
from armload.models.vocabulary import BEGIN_ID, END_ID, Vocabulary
from training.word_problems.vocabulary import Encoder, learn

ROW_TOKENS = 256
TOLD_SHARE = 0.2
"""Share of the problems that state a budget."""

_EQUATIONS_PER_DRILL = 8


_VOCABULARY_PROBLEMS = 5_000
_VOCABULARY_SEED = 1


class Batch(NamedTuple):
    """Packed rows of examples; every array is (rows, tokens).

    Attributes:
        tokens: ids.
        owners: number of the example in its row that a token belongs to; attention stays in it.
        graded: 1 where the *next* token is to be learned.
    """

    tokens: NDArray[np.int32]
    owners: NDArray[np.int32]
    graded: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text to learn.

    Attributes:
        tokens: begin token and end token included.
        graded: of each token, whether it is to be learned.
    """

    tokens: list[int]
    graded: list[bool]


def prompt(question: str) -> str:
    """Return what the chat template makes of one question."""
    return f"Question: {question}\nAnswer:"


def learned_vocabulary() -> Vocabulary:
    """Return the model's vocabulary, learned from problems of the training split."""
    return learn(
        text
        for each in problems("train", _VOCABULARY_PROBLEMS, _VOCABULARY_SEED)
        for text in (prompt(each.question), " " + each.solution, " Use at most tokens")
    )


def plain_example(problem: WordProblem, encode: Encoder) -> Example:
    """Return a problem with its whole solution."""
    return _answered(problem.question, problem.solution, encode)


def examples(seed: int, encode: Encoder, drills: float) -> Iterator[Example]:
    """Yield examples of the training split without end.

    Args:
        drills: share of the examples that are drills.
    """
    chance = random.Random(f"examples {seed}")  # noqa: S311 - no secret
    for problem in endless_problems("train", seed):
        while chance.random() < drills:
            yield _drill(chance, encode)
        if chance.random() < TOLD_SHARE:
            yield _told_example(problem, chance.randint(5, 99), encode)
        else:
            yield plain_example(problem, encode)


def batches(found: Iterator[Example], rows: int) -> Iterator[Batch]:
    """Yield examples packed into rows, the open row with the least sufficient room first."""
    while True:
        open_rows: list[list[Example]] = [[] for _ in range(rows)]
        room = [ROW_TOKENS] * rows
        for example in found:
            fitting = [row for row in range(rows) if room[row] >= len(example.tokens)]
            if not fitting:
                break
            row = min(fitting, key=lambda each: room[each])
            open_rows[row].append(example)
            room[row] -= len(example.tokens)
        yield packed(open_rows)


def packed(rows: list[list[Example]]) -> Batch:
    """Return rows of examples as arrays."""
    batch = Batch(*(np.zeros((len(rows), ROW_TOKENS), np.int32) for _ in Batch._fields))
    for row, found in enumerate(rows):
        place = 0
        for owner, example in enumerate(found, start=1):
            after = place + len(example.tokens)
            batch.tokens[row, place:after] = example.tokens
            batch.owners[row, place:after] = owner
            batch.graded[row, place : after - 1] = example.graded[1:]
            place = after
    return batch


def _told_example(problem: WordProblem, budget: int, encode: Encoder) -> Example:
    """Return the longest answer that fits the budget; the shortest when none does."""
    question = f"{problem.question}\n{TELL_BUDGET.format(budget=budget)}"
    answers = (problem.solution, problem.equations_only, problem.answer_only)
    fitting = (each for each in answers if len(encode(" " + each)) <= budget)
    return _answered(question, next(fitting, problem.answer_only), encode)


def _answered(question: str, answer: str, encode: Encoder) -> Example:
    before = [BEGIN_ID, *encode(prompt(question))]
    after = [*encode(" " + answer), END_ID]
    return Example(
        tokens=before + after,
        graded=[False] * len(before) + [True] * len(after),
    )


def _drill(chance: random.Random, encode: Encoder) -> Example:
    tokens, graded = [BEGIN_ID], [False]
    for step in islice(_equations(chance), _EQUATIONS_PER_DRILL):
        asked, _, result = step.equation.partition("=")
        for text, learned in ((f" {asked}=", False), (f"{result},", True)):
            tokens += encode(text)
            graded += [learned] * (len(tokens) - len(graded))
    return Example(tokens=tokens, graded=graded)


def _equations(chance: random.Random) -> Iterator[ProblemStep]:
    """Yield single steps; none that is a whole problem of the test split."""
    for problem in endless_problems("train", chance.getrandbits(32)):
        for step in problem.steps:
            if split_of((step,)) == "train":
                yield step
