"""From what a person asks for to the parts of an evaluation that is begun, or resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from armload.core.errors import UsageError
from armload.core.journal import resuming
from armload.core.pictures import Picture
from armload.core.progress import Progress
from armload.core.values import Value, counted
from armload.engines.scorer import SCORER, SEEING_SCORER, SeenImages
from armload.evaluation.data import load_questions
from armload.evaluation.grading.registry import check_grader
from armload.evaluation.items import Message, render
from armload.evaluation.program import LoadedProgram, ProgramRequest
from armload.evaluation.question import Question, QuestionImage
from armload.evaluation.record import EvaluationFolder, Part, Template, new_evaluation
from armload.evaluation.task import Task, load_task
from armload.models.adapter import AdapterChoice
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.find_projector import AUTO, find_projector
from armload.models.gguf import read_outline
from armload.models.model import Model
from armload.models.projector_choice import check_takes

BudgetTold = Literal["no", "yes", "both"]
"""Whether prompts state the budget."""

DEFAULT_BUDGETS = (64, 128, 256)


def parts_of(
    task: Task,
    models: Sequence[tuple[str, Model]],
    *,
    prompts: Sequence[str],
    budgets: Sequence[int],
    tell: BudgetTold,
    conclude: bool,
    template: Template = "model",
) -> list[Part]:
    """Return what is asked of each model, the same of all of them.

    Budgets that a model is not told of need one answer, as long as the largest: what it is at
    another budget is its beginning. A budget that is told, or concluded, needs answers of its own.

    Args:
        models: with the names that a person gave them.
        prompts: names; empty for the task's first.
        budgets: in tokens; empty for the task's own.
        template: for chats, of all models.

    Raises:
        UsageError: the task has no such prompt.
    """
    names = _prompts(task, prompts)
    if task.kind == "multiple-choice":
        variants: list[dict[str, object]] = [{}]
    else:
        variants = _variants(_budgets(task, budgets), tell, conclude=conclude)
    return [
        Part(
            model=model.name,
            model_sha256=model.identity,
            model_reference=reference,
            prompt=name,
            template=template,
            **variant,
        )
        for name in names
        for variant in variants
        for reference, model in models
    ]


def _prompts(task: Task, names: Sequence[str]) -> list[str]:
    found = list(dict.fromkeys(names)) or [next(iter(task.prompts))]
    for name in found:
        task.prompt(name)
    return found


def _budgets(task: Task, budgets: Sequence[int]) -> list[int]:
    return sorted(set(budgets or task.budgets or DEFAULT_BUDGETS))


_TOLD: Mapping[BudgetTold, tuple[bool, ...]] = {
    "no": (False,),
    "yes": (True,),
    "both": (False, True),
}


def _variants(
    budgets: Sequence[int], tell: BudgetTold, *, conclude: bool
) -> list[dict[str, object]]:
    variants: list[dict[str, object]] = []
    for is_told in _TOLD[tell]:
        if is_told or conclude:
            variants += [
                {"budgets": (budget,), "is_told": is_told, "concludes": conclude}
                for budget in budgets
            ]
        else:
            variants.append({"budgets": tuple(budgets)})
    return variants


class EvaluationRequest(Value):
    """An evaluation as a person asks for it.

    Attributes:
        boards: that share the questions.
        models, task, data: as they are named.
        prompts, budgets: empty for the task's.
        tell: whether prompts state the budget.
        conclude: make the model answer at the end of the budget.
        template: for chats.
        limit: on the number of questions; none for all.
        grader: empty for the task's.
        parallel: questions per pass over the weights.
        computed: what else decides the answers, such as the type of the KV cache.
        adapters: that are added to each model.
        mmproj: the projector by which the model sees a task's images; empty for its own.
        image_max_tokens: of one image; none for the projector's own limit.
        program: that answers in place of armload's scorer; then there are no models.
    """

    boards: tuple[str, ...]
    models: tuple[str, ...]
    task: str
    data: str = ""
    prompts: tuple[str, ...] = ()
    budgets: tuple[int, ...] = ()
    tell: BudgetTold = "no"
    conclude: bool = False
    template: Template = "model"
    limit: int | None = None
    grader: str = ""
    parallel: int = 1
    computed: tuple[str, ...] = ()
    adapters: tuple[AdapterChoice, ...] = ()
    mmproj: str = ""
    image_max_tokens: int | None = None
    program: ProgramRequest | None = None

    def only_model(self, task: str) -> str:
        """Return the model, of a task that takes one model and one board.

        Raises:
            UsageError: there are several of either.
        """
        if len(self.models) != 1 or len(self.boards) != 1:
            raise UsageError(f"--task {task} takes one model and one board.", "Name one of each.")
        return self.models[0]


@dataclass(frozen=True, kw_only=True)
class PreparedEvaluation:
    """An evaluation with what it needs.

    Attributes:
        evaluated: its folder.
        task: what is asked.
        models: by part; none where a program answers that is not armload's.
        seen: what each model sees, by the name that a person gave it; nothing of a task without
            images.
        loaded: that program.
    """

    evaluated: EvaluationFolder
    task: Task
    models: tuple[Model, ...]
    seen: Mapping[str, SeenImages] = field(default_factory=dict)
    loaded: LoadedProgram | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """The program of armload's that answers; none for one that armload did not build."""
        if self.loaded is not None:
            return ()
        return (SEEING_SCORER if self.seen else SCORER,)


