"""A small evaluation: two models, four questions, answers of ten tokens."""

from __future__ import annotations

from collections.abc import Sequence

from armload.engines.answers import FailedAnswer, GeneratedAnswer
from armload.evaluation.question import Question
from armload.evaluation.record import EvaluationFolder, Part, new_evaluation
from armload.evaluation.task import DEFAULT_DATE

QUESTIONS = tuple(
    Question(
        id=str(number),
        fields={"question": f"What is {number} + {number}?"},
        expected=str(2 * number),
    )
    for number in range(1, 5)
)
BUDGETS = (4, 10)


def answer(question: str, text: str, *, tokens: int = 10, token_s: float = 0.1) -> GeneratedAnswer:
    """An answer whose text ends with its last token, and that the model ended by itself."""
    step_ns = round(token_s * 1e9)
    before = len(text.encode()) - 1
    return GeneratedAnswer(
        id=question,
        prompt_tokens=12,
        start_ns=1_000,
        tokens=tuple(range(tokens)),
        times_ns=tuple(1_000 + step_ns * (number + 1) for number in range(tokens)),
        text_bytes=(*(min(number, before) for number in range(tokens - 1)), len(text.encode())),
        text=text,
        think_tokens=0,
        stop="end",
        conclude_from=None,
    )


def evaluated(
    *,
    fails: bool = True,
    questions: Sequence[Question] = QUESTIONS,
    parallel: int = 1,
    variants: int = 1,
    models: tuple[str, str] = ("a", "b"),
    projector: str = "",
) -> EvaluationFolder:
    """An evaluation in which the first model is right more often and slower, the other fails once.

    Args:
        variants: prompts of which both are asked all.
        projector: by which both saw images; empty for none.
    """
    parts = [
        Part(
            model=f"{name}.gguf",
            model_sha256=name[0] * 64,
            model_reference=name,
            prompt=prompt,
            budgets=BUDGETS,
            projector=projector,
            projector_sha256="c" * 64 if projector else "",
        )
        for prompt in ("steps", *(f"prompt{number}" for number in range(2, variants + 1)))
        for name in models
    ]
    evaluation = new_evaluation(
        boards=("virtual",),
        task="sums",
        kind="generate",
        grader="boxed",
        parallel=parallel,
        questions=questions,
        parts=parts,
        template_date=DEFAULT_DATE,
        decisive=(),
    )
    made = EvaluationFolder.begin_with(evaluation, questions)
    boxes = [f"It is \\boxed{{{question.expected}}}" for question in QUESTIONS]
    of_a = [answer(str(number), text) for number, text in enumerate(boxes, start=1)]
    of_b = [
        answer("1", boxes[0], token_s=0.05),
        answer("2", "It is \\boxed{5}", token_s=0.05),
        answer("3", "I do not know", token_s=0.05),
        FailedAnswer(id="4", kind="generate", error="the prompt is too long")
        if fails
        else answer("4", boxes[3], token_s=0.05),
    ]
    for part in range(0, 2 * variants, 2):
        made.add(part, of_a)
        made.add(part + 1, of_b)
    return made
