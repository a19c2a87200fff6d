"""Measure the accuracy of the word problems' models with llama.cpp on this machine.

    python -m training.word_problems.accuracy --count 400

Each problem of the test split is answered once, greedily. An answer within a budget is that
answer cut after so many tokens: right when it then holds a closed box with the right number.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from armload.analysis.accuracy import wilson
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.evaluation.word_problems import WordProblem, problems
from armload.models.find import resolve
from training.word_problems.examples import learned_vocabulary, prompt
from training.word_problems.vocabulary import Encoder

BUDGETS = (10, 20, 30, 40, 60, 80, 120)
SEED = 1
MODELS = "word-problems:Q8_0,word-problems:Q2_K"

_BOX = re.compile(r"\\boxed\{(\d+)\}")


def main() -> None:
    """Print a table: models, and their accuracy for each budget and each number of steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=MODELS, help="names as for armload, comma-separated")
    parser.add_argument("--count", type=int, default=400, help="problems of the test split")
    arguments = parser.parse_args()
    (binary,) = build(load_target("host"))
    encode = Encoder(learned_vocabulary())
    asked = problems("test", arguments.count, SEED)
    for name in arguments.model.split(","):
        model = resolve(name, Silent())
        needed = [
            tokens_until_right(each, answer([str(binary.path)], model, each.question), encode)
            for each in asked
        ]
        print(f"{name}, {len(asked)} problems")
        for budget in BUDGETS:
            right = sum(tokens is not None and tokens <= budget for tokens in needed)
            print(f"  {budget} tokens: {_share(right, len(asked))}")
        for steps in (1, 2, 3, 4):
            of_these = [
                n for n, each in zip(needed, asked, strict=True) if len(each.steps) == steps
            ]
            right = sum(tokens is not None for tokens in of_these)
            print(f"  {steps} steps: {_share(right, len(of_these))}")


def _share(right: int, asked: int) -> str:
    interval = wilson(right, asked)
    return f"{right / asked:.1%} ({interval.low:.1%} to {interval.high:.1%}) of {asked}"


def answer(program: Sequence[str], model: Path, question: str) -> str:
    """Return the text that a model answers a question with, greedily, at most 120 tokens.

    Args:
        program: command line that begins with, or is, llama-completion.
    """
    words = ["-m", str(model), "-p", prompt(question), "-n", str(max(BUDGETS))]
    done = subprocess.run(
        [*program, *words, "-no-cnv", "--no-display-prompt", "--temp", "0", "-t", "1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip("\n").removesuffix(" [end of text]")


def tokens_until_right(problem: WordProblem, text: str, encode: Encoder) -> int | None:
    """Return after how many tokens the right box is closed; none if it never is."""
    box = _BOX.search(text)
    if box is None or int(box[1]) != problem.answer:
        return None
    return len(encode(text[: box.end()]))


if __name__ == "__main__":
    main()