def prepare(asked: EvaluationRequest, progress: Progress, *, new: bool) -> PreparedEvaluation:
    """Read task, questions and models, and resume what the same command has begun.

    Args:
        new: start over instead.
    """
    task = load_task(asked.task)
    grader = asked.grader or task.grader
    if task.kind == "generate":
        check_grader(grader)
    questions = load_questions(task, asked.data, asked.limit, progress)
    if asked.program is not None:
        loaded = LoadedProgram.of(asked.program, progress)
        parts = loaded.parts(
            task,
            _prompts(task, asked.prompts),
            _budgets(task, asked.budgets),
            _TOLD[asked.tell],
            asked.template,
            is_said=len(set(asked.budgets)) == 1,
        )
        loaded.check(task, parts, questions)
        evaluated = _begun(asked, task, grader, questions, parts, progress, new=new)
        return PreparedEvaluation(evaluated=evaluated, task=task, models=(), loaded=loaded)
    models = {
        name: with_adapters(model_called(name, progress), asked.adapters, progress)
        for name in asked.models
    }
    _refuse_doubles(models)
    images = {image.sha256: _picture(image) for each in questions for image in each.images}
    seen = {
        name: _seen(asked, name, model, images, progress)
        for name, model in models.items()
        if images
    }
    parts = parts_of(
        task,
        list(models.items()),
        prompts=asked.prompts,
        budgets=asked.budgets,
        tell=asked.tell,
        conclude=asked.conclude,
        template=asked.template,
    )
    if seen:
        parts = [_seeing(part, seen[part.model_reference]) for part in parts]
    if task.kind == "generate" and asked.template == "model":
        templates = {name: _template_of(name, model) for name, model in models.items()}
        fitted = [
            fitted_part(task, part, templates[part.model_reference], questions[0]) for part in parts
        ]
        parts = [part for part, _ in fitted]
        for note in dict.fromkeys(note for _, note in fitted if note):
            progress.say(note)
    return PreparedEvaluation(
        evaluated=_begun(asked, task, grader, questions, parts, progress, new=new),
        task=task,
        models=tuple(models[part.model_reference] for part in parts),
        seen=seen,
    )


def _begun(
    asked: EvaluationRequest,
    task: Task,
    grader: str,
    questions: Sequence[Question],
    parts: Sequence[Part],
    progress: Progress,
    *,
    new: bool,
) -> EvaluationFolder:
    """Return an evaluation that begins, or that the same command has begun."""
    evaluation = new_evaluation(
        boards=asked.boards,
        task=task.name,
        kind=task.kind,
        grader=grader,
        parallel=asked.parallel,
        questions=questions,
        parts=parts,
        template_date=task.date if task.kind == "generate" else None,
        decisive=(task.model_dump_json(), str(asked.parallel), *asked.computed),
    )
    found = None if new else EvaluationFolder.resume(evaluation, progress)
    if found is not None:
        found.grade_by(grader)
        done = sum(len(found.answers(part)) for part in range(len(parts)))
        all_answers = counted(len(questions) * len(parts), "answer")
        progress.say(resuming(found.evaluation.id, f"{done} of {all_answers}"))
    return found or EvaluationFolder.begin_with(evaluation, questions)


def _picture(image: QuestionImage) -> Picture:
    if image.path is None:
        raise AssertionError("questions that come from their data know where their images are")
    return Picture(
        name=image.file,
        path=image.path,
        sha256=image.sha256,
        size_bytes=image.path.stat().st_size,
        width=image.width,
        height=image.height,
    )


