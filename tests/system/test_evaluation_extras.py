"""Evaluation beside the programs it is compared with, which are installed for these tests alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from armload.build.target import Target, load_target
from armload.build.zig import find_zig
from armload.core import shell
from tests.outside_data import FOLDER, shared
from tests.person import Person

COVERED = ["armload/evaluation/harness", "armload/evaluation/logits", "toolchains/native/scorer"]
pytestmark = [
    pytest.mark.build,
    pytest.mark.timeout(3600),
    pytest.mark.exhaustive(covers=COVERED),
]

MODEL = FOLDER / "stories260K.gguf"
"""Of 32 bits: where activations are rounded to 8, other kernels differ by up to 0.1."""

CHOICES = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{text}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
TEXTS = """
task: tales
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}, {{metric: bits_per_byte}}]
"""
WINDOW = 96
EXACT = ("--flash-attention", "off", "--kv-type", "f32")
"""Without 16-bit sums and rounding, whose errors depend on how many tokens are in a pass."""

PLAIN_HARNESS = """
import json, sys
import lm_eval
from llama_cpp import Llama
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
import numpy as np

class Plain(LM):
    def __init__(self, path):
        super().__init__()
        self.model = Llama(path, n_ctx=256, logits_all=True, type_k=0, type_v=0, verbose=False)
    def tokens(self, text):
        return self.model.tokenize(text.encode(), add_bos=True, special=True)
    def loglikelihood(self, requests):
        found = []
        for context, after in (each.args for each in requests):
            both, begin = self.tokens(context + after), len(self.tokens(context))
            found.append(self.scored(both, begin))
        return found
    def scored(self, both, begin):
        self.model.reset()
        self.model.eval(both)
        rows = np.array(self.model.scores[begin - 1 : len(both) - 1], dtype=np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        wanted = both[begin:]
        sums = float(rows[range(len(wanted)), wanted].sum())
        return sums, bool((rows.argmax(axis=1) == wanted).all())
    def generate_until(self, requests): raise NotImplementedError
    def loglikelihood_rolling(self, requests):
        found = []
        for (text,) in (each.args for each in requests):
            tokens = self.model.tokenize(text.encode(), add_bos=False, special=True)
            parts = get_rolling_token_windows(tokens, self.model.token_bos(), int(sys.argv[3]), 1)
            pairs = list(map(make_disjoint_window, parts))
            found.append(sum(self.scored(a + b, len(a))[0] for a, b in pairs))
        return found

model, folder = sys.argv[1:3]
found = lm_eval.simple_evaluate(
    Plain(model), tasks=sys.argv[4].split(","), task_manager=TaskManager(include_path=folder)
)
print(json.dumps(found, default=str), file=open(sys.argv[2] + "/plain.json", "w"))
"""


def options_of(target: Target) -> str:
    """Return CMake's options that make armload's kernels for a target, in a library for Python."""
    zig = find_zig(target).model_copy(update={"triple": f"{target.architecture}-linux-gnu"})
    cpu = shell.join(zig.cpu_flags(target))
    chosen = {
        **zig.definitions(target),
        **{f"CMAKE_{language}_FLAGS": cpu for language in ("C", "CXX")},
        **{f"CMAKE_{language}_FLAGS_RELEASE": "-O3 -DNDEBUG -g0" for language in ("C", "CXX")},
        **dict.fromkeys(("GGML_NATIVE", "GGML_OPENMP", "LLAVA_BUILD"), "OFF"),
    }
    return shell.join([f"-D{name}={value}" for name, value in chosen.items()])


def install(folder: Path, *words: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *words]
    environment = {**os.environ, "CMAKE_ARGS": options_of(load_target("host"))}
    subprocess.run(pip, env=environment, check=True, timeout=3000)


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    shared(MODEL.name)
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    board = f"{person.folder}/board"
    person.add_board("here", f"target: host\nreach: {{kind: local}}\nworkdir: {board}\n")
    packages = person.folder / "packages"
    install(packages, "lm-eval>=0.4.13")
    # A wheel in pip's cache was compiled with other options.
    install(packages, "--no-cache-dir", "--no-deps", "llama-cpp-python==0.3.36")
    install(packages, "diskcache")
    person.environment["PYTHONPATH"] = str(packages)
    return person


def test_logits_are_those_of_llama_cpp_python(ann: Person) -> None:
    prompts = ["Ann has 3 apples and buys 4 packs of pens.", "Ben has 12 coins. " * 12]
    (ann.folder / "prompts.txt").write_text("\n".join(prompts))
    done = ann.types(
        *("eval", "--task", "logits", "--data", "prompts.txt", "--board", "here"),
        *("--model", str(MODEL), "--reference", "llama-cpp-python", "--fail-unless-close"),
        *("--json", *EXACT),
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
    write_choices(folder, "sums", questions, text="{{question}}")
    tales = folder / "tales.jsonl"
    tale = shared("stories260K.expected.txt").read_text()
    tales.write_text("".join(f"{json.dumps({'text': tale[cut:]})}\n" for cut in (0, 100, 500)))
    (folder / "tales.yaml").write_text(TEXTS.format(data=tales))
    words = ["--model", str(MODEL), "--board", "here", "--data", "tasks"]
    words += ["--context", str(WINDOW), "--json", *EXACT]
    shown = json.loads(ann.types("eval", "--task", "lm-eval:sums,tales", *words).stdout)
    ours = json.loads(Path(shown["results"]).read_text())
    theirs = plain_harness(ann, folder, "sums,tales")
    assert likelihoods_of(ours) == pytest.approx(likelihoods_of(theirs), abs=1e-3)
    for metric in ("acc,none", "acc_norm,none"):
        assert ours["results"]["sums"][metric] == theirs["results"]["sums"][metric]
    for metric in ("word_perplexity,none", "bits_per_byte,none"):
        expected = theirs["results"]["tales"][metric]
        assert ours["results"]["tales"][metric] == pytest.approx(expected, rel=1e-4)
    task, texts = shown["tasks"]
    assert (texts["name"], texts["samples"]) == ("tales", 3)
    assert (task["name"], task["samples"]) == ("sums", len(questions))
    assert task["metrics"]["acc"] == theirs["results"]["sums"]["acc,none"]


def test_our_task_of_choices_gives_what_the_harness_does_without_armload(ann: Person) -> None:
    folder = ann.folder / "asked"
    folder.mkdir()
    questions = [
        {
            "question": f"Ann has {a} apples and buys {b} more. What has she now?",
            "choices": [f"{a + b} apples", f"only {a} apples", f"{abs(a - b)}", "none"],
            "label": (a * b) % 4,
            "answer": "ABCD"[(a * b) % 4],
        }
        for a in range(2, 12)
        for b in range(3, 8)
    ]
    # The prompt of the task multiple-choice.
    data = write_choices(folder, "asked", questions, text="Question: {{question}}\\nAnswer:")
    found = plain_harness(ann, folder, "asked")["results"]["asked"]
    words = ["--task", "multiple-choice", "--data", str(data), "--model", str(MODEL)]
    shown = json.loads(ann.types("eval", *words, "--board", "here", "--json", *EXACT).stdout)
    (figures,) = shown["points"]
    for ours, metric in (("accuracy", "acc,none"), ("normalised", "acc_norm,none")):
        assert figures[ours]["questions"] == len(questions)
        assert figures[ours]["correct"] / len(questions) == found[metric]
    assert 0 < found["acc,none"] != found["acc_norm,none"] > 0


def write_choices(
    folder: Path, name: str, questions: Sequence[dict[str, Any]], *, text: str
) -> Path:
    """Write questions and the harness's task that asks them; return the questions' file."""
    data = folder / f"{name}.jsonl"
    data.write_text("\n".join(map(json.dumps, questions)))
    (folder / f"{name}.yaml").write_text(CHOICES.format(name=name, data=data, text=text))
    return data


def plain_harness(person: Person, folder: Path, tasks: str) -> dict[str, Any]:
    words = [str(MODEL), str(folder), str(WINDOW), tasks]
    plain = [sys.executable, "-c", PLAIN_HARNESS, *words]
    subprocess.run(plain, env=person.environment, cwd=folder, check=True, timeout=600)
    found: dict[str, Any] = json.loads((folder / "plain.json").read_text())
    return found


def likelihoods_of(found: dict[str, Any]) -> list[float]:
    samples = sorted(found["samples"]["sums"], key=lambda sample: int(sample["doc_id"]))
    return [float(each[0][0]) for sample in samples for each in sample["resps"]]
