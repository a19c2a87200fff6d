"""How much the log-likelihoods of the same continuations differ between ways of computing them.

    pip install -e '.[reference]'
    python benchmarks/likelihood_differences.py [--model word-problems:Q8_0]

Compares, over 56 short continuations: llama-cpp-python with context and continuation in one pass
and in two, on this machine; and the scorer on a board, by default a virtual one, with
llama-cpp-python in one pass. Both with flash attention and a KV cache of 16 bits, and with neither.
Prints the largest absolute difference of each.

With the defaults it takes minutes once llama-cpp-python and the scorer are compiled.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import numpy as np
from gguf import GGMLQuantizationType
from llama_cpp import Llama

from armload.core.progress import Silent
from armload.engines.answers import LikelihoodAnswer
from armload.evaluation.scorer_run import answer_items, answers_in
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.request import Request

CONTEXT_TOKENS = 256
QUESTIONS = [
    (
        f"Ann has {a} apples and buys {b} more. She has",
        [f" {a + b} apples in all.", f" {a} apples in all.", f" {b} apples.", " no apples at all."],
    )
    for a in range(2, 9)
    for b in (3, 5)
]


def main() -> None:
    """Compare, and print a line for each comparison."""
    parser = argparse.ArgumentParser(description="Compare log-likelihoods.")
    parser.add_argument("--model", default="word-problems:Q8_0")
    parser.add_argument("--board", default="virtual")
    options = parser.parse_args()
    model = model_called(options.model, Silent())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for flash_attention, kv_type in (("on", "f16"), ("off", "f32")):
            way = ScorerSettings(threads=2, flash_attention=flash_attention, kv_type=kv_type)
            whole = by_binding(model, way, whole=True)
            parts = by_binding(model, way, whole=False)
            board = by_scorer(model, way, options.board)
            print(f"--flash-attention {flash_attention} --kv-type {kv_type}:")
            print(f"  one pass and two, by llama-cpp-python: {largest(whole, parts):.1e}")
            print(f"  scorer on {options.board}, and llama-cpp-python: {largest(board, whole):.1e}")


def largest(one: list[float], other: list[float]) -> float:
    """Return the largest absolute difference of two lists that belong together."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def by_binding(model: Model, way: ScorerSettings, *, whole: bool) -> list[float]:
    """Return the log-likelihood of each continuation, computed on this machine.

    Args:
        whole: in one pass with its context.
    """
    cache = GGMLQuantizationType[(way.kv_type or "f16").upper()].value
    llama = Llama(
        str(model.path),
        n_ctx=CONTEXT_TOKENS,
        n_threads=way.threads,
        n_threads_batch=way.threads,
        logits_all=True,
        type_k=cache,
        type_v=cache,
        flash_attn=way.flash_attention == "on",
        verbose=False,
    )
    found = []
    for context, continuations in QUESTIONS:
        begin = len(llama.tokenize(context.encode(), special=True))
        for continuation in continuations:
            tokens = llama.tokenize((context + continuation).encode(), special=True)
            llama.reset()
            for part in [tokens] if whole else [tokens[:begin], tokens[begin:]]:
                llama.eval(part)
            rows = np.array(llama.scores[begin - 1 : len(tokens) - 1], dtype=np.float64)
            rows -= rows.max(axis=1, keepdims=True)
            rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
            found.append(float(rows[range(len(rows)), tokens[begin:]].sum()))
    llama.close()
    return found


def by_scorer(model: Model, way: ScorerSettings, board: str) -> list[float]:
    """Return the log-likelihood of each continuation, computed by the scorer on a board."""
    items: list[dict[str, object]] = [
        {"id": str(n), "kind": "likelihood", "context": context, "continuations": continuations}
        for n, (context, continuations) in enumerate(QUESTIONS)
    ]
    folder = answer_items(Request(board=board), model, items, way, Silent())
    answers = answers_in(folder)
    found = []
    for item in items:
        answer = answers[str(item["id"])]
        assert isinstance(answer, LikelihoodAnswer), answer
        found += [each.log_likelihood for each in answer.continuations]
    return found


if __name__ == "__main__":
    main()
