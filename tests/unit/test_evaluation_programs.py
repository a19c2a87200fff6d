"""What is said of a program that armload did not build beside one of armload's."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.compare import compare
from armload.analysis.comparison_findings import Accuracies
from armload.analysis.measurement import measurement_of
from armload.core.errors import UsageError
from armload.engines.answers import FailedAnswer, PrintedAnswer
from armload.engines.watched.asked import check_askable
from armload.engines.watched.reader import load_reader
from armload.evaluation.record import AnsweringProgram, EvaluationFolder, Part, new_evaluation
from armload.evaluation.results import is_answer_correct
from armload.evaluation.sides import find_sides, with_accuracies
from armload.evaluation.tradeoff import trade
from tests.unit.evaluations import QUESTIONS, answer
from tests.unit.runs import quick_run
from tests.unit.watched import HEAD, WORDS, summary, tokens_of, watched_run


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kept(part: Part, *texts: str) -> EvaluationFolder:
    """An evaluation of one part whose questions got these answers."""
    evaluation = new_evaluation(
        boards=("virtual",),
        task="sums",
        kind="generate",
        grader="boxed",
        parallel=1,
        questions=QUESTIONS,
        parts=[part],
        template_date=None,
        decisive=(),
    )
    made = EvaluationFolder.begin_with(evaluation, QUESTIONS)
    numbered = [*enumerate(texts, start=1)]
    if part.program is None:
        made.add(0, [answer(str(number), text) for number, text in numbered])
    else:
        made.add(0, [printed(str(number), text) for number, text in numbered])
    return made


def printed(question: str, text: str) -> PrintedAnswer:
    return PrintedAnswer(
        id=question,
        prompt_tokens=12,
        tokens=8,
        prefill_s=0.2,
        decode_s=0.3,
        wall_s=2.0,
        text=text,
    )


def part_of(sha256: str, *, program: str = "") -> Part:
    words = AnsweringProgram(words=(program,), reader=load_reader("mnn"), files=(), limit_s=9)
    return Part(
        model=f"{program}/qwen" if program else "qwen.gguf",
        model_sha256=sha256,
        model_reference="qwen",
        prompt="plain",
        budgets=(10,),
        program=words if program else None,
    )


def test_a_comparison_with_another_program_says_how_often_each_was_right(tmp_path: Path) -> None:
    tokens = tokens_of([*WORDS, *WORDS[::-1]])
    watched = watched_run(tmp_path, [HEAD, *tokens, b"\n", summary(len(tokens), 3.6)])
    ours = quick_run(tokens=len(tokens))
    a = kept(part_of(watched.model.sha256, program=watched.binary.program), "\\boxed{2}", "none")
    b = kept(part_of(ours.model.sha256), "\\boxed{2}", "\\boxed{4}")
    kept(part_of(watched.model.sha256, program="another"), *["\\boxed{2}"] * 4)
    sides = [with_accuracies([measurement_of(run)]) for run in (watched, ours)]
    (found,) = compare(*sides)
    (known,) = (each for each in found.findings if isinstance(each, Accuracies))
    assert (known.a.correct, known.a.questions) == (1, 2)
    assert (known.b.correct, known.b.questions) == (2, 2)
    names = a.evaluation.id, b.evaluation.id
    assert known.fact().endswith(f"armload tradeoff {known.a.side} {known.b.side}")
    assert (known.a.side.partition(":")[0], known.b.side.partition(":")[0]) == names


def test_their_trade_off_takes_the_program_s_own_times_and_says_what_is_unequal() -> None:
    a = kept(part_of("1" * 64, program="llm_demo"), *["\\boxed{2}"] * 4)
    b = kept(part_of("2" * 64), *["\\boxed{2}"] * 4)
    (found,) = trade(*find_sides(a.evaluation.id, b.evaluation.id))
    assert found.a.latency_s == ((0.5,),) * 4
    assert any("Weights and their type: files that differ" in each for each in found.unequal)
    assert found.doubts == ()
    (same,) = trade(*find_sides(b.evaluation.id, b.evaluation.id))
    assert same.unequal == ()


def test_an_answer_that_a_program_printed_is_graded_and_one_that_failed_is_not() -> None:
    part = part_of("1" * 64, program="llm_demo")
    for told, is_correct in (
        (printed("1", "\\boxed{2}"), True),
        (printed("1", "\\boxed{3}"), False),
        (FailedAnswer(id="1", kind="printed", error="out of memory"), None),
    ):
        assert is_answer_correct(told, QUESTIONS[0], part, "boxed") is is_correct


@pytest.mark.parametrize(
    ("reader", "words", "said"),
    [
        ("text", ("demo",), "number of tokens"),
        ("llm_bench", ("demo",), "number of tokens"),
        ("mnn", ("demo", "{prompt}"), "too long for an argument"),
    ],
)
def test_what_could_not_be_asked_is_refused(reader: str, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_askable(load_reader(reader), words, "a" * 200_000)
    check_askable(load_reader("mnn"), ("demo", "{prompt_file}"), "a" * 200_000)
