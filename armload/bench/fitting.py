"""Which models fit on a board, and how fast each would be, without uploading any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from armload.analysis.fitted import (
    FittedModel,
    fitted,
    recommendation,
    shortlist,
)
from armload.analysis.together import HeldModel, held_together
from armload.bench.clusters import (
    cluster_models,
    cluster_name,
    counted_hardware,
    how_many,
    node_counts,
)
from armload.bench.outlined import Media, OutlinedModel, outlined_models
from armload.boards.board import Board, VirtualReach, is_group, load_board
from armload.boards.group import Group, load_group, members_of
from armload.boards.hardware import ChosenHardware, all_hardware, load_hardware
from armload.core.errors import ConnectError, UsageError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.rates import measured_rates
from armload.engines.completion import PROGRAM, settings_of
from armload.engines.llama_cpp import check_architecture, likely_prompt_tokens
from armload.engines.perception import PERCEIVING_PROGRAM
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.engines.server import plan_for, serving_need
from armload.engines.service_plan import DEFAULT_SLOT_TOKENS, DEFAULT_SLOTS, ServingPlan
from armload.models.find_projector import NONE
from armload.models.published import is_smollm2
from armload.runs.forecast_members import DeclaredMember
from armload.runs.media import plan_with
from armload.runs.predicting import (
    group_prediction,
    predict_from_facts,
    predict_without_runs,
)
from armload.runs.reach import CONNECTED, EngineBoard, Reach
from armload.runs.request import Request
from armload.runs.session import leased_board, session
from armload.runs.texts import embedding_of

PATIENCE_S = 5.0
"""How long a board may not answer before its file is used instead."""

EngineName = Literal["llama.cpp", "dllama"]

_OF_A_SERVICE = {"context_tokens", "kv_type", "flash_attention"}
"""What a plan of a run says of a service's memory, too."""

EVERY = "all"
"""In place of names of hardware: the whole catalogue."""


class Fit(Value):
    """What is expected of models on a board.

    Attributes:
        board: its name.
        engine: that the models are predicted with; ``dllama`` on several boards of the catalogue.
        unreachable: why the facts in its file were used instead of the board; else empty.
        prompt_tokens: of the prompt that comes before the first token.
        models: in the order in which they were given; current models by speed.
        recommendation: which of them to take.
    """

    board: str
    engine: EngineName = "llama.cpp"
    unreachable: str = ""
    prompt_tokens: int
    models: tuple[FittedModel, ...]
    recommendation: str


class BoardsFit(Value):
    """What is expected of models on several boards, or on hardware of the catalogue.

    Attributes:
        boards: by the speed of the first model, the fastest first; ``board`` is the hardware's
            name where no board was named.
        recommendation: which of them to take.
    """

    boards: tuple[Fit, ...]
    recommendation: str


def fit(
    request: Request,
    model_names: Sequence[str],
    plan: Plan,
    progress: Progress,
    *,
    file_types: Sequence[str] = (),
    reach: Reach = CONNECTED,
    media: Media = Media(),  # noqa: B008 - frozen
) -> Fit:
    """Predict what models need of a board, and how fast they would be there.

    Args:
        request: where, and with which source.
        model_names: as for ``header_of``; none for the current models, in the usual types or in
            ``file_types``. For them nothing is timed on the board.
        plan: what each is to run.
        file_types: that the models would be quantised to; none for the models as they are. They
            are quantised only where that cannot be predicted from their headers.
        reach: how the board is reached.
        media: which image comes before the prompt, for models with a projector.
    """
    group = load_group(request.board) if is_group(request.board) else None
    if group is not None and (not model_names or file_types):
        raise UsageError(
            f"{group.name} is a group of boards, for which --model is needed, without --type.",
            "Name models as files, or on the hub.",
        )
    boards = members_of(request.board)
    if group is not None:
        if media.size is not None or media.projector.casefold() not in ("", NONE):
            raise UsageError(
                f"{group.name} is a group of boards, which divide a model of text alone.",
                "Remove --image-size and --mmproj, or name one board.",
            )
        media = Media(projector=NONE)
    outlined = outlined_models(
        request, model_names, file_types, progress, media, adapters=plan.adapters
    )
    programs: tuple[str, ...] = (PROGRAM,) if model_names else ()
    if any(each.question for each in outlined):
        programs += (PERCEIVING_PROGRAM,)
    unreachable = ""
    try:
        with reach.open(
            # Current models are predicted from facts, for which nothing need be built.
            *(request, programs, progress),
            settings=[settings_of(plan)],
            takes_groups=True,
            # Unlike a run, a prediction can do without the board.
            answers_within_s=PATIENCE_S,
        ) as there:
            models = [
                each.on_board(request.board, _predicted_there(there, each, plan))
                for each in outlined
            ]
    except ConnectError as error:
        unreachable = _said_unreachable(error, [board.name for board in boards], progress)
        models = [
            each.on_board(request.board, _predicted_from_facts(group, boards, each, plan))
            for each in outlined
        ]
    if not model_names:
        models.sort(key=_slowest_last)
    return Fit(
        board=request.board,
        unreachable=unreachable,
        prompt_tokens=likely_prompt_tokens(plan),
        models=tuple(models),
        recommendation=" ".join(
            (
                recommendation(request.board, models),
                *_service_of(models, outlined if model_names and group is None else (), plan),
            )
        ),
    )


