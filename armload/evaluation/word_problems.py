"""Word problems in English, generated: one to four steps of arithmetic with small whole numbers.

Whether a problem belongs to the training or the test split is decided by its numbers and
operations alone, so no test problem occurs in training in other words.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from armload.core.values import Value

Split = Literal["train", "test"]
Operation = Literal["+", "-", "*", "/"]

TELL_BUDGET = "Use at most {budget} tokens."
"""The line that states the budget after a question; the shipped model has learned it."""

MOST_STEPS = 4
SMALLEST_CHANGE = 2
LARGEST_NUMBER = 30
LARGEST_START = 25
LARGEST_INCREASE = 20

_TEST_SHARE = 8  # one problem in so many

_NAMES = {
    "She": ("Anna", "Mia", "Sara", "Lucy", "Emma", "Nora", "Julia", "Rosa"),
    "He": ("Ben", "Tom", "Omar", "Leo", "Paul", "Max", "Sam", "Ivan"),
}
_THINGS = (
    "apples", "books", "cards", "coins", "cookies", "eggs", "marbles", "pens", "plums", "shells",
    "stamps", "stickers",
)  # fmt: skip
_BOXES = ("bags", "boxes", "baskets", "jars", "packs")

_CHANGES: dict[Operation, tuple[tuple[str, str], ...]] = {
    "+": (
        ("{She} buys {n} more.", "buys {n}"),
        ("{She} finds {n} more.", "finds {n}"),
        ("{other} gives {name} {n} {things}.", "gets {n}"),
        ("Then {name} wins {n} {things}.", "wins {n}"),
    ),
    "-": (
        ("{She} loses {n} of them.", "loses {n}"),
        ("{She} gives {n} {things} to {other}.", "gives away {n}"),
        ("Then {name} sells {n} {things}.", "sells {n}"),
        ("{other} borrows {n} of them.", "lends {n}"),
    ),
    "*": (
        ("A year later {name} has {n} times as many.", "has {n} times as many"),
        ("{She} collects until there are {n} times as many.", "has {n} times as many"),
    ),
    "/": (
        ("{She} splits them into {n} equal piles and keeps one pile.", "keeps one of {n} piles"),
        (
            "{She} shares them equally among {n} people and keeps one share.",
            "keeps one of {n} shares",
        ),
    ),
}  # fmt: skip
"""Of each operation: what the question says, and what the reasoning says of it."""


class ProblemStep(Value):
    """One operation: ``left operation right = result``."""

    left: int
    operation: Operation
    right: int
    result: int

    @property
    def equation(self) -> str:
        """As the reasoning writes it: ``12+5=17``."""
        return f"{self.left}{self.operation}{self.right}={self.result}"


class WordProblem(Value):
    """A problem with its solution.

    Attributes:
        question: the text that is asked.
        reasoning: a sentence for each step, without the answer.
        steps: the same as numbers.
        answer: the result of the last step.
        split: which split it belongs to.
    """

    question: str
    reasoning: str
    steps: tuple[ProblemStep, ...]
    answer: int
    split: Split

    @property
    def solution(self) -> str:
        """The whole text of a right answer."""
        return rf"{self.reasoning} The answer is \boxed{{{self.answer}}}."

    @property
    def equations_only(self) -> str:
        """A shorter right answer."""
        return f"{', '.join(step.equation for step in self.steps)}. {self.answer_only}"

    @property
    def answer_only(self) -> str:
        """The shortest right answer, without reasoning."""
        return rf"\boxed{{{self.answer}}}"


def problems(split: Split, count: int, seed: int) -> tuple[WordProblem, ...]:
    """Return problems of one split; equal arguments give equal problems.

    The number of steps, one to four, is equally frequent; the test split has no question twice.
    """
    return tuple(islice(endless_problems(split, seed), count))


def endless_problems(split: Split, seed: int) -> Iterator[WordProblem]:
    """Yield the problems of ``problems`` without end."""
    chance = random.Random(f"{split} {seed}")  # noqa: S311 - no secret
    seen: set[str] = set()
    while True:
        wanted = chance.randint(1, MOST_STEPS)
        while (problem := _problem(chance, wanted)).split != split or problem.question in seen:
            pass
        if split == "test":
            seen.add(problem.question)
        yield problem


def split_of(steps: tuple[ProblemStep, ...]) -> Split:
    """Return the split of all problems with these numbers and operations."""
    key = " ".join(step.equation for step in steps)
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little")
    return "test" if number % _TEST_SHARE == 0 else "train"


def _problem(chance: random.Random, count: int) -> WordProblem:
    she = chance.choice(("She", "He"))
    name = chance.choice(_NAMES[she])
    other = chance.choice([each for each in (*_NAMES["She"], *_NAMES["He"]) if each != name])
    words = {
        "She": she,
        "name": name,
        "other": other,
        "things": chance.choice(_THINGS),
        "boxes": chance.choice(_BOXES),
    }
    steps: list[ProblemStep] = []
    if chance.random() < 1 / 3:
        boxes = chance.randint(2, 9)
        each = chance.randint(2, min(9, LARGEST_NUMBER // boxes))
        steps.append(ProblemStep(left=boxes, operation="*", right=each, result=boxes * each))
        words |= {"n": str(boxes), "each": str(each)}
        told = ["{name} has {n} {boxes} with {each} {things} each.".format(**words)]
        reasoned = [f"{name} starts with {steps[0].equation} {words['things']}."]
    else:
        start = chance.randint(2, LARGEST_START)
        told = [f"{name} has {start} {words['things']}."]
        reasoned = [f"{name} starts with {start} {words['things']}."]
    while len(steps) < count:
        step = _change(chance, steps[-1].result if steps else start)
        steps.append(step)
        words["n"] = str(step.right)
        says, means = chance.choice(_CHANGES[step.operation])
        told.append(says.format(**words))
        reasoned.append(f"{she} {means.format(**words)}: {step.equation}.")
    asked = "How many {things} does {name} have {when}?"
    told.append(asked.format(**words, when=chance.choice(("now", "in the end"))))
    return WordProblem(
        question=" ".join(told),
        reasoning=" ".join(reasoned),
        steps=tuple(steps),
        answer=steps[-1].result,
        split=split_of(tuple(steps)),
    )


def _change(chance: random.Random, value: int) -> ProblemStep:
    parts = [n for n in range(2, 10) if value % n == 0 and value > n]
    factors = range(2, min(9, LARGEST_NUMBER // value) + 1)
    can: dict[Operation, bool] = {
        "+": value <= LARGEST_NUMBER - SMALLEST_CHANGE,
        "-": value > SMALLEST_CHANGE,
        "*": bool(factors),
        "/": bool(parts),
    }
    possible = [operation for operation, is_possible in can.items() if is_possible]
    operation = chance.choice(possible)
    if operation == "+":
        right = chance.randint(SMALLEST_CHANGE, min(LARGEST_INCREASE, LARGEST_NUMBER - value))
        return ProblemStep(left=value, operation="+", right=right, result=value + right)
    if operation == "-":
        right = chance.randint(SMALLEST_CHANGE, value - 1)
        return ProblemStep(left=value, operation="-", right=right, result=value - right)
    if operation == "*":
        right = chance.choice(factors)
        return ProblemStep(left=value, operation="*", right=right, result=value * right)
    right = chance.choice(parts)
    return ProblemStep(left=value, operation="/", right=right, result=value // right)
