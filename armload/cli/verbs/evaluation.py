"""``eval``: how often a model is right, and how long that takes on a board."""

from __future__ import annotations

from collections.abc import Mapping

from invoke.context import Context
from invoke.tasks import task as verb

from armload.cli.flags import JSON_HELP, SOURCE_HELP
from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_WAIT_S

_MODELS = "word-problems:Q8_0,word-problems:Q2_K"
_BOARD = "virtual"
_TASK = "word-problems"
_LOGITS = "logits"
_HARNESS = "lm-eval:"
_DEMO_TIME_S = 120


@verb(
    name="eval",
    klass=Verb,
    iterable=["cpus"],
    help={
        "board": "a board, such as virtual or dayu200; several share the questions: a,b (virtual)",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, or word-problems:TYPE; several: a,b "
        "(word-problems:Q8_0 and word-problems:Q2_K)",
        "type": "quantise the models to these file types first, such as Q4_K_M; several: "
        "a,b (as they are)",
        "task": "gsm8k, piqa, multiple-choice, word-problems, a YAML file, logits, or a task of "
        f"lm-evaluation-harness: lm-eval:NAME ({_TASK})",
        "data": "the task's questions: a file or hf:ORG/REPO/FILE (the task's own); for logits a "
        "file with a prompt on each line; for lm-eval a folder with more tasks",
        "prompt": "names of the task's prompts; several: a,b (its first)",
        "budget": "limits in tokens; the answer so far is graded at each: 50,100 (the task's)",
        "tell-budget": "no, yes or both: whether the prompt states the budget (no)",
        "conclude": "at the end of the budget, append a sentence that makes the model answer",
        "template": "the chat template: model (its own), chatml or none (model)",
        "limit": "take the first N questions (all)",
        "grader": "qwen, boxed, number, choice, exact or math_verify (the task's)",
        "parallel": "questions per pass over the weights (1)",
        "threads": "worker threads (chosen by the engine)",
        "cpus": "run on these cores only, such as 4-7 or 0,2 (all cores)",
        "context": "tokens of KV cache for each question (enough for the longest)",
        "kv-type": "type of the KV cache, such as f32 or q8_0 (f16)",
        "flash-attention": "on, off or auto; off: likelihoods depend less on the batch (auto)",
        "weights": "mapped, streamed or auto, as for bench (auto)",
        "resident": "part of streamed weights to lock in memory, such as 400MB (what fits)",
        "max-time": "stop asking after this time, such as 90s or 30m, shared by models and prompts "
        f"(none; {_DEMO_TIME_S}s without --model)",
        "reference": "for logits: a run of the same prompts, named as for show, a folder of .npy "
        "files, or llama-cpp-python, which then computes them on this machine",
        "fail-unless-close": "for logits: exit with 13 unless all are close to the reference's",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        "new": "start over instead of resuming an interrupted evaluation",
        "regrade": "grade the answers of this evaluation with --grader from now on; two graders, "
        "a,b: list where they disagree",
        **SOURCE_HELP,
        **JSON_HELP,
    },
)
def evaluate(
    c: Context,
    board: str = _BOARD,
    model: str = "",
    type: str = "",  # noqa: A002 - the name of the option
    task: str = _TASK,
    data: str = "",
    prompt: str = "",
    budget: str = "",
    tell_budget: str = "no",
    conclude: bool = False,
    template: str = "model",
    limit: str = "",
    grader: str = "",
    parallel: str = "",
    threads: str = "",
    cpus: list[str] | None = None,
    context: str = "",
    kv_type: str = "",
    flash_attention: str = "",
    weights: str = "",
    resident: str = "",
    max_time: str = "",
    reference: str = "",
    fail_unless_close: bool = False,
    wait: str = str(DEFAULT_WAIT_S),
    new: bool = False,
    regrade: str = "",
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    json: bool = False,
) -> None:
    """Measure the accuracy of models within budgets of tokens and of time.

    Answers are kept: an interrupted evaluation resumes when the command is repeated, and grading
    again needs no board. Without options, a small model is evaluated in two quantisations.
    Example: armload eval --board dayu200 --model a.gguf --task gsm8k --data q.jsonl
    """
    del c
    from armload.bench.options import typed_options
    from armload.cli.numbers import amount, duration_s, whole_number
    from armload.cli.parallel import board_names
    from armload.cli.present_evaluation import evaluate_and_present, regrade_and_present
    from armload.cli.typed_models import models_in
    from armload.core.errors import UsageError
    from armload.engines.scorer import MOST_PARALLEL
    from armload.evaluation.preparing import Asked
    from armload.evaluation.way import Way
    from armload.runs.session import Request

    if regrade:
        asking = {
            "--board": board != _BOARD,
            "--model": model,
            "--type": type,
            "--task": task != _TASK,
            "--data": data,
            "--prompt": prompt,
            "--budget": budget,
            "--tell-budget": tell_budget != "no",
            "--conclude": conclude,
            "--template": template != "model",
            "--limit": limit,
            "--parallel": parallel,
            "--threads": threads,
            "--cpus": cpus,
            "--context": context,
            "--kv-type": kv_type,
            "--flash-attention": flash_attention,
            "--weights": weights,
            "--resident": resident,
            "--max-time": max_time,
            "--reference": reference,
            "--fail-unless-close": fail_unless_close,
            "--wait": wait != str(DEFAULT_WAIT_S),
            "--new": new,
            "--source": source,
            "--ref": ref,
            "--compiler": compiler,
            "--on": on,
        }
        _refuse(asking, "--regrade", "It grades kept answers with --grader, and asks nothing.")
        regrade_and_present(regrade, _listed(grader), as_json=json)
        return
    if tell_budget not in ("no", "yes", "both"):
        raise UsageError(f"--tell-budget {tell_budget}: must be no, yes or both.")
    if template not in ("model", "chatml", "none"):
        raise UsageError(f"--template {template}: must be model, chatml or none.")
    time_s = duration_s("max-time", max_time) if max_time else 0.0 if model else float(_DEMO_TIME_S)
    asked = Asked(
        boards=tuple(board_names(board)),
        models=tuple(_listed(model or _MODELS)),
        task=task,
        data=data,
        prompts=tuple(_listed(prompt)),
        budgets=tuple(whole_number("budget", each, least=1) or 0 for each in _listed(budget)),
        tell=tell_budget,
        conclude=conclude,
        template=template,
        limit=whole_number("limit", limit, least=1),
        grader=grader,
        parallel=whole_number("parallel", parallel, least=1, most=MOST_PARALLEL) or 1,
        computed=tuple(
            f"{name}={value}"
            for name, value in {
                "kv-type": kv_type,
                "flash-attention": flash_attention,
                "context": context,
                "source": source,
                "ref": ref,
                "compiler": compiler,
            }.items()
            if value
        ),
    )
    (plan,) = typed_options(
        {
            name: text
            for name, text in {
                "threads": threads,
                "cpus": ",".join(cpus or ()),
                "context": context,
                "kv_type": kv_type,
                "flash_attention": flash_attention,
                "weights": weights,
                "resident": resident,
            }.items()
            if text
        }
    ).plans()
    way = Way(
        parallel=asked.parallel,
        threads=plan.threads,
        cpus=plan.cpus,
        context_tokens=plan.context_tokens,
        kv_type=plan.kv_type,
        flash_attention=plan.flash_attention,
        weights=plan.weights,
        resident_bytes=plan.resident_bytes,
        max_time_s=time_s or None,
    )
    request = Request(
        board=asked.boards[0],
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
        new=new,
    )
    if task != _LOGITS and (reference or fail_unless_close):
        raise UsageError("--reference and --fail-unless-close are options of --task logits.")
    if type and not model:
        raise UsageError("--type needs a model to quantise.", "Example: --model llama-f16.gguf")
    if task != _LOGITS and not task.startswith(_HARNESS):
        asked = asked.model_copy(update={"models": models_in(request, asked.models, type)})
        evaluate_and_present(request, asked, way, as_json=json)
        return
    unfit = {
        "--prompt": prompt,
        "--budget": budget,
        "--tell-budget": tell_budget != "no",
        "--conclude": conclude,
        "--template": template != "model",
        "--grader": grader,
        "--max-time": max_time,
    }
    is_file = prompt and task == _LOGITS
    _refuse(
        unfit,
        f"--task {task}",
        "Name the file of prompts with --data." if is_file else "Leave that out.",
    )
    asked = asked.model_copy(update={"models": models_in(request, asked.models, type)})
    if task.startswith(_HARNESS):
        from armload.cli.present_harness import harness_and_present

        harness_and_present(request, asked, way, as_json=json)
        return
    from armload.cli.present_logits import logits_and_present

    logits_and_present(
        request, asked, way, reference=reference, must_be_close=fail_unless_close, as_json=json
    )


