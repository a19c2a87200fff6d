"""Starting a service on a board, or finding the one that runs there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from armload.boards.board import is_group
from armload.boards.forward import listening_on
from armload.boards.naming import boards_called
from armload.core.errors import ConnectError, UsageError
from armload.core.progress import Progress
from armload.engines.engine import Forecastable, Settings
from armload.engines.plan import Plan
from armload.engines.server import SERVER, Serving, plan_for
from armload.engines.service_plan import ServingPlan
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.find_projector import NONE, find_projector
from armload.models.gguf import read_outline
from armload.models.model import Model
from armload.models.projector import Projector
from armload.models.projector_choice import check_takes
from armload.runs.api_keys import key_on_board, new_key
from armload.runs.pipeline import underway
from armload.runs.predicting import predictor_of
from armload.runs.request import Request
from armload.runs.session import Session, session
from armload.serving.listing import services_at
from armload.serving.service import Service


@contextmanager
def served(
    request: Request,
    model_name: str,
    plan: ServingPlan | None,
    progress: Progress,
    *,
    detach: bool = False,
    port: int = 0,
    usual: ServingPlan | None = None,
) -> Iterator[Service]:
    """Serve a model on a board within the block, or use the service that already does.

    A service that this starts ends with the block, and soon after this process if that is killed,
    unless ``detach``. Its run is kept then. One that was detached before goes on.

    Args:
        model_name: as for ``bench``.
        plan: how to serve it; none takes a running service of that model as it is, or the
            defaults.
        detach: let it go on after the block, until ``stop_service``.
        port: of this machine; 0 for a free one.
        usual: in place of the defaults.
    """
    (board,) = boards_called([request.board])
    if detach and is_group(board):
        raise UsageError(
            f"--detach: {board} is a group of boards, which this command keeps connected.",
            "Omit --detach, and let the command run.",
        )
    listening_on(port, board).close()  # a port that is taken is reported before minutes pass
    embeds = plan is not None and plan.embeddings is not None
    model = model_called(model_name, progress, or_embeds=embeds)
    if plan is not None:
        projector_for(model, plan, progress, model_name)  # one that does not fit, before a build
    settings = [Settings(cpus=plan.cpus, threads=plan.threads)] if plan else []
    with (
        session(request, (SERVER,), progress, settings=settings, takes_groups=True) as where,
        served_there(
            *(where, model, plan, progress),
            model_name=model_name,
            new=request.new,
            detach=detach,
            port=port,
            usual=usual,
        ) as service,
    ):
        yield service


@contextmanager
def served_there(
    where: Session,
    model: Model,
    plan: ServingPlan | None,
    progress: Progress,
    *,
    model_name: str = "",
    new: bool,
    detach: bool = False,
    port: int = 0,
    usual: ServingPlan | None = None,
) -> Iterator[Service]:
    """Do what ``served`` does, on a board that is reached already and with the server built.

    Args:
        model_name: what it was called, where it may have come from a hub.
        new: start a service, even if the same one was left there.
    """
    connection = where.connection
    chosen = plan or _running_plan(where, model) or usual
    key = new_key()
    whole = plan_for(model, chosen)
    model = with_adapters(model, whole.adapters, progress)
    engine = Serving(
        *(whole, where.binaries[SERVER], model),
        api_key=key,
        draft=draft_of(whole, progress),
        projector=projector_for(model, whole, progress, model_name),
    )
    with ExitStack() as stack:
        with ExitStack() as reaching:
            # A service's time has no end: only a board that cannot hold the model is refused.
            one = Forecastable(model=model, plan=one_request(engine.plan))
            predictor = predictor_of(where, one, progress)
            it = reaching.enter_context(
                underway(where, engine, progress, new=new, predictor=predictor)
            )
            stack.push(it.servers_block.pop_all())
            if it.was_running:
                key = key_on_board(connection.host, connection.board.workdir)
            boot_id = where.found.conditions.boot_id
            service = Service(it, engine, key, boot_id=boot_id)
            stack.enter_context(service.reached(progress, local_port=port, detach=detach))
        with _ended(service, progress):
            yield service


@contextmanager
def _ended(service: Service, progress: Progress) -> Iterator[None]:
    try:
        yield
    finally:
        if not service.is_detached:
            progress.say(f"Stopping the service on {service.board}.")
            try:
                service.end()
            except ConnectError as error:
                progress.say(
                    f"{error.message} The service stops by itself when no command keeps it "
                    f"running. Fetch its run later: armload pull --board {service.board}"
                )


def _running_plan(where: Session, model: Model) -> ServingPlan | None:
    connection = where.connection
    for service in services_at(connection.host, connection.board):
        if service.model_sha256 == model.sha256:
            return service.plan
    return None


def one_request(plan: ServingPlan) -> Plan:
    """Return the plan of the shortest request, as predictions take it."""
    return Plan(
        prompt_tokens=2,
        n_predict=1,
        context_tokens=plan.context_tokens,
        threads=plan.threads,
        cpus=plan.cpus,
        kv_type=plan.kv_type,
        weights=plan.weights,
        resident_bytes=plan.resident_bytes,
        speculate=plan.speculate,
    )


def projector_for(
    model: Model, plan: ServingPlan, progress: Progress, reference: str
) -> Projector | None:
    """Return the projector by which a service takes images and sounds; none for text alone."""
    header = read_outline(model.path)[1]
    found = find_projector(plan.mmproj or NONE, reference, model.path, header, progress)
    if found is None and plan.image_max_tokens is not None:
        raise UsageError(
            f"--image-max-tokens {plan.image_max_tokens}: it has no effect without a projector.",
            "Add --mmproj auto, or remove --image-max-tokens.",
        )
    if found is not None:
        check_takes(found, model.path, header, most_tokens=plan.image_max_tokens)
    return found


def draft_of(plan: ServingPlan, progress: Progress) -> Model | None:
    """Return the model that guesses tokens; it is made or downloaded when it is missing."""
    return None if plan.draft_model is None else model_called(plan.draft_model, progress)