def _seen(
    asked: EvaluationRequest,
    name: str,
    model: Model,
    images: Mapping[str, Picture],
    progress: Progress,
) -> SeenImages:
    """Return what a model sees, with the projector that it needs for that.

    Raises:
        UsageError: it sees nothing, or its projector takes no images.
        ArmloadError: as for ``find_projector``.
    """
    _, header = read_outline(model.path)
    projector = find_projector(asked.mmproj or AUTO, name, model.path, header, progress)
    if projector is None:
        raise UsageError(
            f"--mmproj {asked.mmproj}: task {asked.task} shows images, which need a projector.",
            "Remove --mmproj, or choose another task.",
        )
    if projector.encoder("vision") is None:
        raise UsageError(
            f"--model {name}: task {asked.task} shows images, which {projector.path.name} does not "
            "take.",
            "Choose a model with vision, or name another projector with --mmproj.",
        )
    most = asked.image_max_tokens
    check_takes(projector, model.path, header, most_tokens=most)
    return SeenImages(projector=projector, images=images, most_tokens=most)


def _seeing(part: Part, seen: SeenImages) -> Part:
    projector = seen.projector
    return part.model_copy(
        update={
            "projector": projector.path.name,
            "projector_sha256": projector.sha256,
            "image_max_tokens": seen.most_tokens,
        }
    )


def _template_of(name: str, model: Model) -> str:
    _, header = read_outline(model.path)
    template = header.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        raise UsageError(
            f"--model {name}: the model has no chat template.",
            "Use --template none, which sends the plain prompt, as for a base model, or "
            "--template chatml.",
        )
    return template


def _refuse_doubles(models: dict[str, Model]) -> None:
    files: dict[str, str] = {}
    file_names: dict[str, str] = {}
    for name, model in models.items():
        other = files.setdefault(model.sha256, name)
        if other != name:
            raise UsageError(f"--model: {other} and {name} are the same file.", "List it once.")
        other = file_names.setdefault(model.name, name)
        if other != name:
            raise UsageError(
                f"--model: {other} and {name} have the same file name, but the result identifies "
                "models by it.",
                "Rename one of the files, or evaluate each separately and compare the two: "
                "armload tradeoff EVALUATION EVALUATION",
            )


class _RejectedError(Exception):
    """What a template raises with ``raise_exception``."""


def rejection(template: str, messages: Sequence[Message], task: Task) -> str:
    """Return why a chat template rejects messages; empty where it does not.

    One that leaves a system message out rejects it too. One that Jinja cannot render, but llama.cpp
    perhaps can, rejects nothing.
    """
    # Templates come with models, so with anybody's text: they are rendered in a sandbox.
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(words: object) -> None:
        raise _RejectedError(str(words))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    values: Mapping[str, object] = {
        "messages": [each.model_dump() for each in messages],
        "add_generation_prompt": True,
        "bos_token": "",
        "eos_token": "",
        "raise_exception": raise_exception,
        "strftime_now": task.date.strftime,
        **task.template_arguments,
    }
    try:
        text = environment.from_string(template).render(values)
    except _RejectedError as error:
        return " ".join(str(error).split()) or "without a reason"
    except Exception:  # noqa: BLE001 - a template raises whatever its filters do
        return ""
    is_lost = any(each.role == "system" and each.content.strip() not in text for each in messages)
    return "it leaves the text out" if is_lost else ""


def fitted_part(task: Task, part: Part, template: str, question: Question) -> tuple[Part, str]:
    """Return a part whose messages a model's chat template takes, and what was changed for that.

    Where it rejects a system message, that text goes before the user's, as llama.cpp's own server
    has it.
    """
    prompt = task.prompt(part.prompt)
    merged = part.model_copy(update={"system_in_user": True})
    words = ""
    for each in (part, merged) if prompt.system else (part,):
        messages = render(
            *(prompt, question, part.max_tokens),
            tell=part.is_told,
            system_in_user=each.system_in_user,
        )
        rejected = rejection(template, messages, task)
        if not rejected:
            note = (
                f"{part.model}: its chat template rejects a system message ({words}). The task's "
                "system message is put at the beginning of the user's message."
            )
            return each, note if each.system_in_user else ""
        words = words or rejected
    raise UsageError(
        f"--model {part.model_reference}: its chat template rejects the messages of task "
        f"{task.name}: {words}.",
        "Use --template chatml or --template none, or change the prompt in the task's file.",
    )
