"""Serve a model, say where it is reached, and show its log to a person."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

from armload.boards.forward import listening_on
from armload.cli import terminal
from armload.cli.streams import show_document
from armload.core.errors import BoardError, ConnectError, PermanentConnectError, TransferError
from armload.core.values import visible
from armload.engines.service_plan import ServingPlan
from armload.report.services import ServedModel, served_view
from armload.runs.request import Request
from armload.serving.front.app import Front, fronted
from armload.serving.front.llm_serving import DataForm, FrontedModel
from armload.serving.monitor import RETURNS_WITHIN_S
from armload.serving.service import Service
from armload.serving.starting import served
from armload.serving.tokenizer import ServiceApi

_LOOK_EVERY_S = 1.0


def serve_and_present(
    request: Request,
    model_name: str,
    plan: ServingPlan | None,
    *,
    detach: bool,
    port: int,
    as_json: bool,
    front: DataForm | None = None,
) -> None:
    """Serve a model until Ctrl-C, or leave it running with ``detach``.

    Args:
        port: of this machine; 0 for a free one.
        front: answer there in llm-serving's protocol, in this form of its events.

    Raises:
        ArmloadError: it cannot be served, or no longer is.
    """
    progress = terminal.progress()
    if front is not None:  # a port that is taken is reported before minutes pass
        listening_on(port, request.board).close()
    with ExitStack() as stack:
        to_server = port if front is None else 0
        service = stack.enter_context(
            served(request, model_name, plan, progress, detach=detach, port=to_server)
        )
        front_url = None
        if front is not None:
            front_url = stack.enter_context(fronted(_front(service, front), port, request.board))
        described = ServedModel.of(service, is_forwarded=not detach, front_url=front_url)
        if as_json:
            show_document(described)
        else:
            terminal.show(served_view(described, model_name))
        sys.stdout.flush()
        if ServiceApi(service.url, service.api_key).lacks_chat_template():
            progress.say(
                f"{service.model} has no chat template: chats are formatted as ChatML, whose "
                "markers it does not know. Use /v1/completions instead."
            )
        if not detach:
            _follow(service)


def _front(service: Service, form: DataForm) -> Front:
    job = service.job
    model = FrontedModel(
        name=service.model,
        quantisation=job.model.quantisation if job else "",
        slots=service.plan.slots,
        context_tokens=service.plan.context_tokens,
    )
    return Front(url=service.url, api_key=service.api_key, model=model, form=form)


def _follow(service: Service) -> None:
    try:
        while True:
            _check(service)
            print(visible(service.log()), end="", file=sys.stderr, flush=True)
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return


def _check(service: Service) -> None:
    """Raise why a service has ended; a board that restarted is waited for, and says it."""
    try:
        service.check()
        return
    except PermanentConnectError:
        raise
    except ConnectError as error:
        silence = error
    terminal.progress().say(f"{silence.message} Waiting for the board, to find out why.")
    until_s = time.monotonic() + RETURNS_WITHIN_S
    while time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)
        try:
            service.check(is_certain=True)
            return
        except PermanentConnectError:
            raise
        except (ConnectError, TransferError, BoardError):
            continue
    raise silence
