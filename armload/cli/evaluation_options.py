"""The options of an evaluation, and which of them contradict each other or would do nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from armload.bench.options import QUANTISED_ALL
from armload.cli.options import (
    BOARDS,
    STARTED,
    FileTypes,
    ForeignProgram,
    OnGateways,
    OutputOptions,
)
from armload.core.defaults import VIRTUAL
from armload.core.errors import UsageError
from armload.core.options import Duration, Names, Option
from armload.engines.plan import IMAGE_MAX_TOKENS, MMPROJ, MediaPath, Pooling, TokenCount
from armload.engines.service_plan import ScorerOptions
from armload.evaluation.grading.registry import GRADERS
from armload.runs.request import EngineSource, Metering, Resuming, Waiting

USUAL_MODELS = ("word-problems:Q8_0", "word-problems:Q2_K")
DEMO_TIME_S = 120
LOGITS, SIMILARITY = "logits", "similarity"

Budget = Annotated[int, Field(ge=1, le=2**31 - 1)]
WholeSeconds = Annotated[int, Field(ge=1, le=86_400)]


class EvalOptions(
    ScorerOptions,
    ForeignProgram,
    OnGateways,
    Resuming,
    Metering,
    Waiting,
    EngineSource,
    OutputOptions,
):
    """Models, a task, and how it is asked."""

    heading = "Task"
    absent: ClassVar[Mapping[str, str]] = {
        "--prompts": "To choose among a task's prompts, use --prompt NAMES; for --task logits, "
        "give a file of prompts with --data FILE."
    }

    command: Annotated[
        tuple[str, ...],
        Option(
            "after --: a program that answers in place of armload's scorer, and its arguments: "
            "{prompt} is a question, {prompt_file} a file of it, {budget} a number of tokens",
            several="repeat",
            is_argument=True,
            is_behind=True,
            takes="file",
            heading="Program",
        ),
    ] = ()
    time_limit_s: Annotated[
        WholeSeconds,
        Option(
            "stop the program after this many seconds for a question",
            "SECONDS",
            name="time-limit",
            heading="Program",
            needs="command",
        ),
    ] = 1800
    model: Annotated[
        Names,
        Option(
            "a GGUF file, hf:ORG/REPO[:TYPE], hf:ORG/REPO/FILE.gguf (ms: for ModelScope), "
            "word-problems:TYPE, or smollm2",
            "MODEL",
            " and ".join(USUAL_MODELS),
            "commas",
            heading="Plan",
            harmless="in a plan",
        ),
    ] = ()
    type: Annotated[FileTypes, QUANTISED_ALL] = ()
    task: Annotated[
        str,
        Option(
            "gsm8k, piqa, multiple-choice, word-problems, drawings (questions on images), a YAML "
            "file, logits, similarity (of sentences, by their embeddings), or a task of "
            "lm-evaluation-harness: lm-eval:NAME",
        ),
    ] = "word-problems"
    data: Annotated[
        str,
        Option(
            "the task's questions: a file or hf:ORG/REPO/FILE; for logits a file with one prompt "
            "per line; for similarity JSON lines with a, b and score; for lm-eval a folder with "
            "more tasks",
            "FILE",
            "the task's own",
        ),
    ] = ""
    prompt: Annotated[
        Names,
        Option("names of the task's prompts", "NAMES", "its first", "commas", harmless="anywhere"),
    ] = ()
    budget: Annotated[
        tuple[Budget, ...],
        Option(
            "limits in tokens; the answer so far is graded at each",
            "TOKENS",
            "the task's",
            "commas",
            harmless="anywhere",
        ),
    ] = ()
    tell_budget: Annotated[
        Literal["no", "yes", "both"],
        Option("whether the prompt states the budget", "no|yes|both", harmless="anywhere"),
    ] = "no"
    conclude: Annotated[
        bool,
        Option(
            "at the end of the budget, append a sentence that makes the model answer",
            harmless="anywhere",
        ),
    ] = False
    template: Annotated[
        Literal["model", "chatml", "none"],
        Option(
            "the chat template: model (its own; with a program, what that applies), chatml or none",
            "model|chatml|none",
        ),
    ] = "model"
    pooling: Annotated[
        Pooling,
        Option(
            "for similarity: how to pool a sentence's tokens, as in bench",
            "POOLING",
            needs="task=similarity",
        ),
    ] = "model"
    mmproj: Annotated[MediaPath | None, MMPROJ] = None
    image_max_tokens: Annotated[
        TokenCount | None, IMAGE_MAX_TOKENS.of_one("as in the projector")
    ] = None
    limit: Annotated[Budget | None, Option("take the first N questions", "N", "all")] = None
    grader: Annotated[
        Names,
        Option(
            f"{', '.join(GRADERS)}; two only with --regrade",
            "NAME",
            "the task's",
            "commas",
            harmless="anywhere",
        ),
    ] = ()
    regrade: Annotated[
        str,
        Option(
            "grade the answers of this evaluation with --grader from now on; with two graders, "
            "list where they disagree",
            "EVALUATION",
        ),
    ] = ""
    max_time: Annotated[
        Duration | None,
        Option(
            "time limit, such as 90s or 30m, divided equally among models and prompts",
            "DURATION",
            f"none; {DEMO_TIME_S}s without --model",
            heading="Limits",
        ),
    ] = None
    board: Annotated[
        Names,
        Option(
            f"{BOARDS}; several boards share the questions",
            "BOARD",
            STARTED,
            several="commas",
            heading="Board",
            harmless="in a plan",
        ),
    ] = (VIRTUAL,)
    reference: Annotated[
        str,
        Option(
            "for logits: a run of the same prompts (in any form that show accepts), a folder of "
            ".npy files, or llama-cpp-python or dllama, which compute them on this machine",
            "RUN",
            heading="Output",
            needs="task=logits",
        ),
    ] = ""
    fail_unless_close: Annotated[
        bool,
        Option(
            "for logits: exit with 13 unless all are close to the reference",
            heading="Output",
            needs="reference",
            harmless="anywhere",
        ),
    ] = False


_ABOUT_IMAGES = ("mmproj", "image_max_tokens")


def has_questions(task: str) -> bool:
    """Tell whether a task has questions, as logits, similarity and those of lm-eval have not."""
    from armload.evaluation.harness.evaluating import PREFIX

    return task not in (LOGITS, SIMILARITY) and not task.startswith(PREFIX)


def check_combination(options: EvalOptions) -> EvalOptions:
    """Refuse options that contradict each other, or would do nothing; return those that apply.

    Raises:
        UsageError: there is one, or no such task or evaluation.
        DataError, DiskError: as for ``load_task``.
    """
    from armload.engines.contradictions import check_consistent

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
    from armload.evaluation.task import load_task

    task = load_task(options.task)
    if task.kind == "multiple-choice" or task.image is not None:
        what = "compares likelihoods" if task.image is None else "shows images"
        raise UsageError(
            f"-- {program} cannot be combined with --task {task.name}, which {what}.",
            "Use a task whose answers are generated from text, such as gsm8k.",
        )
    if task.template_arguments and options.template == "model":
        from armload.cli import terminal

        terminal.say(
            f"{program} is not given the template_arguments of task {task.name}: it applies its "
            "own chat template."
        )
    return options


def _check_regrading(options: EvalOptions) -> EvalOptions:
    from armload.evaluation.record import EvaluationFolder

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
    from armload.evaluation.task import load_task

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
