"""Speculation on a board: the trace counts what the program counts, and the text is compared."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from armload.analysis.run import Run
from armload.core.files import content
from armload.engines.trace import Step
from armload.runs import store
from tests.outside_data import shared
from tests.person import Person
from tests.recurrent import predicting_model

pytestmark = [pytest.mark.build, pytest.mark.machine]

BOARD = "emulated"
N_PREDICT = 60
# Its end was there before, so that drafts follow the prompt's last token at once.
PROMPT = "One day Tom saw a cat. One day Tom saw a cat. One day Tom"


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    shared("stories260K.gguf")
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    person.add_emulated(BOARD)
    return person


def words(speculate: str) -> list[str]:
    model = str(shared("stories260K.gguf"))
    plan = ["--prompt", PROMPT, "-n", str(N_PREDICT), "--threads", "1"]
    return ["bench", "--board", BOARD, "--model", model, *plan, "--speculate", speculate]


@pytest.fixture(scope="module")
def cells(ann: Person) -> list[dict[str, Any]]:
    draft = f"draft:{shared('stories260K.gguf')}"
    done = ann.types(*words(f"none,ngram,{draft}"), "--json")
    found: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    return found


def run_of(ann: Person, cell: dict[str, Any]) -> Run:
    return store.load(ann.runs / cell["runs"][0])


def printed(ann: Person, run: Run, name: str) -> int:
    log = content(ann.runs / run.id / "stderr").decode()
    (count,) = re.findall(rf"{name} += (\d+)", log)
    return int(count)


def main_steps(run: Run) -> list[Step]:
    return [step for step in run.steps if step.model == 0]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])
def test_the_trace_counts_what_the_program_counts(
    ann: Person, cells: list[dict[str, Any]], number: int
) -> None:
    run = run_of(ann, cells[number])
    found = run.summary.speculation
    assert found is not None
    assert run.trace is not None
    assert found.speculated_tokens == printed(ann, run, "n_drafted")
    assert found.accepted_tokens == printed(ann, run, "n_accept")
    generated = sum(step.generated_tokens for step in main_steps(run))
    assert generated + 1 + found.accepted_tokens == printed(ann, run, "n_predict")


def test_more_than_one_token_comes_out_of_a_pass(ann: Person, cells: list[dict[str, Any]]) -> None:
    for cell in cells[1:]:
        found = cell["speculation"]
        assert found["tokens_per_pass"] > 1
        run = run_of(ann, cell)
        assert len(main_steps(run)) < N_PREDICT
        assert all(finding.name != "token count" for finding in run.verdict.findings)
    assert cells[0]["speculation"] is None


def test_a_model_that_drafts_for_itself_is_always_right(cells: list[dict[str, Any]]) -> None:
    assert cells[2]["speculation"]["acceptance_rate"] >= 0.95


def test_drafts_right_after_the_prompt_are_counted(
    ann: Person, cells: list[dict[str, Any]]
) -> None:
    first = next(step for step in run_of(ann, cells[1]).steps if step.speculated_tokens)
    assert (first.prompt_tokens, first.generated_tokens) == (1, 0)


def test_the_draft_models_time_is_part_of_a_tokens_time(
    ann: Person, cells: list[dict[str, Any]]
) -> None:
    run = run_of(ann, cells[2])
    assert run.summary.speculation is not None
    assert run.summary.decode_s is not None
    assert 0 < run.summary.speculation.draft_s < run.summary.decode_s
    assert {step.model for step in run.steps} == {0, 1}


def test_texts_are_compared(ann: Person, cells: list[dict[str, Any]]) -> None:
    plain = run_of(ann, cells[0])
    for cell in cells[1:]:
        without, text = cell["speculation"]["without"], run_of(ann, cell).text
        length = min(len(text), len(plain.text))
        assert length > 0
        is_same = text[:length] == plain.text[:length]
        assert without["text"]["reference"] == plain.id
        assert (without["text"]["kind"] == "same") == is_same


def test_a_single_run_is_compared_with_the_one_without(
    ann: Person, cells: list[dict[str, Any]]
) -> None:
    shown = ann.types(*words("ngram"), "--repeats", "1").stdout
    assert re.search(r"tokens per pass, \d+% of \d+ drafted tokens accepted", shown)
    assert re.search(r"Speculation (gains|loses|makes no clear difference|cannot be judged)", shown)
    assert re.search(r"The text (matches|differs from)\s+that of", shown)
    run = store.load(store.find(str(max(ann.runs.iterdir()))))
    assert run.without_speculation is not None
    assert run.without_speculation.runs == tuple(cells[0]["runs"])


@pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])
def test_without_a_run_to_compare_with_it_says_so(ann: Person) -> None:
    shown = ann.types(*words("ngram"), "--repeats", "1", "--seed", "7").stdout
    assert "There is no run without speculation to compare with." in " ".join(shown.split())


def test_a_model_of_another_vocabulary_is_refused_before_anything_is_copied(ann: Person) -> None:
    refused = ann.types(*words("draft:random"), status=2)
    assert "cannot draft for stories260K.gguf" in refused.stderr


@pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])
def test_a_model_drafts_with_its_own_layers(ann: Person) -> None:
    path = predicting_model(shared("stories260K.gguf"), ann.folder / "predicting.gguf")
    ann.add_board("here", f"target: host\nreach: {{kind: local}}\nworkdir: {ann.folder}/here\n")
    plan = ["--prompt", PROMPT, "-n", "24", "--threads", "1", "--speculate", "none,mtp"]
    done = ann.types("bench", "--board", "here", "--model", str(path), *plan, "--json")
    plain, drafted = json.loads(done.stdout)["cells"]
    assert plain["speculation"] is None
    run = run_of(ann, drafted)
    found = run.summary.speculation
    assert found is not None
    assert found.speculated_tokens == printed(ann, run, "n_drafted") > 0
    assert found.accepted_tokens == printed(ann, run, "n_accept")
    assert {step.model for step in run.steps} == {0, 1}
    refused = ann.types(*words("mtp"), status=2)
    assert "has no layers that predict further tokens" in refused.stderr
