"""Evaluation beside the programs it is compared with, which are installed for these tests alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.person import Person
from tests.system.engines import shared

COVERED = ["armload/evaluation/harness", "armload/evaluation/logits", "toolchains/native/scorer"]
pytestmark = [
    pytest.mark.build,
    pytest.mark.timeout(3600),
    pytest.mark.exhaustive(covers=COVERED),
]

MODEL = "word-problems:Q8_0"
PORTABLE = "-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF"
TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
PLAIN_HARNESS = """
import json, sys
import lm_eval
from llama_cpp import Llama
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
import numpy as np

class Plain(LM):
    def __init__(self, path):
        super().__init__()
        self.model = Llama(path, n_ctx=256, logits_all=True, flash_attn=True, verbose=False)
    def tokens(self, text):
        return self.model.tokenize(text.encode(), add_bos=True, special=True)
    def loglikelihood(self, requests):
        found = []
        for context, after in (each.args for each in requests):
            both, begin = self.tokens(context + after), len(self.tokens(context))
            self.model.reset()
            self.model.eval(both)
            rows = np.array(self.model.scores[begin - 1 : len(both) - 1], dtype=np.float64)
            rows -= rows.max(axis=1, keepdims=True)
            rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
            wanted = both[begin:]
            sums = float(rows[range(len(wanted)), wanted].sum())
            found.append((sums, bool((rows.argmax(axis=1) == wanted).all())))
        return found
    def generate_until(self, requests): raise NotImplementedError
    def loglikelihood_rolling(self, requests): raise NotImplementedError

model, folder = sys.argv[1:]
found = lm_eval.simple_evaluate(
    Plain(model), tasks=["sums"], task_manager=TaskManager(include_path=folder)
)
print(json.dumps(found, default=str), file=open(sys.argv[2] + "/plain.json", "w"))
"""


def installed(folder: Path, *words: str) -> Path:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *words]
    subprocess.run(pip, env={**os.environ, "CMAKE_ARGS": PORTABLE}, check=True, timeout=3000)
    return folder


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    board = f"{person.folder}/board"
    person.add_board("here", f"target: host\nreach: {{kind: local}}\nworkdir: {board}\n")
    packages = installed(person.folder / "packages", "llama-cpp-python==0.3.36", "lm-eval>=0.4.13")
    person.environment["PYTHONPATH"] = str(packages)
    return person


def test_logits_are_those_of_llama_cpp_python(ann: Person) -> None:
    prompts = ["Ann has 3 apples and buys 4 packs of pens.", "Ben has 12 coins. " * 12]
    (ann.folder / "prompts.txt").write_text("\n".join(prompts))
    done = ann.types(
        *("eval", "--task", "logits", "--data", "prompts.txt", "--board", "here"),
        *("--model", MODEL, "--reference", "llama-cpp-python", "--fail-unless-close", "--json"),
    )
    found = json.loads(done.stdout)["agreement"]
    assert (found["close"], found["reference"]) == (2, "llama-cpp-python")
    assert found["top1_share"] == 1


def test_likelihoods_and_accuracy_are_those_of_the_harness_without_armload(ann: Person) -> None:
    folder = ann.folder / "tasks"
    folder.mkdir()
    questions = [
        {
            "question": f"Ann has {a} apples and buys {b} more. She has",
            "choices": [f" {a + b} apples", f" {a} apples", f" {abs(a - b)}", " none at all"],
            "label": (a * b) % 4,
        }
        for a in range(2, 6)
        for b in range(3, 6)
    ]
    data = folder / "sums.jsonl"
    data.write_text("\n".join(map(json.dumps, questions)))
    (folder / "sums.yaml").write_text(TASK.format(data=data))
    # Weights of 32 bits: where activations are rounded to 8, other kernels differ by up to 0.1.
    model = shared("stories260K.gguf")
    words = ("--model", str(model), "--board", "here", "--data", "tasks")
    shown = json.loads(ann.types("eval", "--task", "lm-eval:sums", *words, "--json").stdout)
    ours = json.loads(Path(shown["results"]).read_text())
    plain = [sys.executable, "-c", PLAIN_HARNESS, str(model), str(folder)]
    subprocess.run(plain, env=ann.environment, cwd=folder, check=True, timeout=600)
    theirs = json.loads((folder / "plain.json").read_text())
    # Of some ten tokens each. Two compilers' kernels round keys and values to 16 bits differently.
    assert likelihoods_of(ours) == pytest.approx(likelihoods_of(theirs), abs=5e-3)
    for metric in ("acc,none", "acc_norm,none"):
        assert ours["results"]["sums"][metric] == theirs["results"]["sums"][metric]
    (task,) = shown["tasks"]
    assert (task["name"], task["samples"]) == ("sums", len(questions))
    assert task["metrics"]["acc"] == theirs["results"]["sums"]["acc,none"]


def likelihoods_of(found: dict[str, Any]) -> list[float]:
    samples = sorted(found["samples"]["sums"], key=lambda sample: int(sample["doc_id"]))
    return [float(each[0][0]) for sample in samples for each in sample["resps"]]
