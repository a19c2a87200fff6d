"""What options of an evaluation rule each other out, or would do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.cli import terminal
from armload.core.errors import UsageError
from armload.engines.contradictions import check_consistent
from armload.engines.service_plan import ScorerOptions
from armload.evaluation.harness.evaluating import PREFIX
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.task import load_task
from armload.runs.request import EngineSource

if TYPE_CHECKING:
    from armload.cli.verbs.evaluation import EvalOptions

_ABOUT_IMAGES = ("mmproj", "image_max_tokens")
LOGITS, SIMILARITY = "logits", "similarity"


def has_questions(task: str) -> bool:
    """Tell whether a task has questions, as logits, similarity and those of lm-eval have not."""
    return task not in (LOGITS, SIMILARITY) and not task.startswith(PREFIX)


def check_combination(options: EvalOptions) -> EvalOptions:
    """Refuse options that contradict each other, or would do nothing; return those that apply.

    Raises:
        UsageError: there is one, or no such task or evaluation.
        DataError, DiskError: as for ``load_task``.
    """
    if options.regrade:
        return _check_regrading(options)
    check_consistent(options.part(ScorerOptions))
    options = _check_program(options)
    if len(options.grader) > 1:
        options = options.refuse_without(
            ("grader",), "--regrade to compare several graders", "Name one."
        )
    if not options.model:
        options = options.refuse_without(
            ("type",), "a model to quantise", "Example: --model llama-f16.gguf"
        )
    if has_questions(options.task):
        return _check_task(options)
    if options.task == SIMILARITY:
        options = options.refuse(
            ("parallel", "context_tokens"),
            "--task similarity, which embeds as many sentences at a time as fit into a pass",
            "Remove it.",
        )
    options = options.refuse(
        _ABOUT_IMAGES, f"--task {options.task}, which shows no images", "Remove it."
    )
    is_file = options.given(("prompt",)) and options.task == LOGITS
    return options.refuse(
        ("prompt", "budget", "tell_budget", "conclude", "template", "grader", "max_time"),
        f"--task {options.task}",
        "Give the file of prompts with --data." if is_file else "Remove it.",
    )


_OF_A_PROGRAM = ("put", "reader", "name")
_OF_THE_SCORER = (
    *ScorerOptions.model_fields,
    *EngineSource.model_fields,
    *("model", "type", "conclude", "scheduler", *_ABOUT_IMAGES),
)


def _check_program(options: EvalOptions) -> EvalOptions:
    if not options.command:
        return options.refuse_without(
            _OF_A_PROGRAM, "a program after --", "Example: armload eval --put demo -- demo {prompt}"
        )
    program = options.command[0]
    options = options.refuse(
        _OF_THE_SCORER,
        f"-- {program}: that is for the programs that armload builds",
        "Put the program's own options after --.",
    )
    if not has_questions(options.task):
        raise UsageError(
            f"-- {program} cannot be combined with --task {options.task}: a program answers "
            "questions alone.",
            "Use a task whose answers are generated, such as gsm8k.",
        )
    task = load_task(options.task)
    if task.kind == "multiple-choice" or task.image is not None:
        what = "compares likelihoods" if task.image is None else "shows images"
        raise UsageError(
            f"-- {program} cannot be combined with --task {task.name}, which {what}.",
            "Use a task whose answers are generated from text, such as gsm8k.",
        )
    if task.template_arguments and options.template == "model":
        terminal.say(
            f"{program} is not given the template_arguments of task {task.name}: it applies its "
            "own chat template."
        )
    return options


def _check_regrading(options: EvalOptions) -> EvalOptions:
    options = options.refuse(
        type(options).model_fields.keys() - {"regrade", "grader", "as_json"},
        "--regrade",
        "--regrade only grades saved answers again; it does not run the model.",
    )
    evaluation = EvaluationFolder.find(options.regrade).evaluation
    if evaluation.kind == "multiple-choice":
        return options.refuse(
            ("grader",),
            f"{evaluation.id}, which is multiple choice and needs no grader",
            f"Omit --grader: armload show {evaluation.id}",
        )
    return options


def _check_task(options: EvalOptions) -> EvalOptions:
    task = load_task(options.task)
    if task.image is None:
        options = options.refuse(
            _ABOUT_IMAGES, f"task {task.name}, which shows no images", "Remove it."
        )
    if task.kind == "multiple-choice":
        return options.refuse(
            ("budget", "tell_budget", "conclude", "template", "grader"),
            f"task {task.name}, which is multiple choice: no answer is generated",
            "Remove it.",
        )
    if task.conclude is None:
        options = options.refuse_without(
            ("conclude",),
            f"a sentence to conclude with, which task {task.name} does not have",
            "Add conclude to the task's file, or leave out --conclude.",
        )
    if options.tell_budget == "no":
        return options
    for name in options.prompt or [next(iter(task.prompts))]:
        if not task.prompt(name).budget_sentence:
            return options.refuse_without(
                ("tell_budget",),
                f"a sentence that states the budget, which prompt {name} of task {task.name} does "
                "not have",
                "Add budget_sentence to the task's file, such as 'Use at most {{ budget }} "
                "tokens.', or use --tell-budget no.",
            )
    return options