def _said_unreachable(error: ConnectError, boards: Sequence[str], progress: Progress) -> str:
    """Say that the facts in the files of boards are used instead, and return why."""
    progress.say(error.message)
    if error.remedy:
        progress.say(error.remedy)
    files = ", ".join(f"boards/{board}.yaml" for board in boards)
    progress.say(f"Predicting from the facts in {files} instead.")
    return error.message


def _predicted_from_facts(
    group: Group | None, boards: Sequence[Board], outlined: OutlinedModel, plan: Plan
) -> Prediction:
    """Predict from the files of boards that do not answer."""
    if group is None:
        facts, target = boards[0].facts, boards[0].target
        its = _own(plan, outlined)
        return predict_from_facts(
            *(facts, target, outlined.model, its, outlined.header), media=outlined.media
        )
    declared = [DeclaredMember(board=board) for board in boards]
    return group_prediction(group, outlined.model, plan, declared)


def fit_hardware(
    request: Request,
    hardware_names: Sequence[str],
    model_names: Sequence[str],
    plan: Plan,
    progress: Progress,
    *,
    file_types: Sequence[str] = (),
    media: Media = Media(),  # noqa: B008 - frozen
) -> BoardsFit:
    """Predict how models would do on hardware of the catalogue; no board is asked.

    Args:
        request: with which source models are quantised, where that is needed.
        hardware_names: as for ``load_hardware``, or ``all`` of the catalogue; with a number, as
            ``counted_hardware`` reads it, several boards are compared with one.
        model_names, plan, file_types, media: as for ``fit``.
    """
    wanted: dict[str, tuple[ChosenHardware, int]] = {}
    if EVERY in hardware_names:
        wanted = {each.name: (each, 0) for each in all_hardware()}
    for count, name in map(counted_hardware, hardware_names):
        if name != EVERY:
            chosen = load_hardware(name)
            _, before = wanted.get(chosen.name, (chosen, 0))
            wanted[chosen.name] = (chosen, max(count, before))
        elif count:
            raise UsageError(
                f"--hardware {count}x {EVERY}: a number of boards is of one kind of hardware.",
                f"Name it, such as {count}x-raspberry-pi-5-8gb, or use {EVERY} alone.",
            )
    check_compares(sum(1 + count for _, count in wanted.values()), model_names)
    outlined = outlined_models(
        request, model_names, file_types, progress, media, adapters=plan.adapters
    )
    boards: list[Fit] = []
    advice: list[str] = []
    with progress.step("Predicting", total=len(wanted), unit="boards") as step:
        for done, (each, count) in enumerate(wanted.values()):
            step.update(done)
            boards.append(_fit_one(each, outlined, plan, is_listing=not model_names))
            if count:
                clusters = _fit_clusters(count, each, outlined, plan)
                advice += _how_many(boards[-1], clusters)
                boards += clusters.values()
        step.update(len(wanted))
    return compared(boards, model_names, advice)


def _fit_clusters(
    count: int, chosen: ChosenHardware, outlined: Sequence[OutlinedModel], plan: Plan
) -> dict[int, Fit]:
    return {
        nodes: Fit(
            board=cluster_name(nodes, chosen),
            engine="dllama",
            prompt_tokens=likely_prompt_tokens(plan),
            models=(models := cluster_models(nodes, chosen, outlined, plan)),
            recommendation=" ".join(each.sentence for each in models),
        )
        for nodes in node_counts(count)
    }


def _how_many(alone: Fit, clusters: Mapping[int, Fit]) -> list[str]:
    return [
        how_many(one.model, one, {count: each.models[number] for count, each in clusters.items()})
        for number, one in enumerate(alone.models)
    ]


def check_compares(boards: int, model_names: Sequence[str]) -> None:
    """Refuse to list the current models for several boards."""
    if boards > 1 and not model_names:
        raise UsageError(
            "To compare several boards, name the models.",
            "Use --model, or name one board or --hardware to list the current models for it.",
        )