def _refuse(options: Mapping[str, object], where: str, remedy: str) -> None:
    """Refuse options that do nothing there.

    Raises:
        UsageError: one of them has a value.
    """
    from armload.core.errors import UsageError

    if named := [option for option, value in options.items() if value]:
        raise UsageError(f"{', '.join(named)}: not for {where}.", remedy)


def _listed(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


@verb(
    klass=Verb,
    positional=["a", "b"],
    help={
        "a": "an evaluation: an id, its beginning or end, a folder or latest; of several models: "
        "EVALUATION:MODEL",
        "b": "another, named in the same way (the second model of A)",
        "times": "runs of the two models, a,b, whose times count in place of the answers' own; "
        "named as for show",
        "deadline": "compare after this many seconds; several: 30,60",
        **JSON_HELP,
    },
)
def tradeoff(
    c: Context,
    a: str = "latest",
    b: str = "",
    times: str = "",
    deadline: str = "",
    json: bool = False,
) -> None:
    """Say which of two models is more accurate within the same time.

    Example: armload tradeoff latest --deadline 30,60
    """
    del c
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.numbers import amount
    from armload.core.errors import UsageError
    from armload.core.values import ValueList
    from armload.evaluation.sides import Tradeoff, find_sides, trade
    from armload.report.evaluation.tradeoff import tradeoff_view
    from armload.report.evaluation.tradeoff_page import write_tradeoff_page
    from armload.report.layout import whole
    from armload.runs import store

    sides = find_sides(a, b)
    named = _listed(times)
    if len(named) not in (0, 2):
        raise UsageError(
            f"--times {times}: must name two runs, one of each model.", "Example: --times RUN,RUN"
        )
    runs = [store.load(store.find(name)) for name in named]
    found = trade(
        *sides,
        runs=(runs[0], runs[1]) if runs else None,
        deadlines_s=[amount("deadline", each) for each in _listed(deadline)],
    )
    if json:
        show_document(ValueList[Tradeoff](tuple(found)))
    else:
        terminal.show(tradeoff_view(found))
        terminal.show(whole(f"page  {write_tradeoff_page(sides, found)}"))
