"""A program that armload did not build answers an evaluation's questions, one process for each."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.person import Person
from tests.waiting import wait_until

HERE = "target: host\nreach: {{kind: local}}\nworkdir: {workdir}\n"
ANSWERER = r"""#!/bin/sh
# answerer FROM BUDGET [PROMPT]: prints as llama.cpp's programs do.
case $1 in
    words) text=$3 ;;
    file) text=$(cat question.txt) ;;
    *) text=$(cat) ;;
esac
{pause}
echo "$text" >>{log}
case $text in *fail*) echo 'out of memory' >&2; exit 3 ;; *hang*) sleep 99 ;; *flood*) yes ;; esac
printf '%s \\boxed{{%s}} [end of text]\n' "$text" "$(($(echo "$text" | tr -cd 0-9) * 2))"
echo 'llama_perf: prompt eval time =      60.00 ms /    12 tokens' >&2
echo 'llama_perf:        eval time =     200.00 ms /    10 runs' >&2
"""
TASK = """\
data: sums.jsonl
fields: {question: question, answer: answer}
expected: "{{ answer }}"
prompts: {plain: {system: "Be brief.", user: "{{ question }}"}}
stop: ["[stop]"]
grader: boxed
budgets: [8, 16]
"""
PROGRAM = ("--reader", "llama-cpp", "--put", "answerer", "--name", "foreign")


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    person = Person(tmp_path / "ann")
    person.add_board("here", HERE.format(workdir=person.folder / "here"))
    program = person.folder / "answerer"
    program.write_text(ANSWERER.format(log=person.folder / "asked", pause=":"))
    program.chmod(0o755)
    (person.folder / "sums.yaml").write_text(TASK)
    return person


SAID = ("", "status 3: out of memory", "after 1 s", "1 MiB")


def ask(person: Person, *words: str, questions: tuple[str, ...]) -> tuple[str, ...]:
    lines = (json.dumps({"question": each, "answer": "4"}) for each in questions)
    (person.folder / "sums.jsonl").write_text("\n".join(lines))
    return ("eval", "--board", "here", "--task", "sums.yaml", *PROGRAM, *words)


def answers(person: Person, part: int = 0) -> list[dict[str, Any]]:
    (path,) = person.folder.glob(f"evaluations/*/answers-{part}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_way_to_give_a_question_gives_the_same_answers(ann: Person) -> None:
    for words in (("stdin", "{budget}"), ("file", "{budget}"), ("words", "{budget}", "{prompt}")):
        command = ask(ann, "--json", "--new", "--", "answerer", *words, questions=("2", "3 '\""))
        found = json.loads(ann.types(*command).stdout)
        assert [(each["budget"], each["correct"]) for each in found["points"]] == [(8, 1), (16, 1)]
        assert found["points"][0]["mean_tokens"] == 11
        assert found["points"][0]["mean_s"] == pytest.approx(0.26)
    asked = (ann.folder / "asked").read_text().split("Be brief.\n")
    assert asked == ["", *["2\n", "3 '\"\n"] * 6]


def test_texts_are_those_of_the_reader_up_to_a_text_at_which_answers_stop(ann: Person) -> None:
    command = ask(ann, "--budget", "8", "--", "answerer", "stdin", questions=("2", "4 [stop]"))
    ann.types(*command)
    texts = [each["text"] for each in answers(ann)]
    assert texts == ["Be brief.\n2 \\boxed{4}", "Be brief.\n4 "]
    shown = ann.types("show", "latest-eval").stdout
    assert "answered by answerer stdin" in " ".join(shown.split())


def test_questions_that_cannot_be_answered_say_why_and_the_others_count(ann: Person) -> None:
    questions = ("2", "fail", "hang", "flood")
    command = ask(ann, "--budget", "8", "--time-limit", "1", questions=questions)
    found = json.loads(ann.types(*command, "--json", "--", "answerer", "stdin").stdout)
    (point,) = found["points"]
    assert (point["questions"], point["correct"], point["failed"]) == (1, 1, 3)
    errors = [each.get("error", "") for each in answers(ann)]
    for error, said in zip(errors, SAID, strict=True):
        assert said in error


def test_an_interrupted_evaluation_asks_only_what_is_missing(ann: Person) -> None:
    questions = tuple(map(str, range(1, 7)))
    command = ask(ann, "--budget", "8", "--", "answerer", "stdin", questions=questions)
    slow = ANSWERER.format(log=ann.folder / "asked", pause="sleep 1")
    (ann.folder / "answerer").write_text(slow)
    process = ann.start(*command)
    asked = ann.folder / "asked"
    wait_until(
        lambda: asked.is_file() and asked.read_text().count("brief") >= 3, process, within_s=60
    )
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    kept = len(answers(ann))
    assert 1 <= kept < 6
    ann.types(*command)
    assert sorted(int(each["id"]) for each in answers(ann)) == [1, 2, 3, 4, 5, 6]
    # What was being asked when it was interrupted was asked again, and nothing else.
    assert asked.read_text().count("brief") <= 7


def test_what_was_not_equal_is_said_beside_another_evaluation(ann: Person) -> None:
    sides = ("--name", "a"), ("--name", "b")
    for one, template in zip(sides, ("model", "chatml"), strict=True):
        command = ask(ann, "--budget", "8", "--template", template, questions=("2", "3"))
        words = [word for word in command if word not in ("--name", "foreign")]
        ann.types(*words, *one, "--", "answerer", "stdin")
    a, b = sorted(path.name for path in ann.folder.glob("evaluations/*"))
    said = " ".join(ann.types("tradeoff", a, b).stdout.split())
    assert "Chat template: a: what answerer applies to the text; b: ChatML." in said
    assert "Sampling: a: as in answerer stdin" in said
    texts = [
        json.loads(path.read_text().splitlines()[0])["text"]
        for path in sorted(ann.folder.glob("evaluations/*/answers-0.jsonl"))
    ]
    assert texts[1].startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2<")