def compared(
    fits: Sequence[Fit], model_names: Sequence[str], numbers: Sequence[str] = ()
) -> BoardsFit:
    """Put boards into the order of their speed, and say which to take.

    Args:
        fits: at least one.
        numbers: what is to be said of numbers of boards.
    """
    boards = sorted(fits, key=lambda found: _slowest_last(found.models[0]))
    single = [found for found in boards if found.engine == "llama.cpp"]
    if len(boards) == 1:
        advice = [boards[0].recommendation]
    elif len(single) == 1:
        advice = [*numbers]
    else:
        found = [(each.board, each.models[0]) for each in single]
        advice = [*numbers, shortlist(model_names[0], found)]
    return BoardsFit(boards=tuple(boards), recommendation=" ".join(advice))


def _fit_one(
    chosen: ChosenHardware, outlined: Sequence[OutlinedModel], plan: Plan, *, is_listing: bool
) -> Fit:
    models = tuple(
        fitted(
            *(each.name, chosen.name, each.model),
            predict_from_facts(
                *(chosen.specs, chosen.hardware.target, each.model),
                *(_own(plan, each), each.header),
                media=each.media,
            ),
            family=each.family,
            has_file=each.has_file,
        )
        for each in outlined
    )
    if is_listing:
        models = tuple(sorted(models, key=_slowest_last))
    return Fit(
        board=chosen.name,
        prompt_tokens=likely_prompt_tokens(plan),
        models=models,
        recommendation=" ".join(
            (
                recommendation(chosen.name, models),
                *_service_of(models, () if is_listing else outlined, plan),
            )
        ),
    )


def _service_of(
    models: Sequence[FittedModel], outlined: Sequence[OutlinedModel], plan: Plan
) -> Iterator[str]:
    """Say whether one service holds several models at a time, each with the usual slots."""
    held, free_bytes = [], []
    for each, its in zip(models, outlined, strict=False):
        found = each.prediction
        if found.memory is None or found.verdict == "cannot run":
            return
        settings = plan.model_dump(include=_OF_A_SERVICE, exclude_none=True)
        if found.texts is not None:
            settings["embeddings"] = "model"
        settings["context_tokens"] = min(
            settings.get("context_tokens", DEFAULT_SLOT_TOKENS), its.model.context_length
        )
        its_plan = plan_for(its.model, ServingPlan.model_validate(settings))
        kv_bytes = serving_need(its_plan, its.model).kv_bytes
        needed_bytes = found.memory.weights_bytes + found.memory.program_bytes + kv_bytes
        load_s = found.load_s.value if found.load_s else None
        held.append(HeldModel(each.model, needed_bytes, load_s))
        free_bytes.append(found.memory.available_bytes - found.memory.reserve_bytes)
    if len(held) > 1:
        said = held_together(held, min(free_bytes)).sentence
        yield f"As one service, with {DEFAULT_SLOTS} slots for each: {said}"


def _predicted_there(board: EngineBoard, outlined: OutlinedModel, plan: Plan) -> Prediction:
    its = _own(plan, outlined)
    if outlined.header is None:
        return predict_without_runs(board.where, outlined.model, its, outlined.media)
    check_architecture(board.where.binaries[PROGRAM], outlined.model)
    return board.predict(outlined.model, outlined.header, its, outlined.question)


def _own(plan: Plan, outlined: OutlinedModel) -> Plan:
    """Return what a model is to run: with an image, or embedding texts, where it does that."""
    return embedding_of(plan_with(plan, outlined.media), outlined.model)


def _slowest_last(model: FittedModel) -> tuple[float, int, int]:
    found = model.prediction
    wanted_bytes = found.memory.wanted_bytes if found.memory else 0
    time_s = found.unit_s.value if found.unit_s else math.inf
    return (time_s, wanted_bytes, model.size_bytes)


def first_models(request: Request, plan: Plan, progress: Progress) -> tuple[FittedModel, ...]:
    """Return the models to choose the first one from, the fastest first, as ``fit`` lists them.

    The board's memory and storage are measured before, as they would be for the first run. None
    is returned where none stays in the board's memory, or where the board is emulated: the
    smallest of them is too slow there.

    Args:
        plan: what each is to run.
    """
    if isinstance(load_board(request.board).reach, VirtualReach):
        return ()
    with session(request, (), progress) as where, leased_board(where, progress):
        connection = where.connection
        measured_rates(connection.host, connection.board, where.found, progress)
    return proposed(fit(request, (), plan, progress))


def proposed(found: Fit) -> tuple[FittedModel, ...]:
    """Return those of the current models that have a file, stay in memory and write sense."""
    return tuple(
        each
        for each in found.models
        if each.has_file and each.prediction.verdict == "fits" and not is_smollm2(each.model)
    )
