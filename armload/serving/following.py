"""A service that a command keeps up: reached from this machine, and followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from armload.boards.forward import listening_on
from armload.core.errors import BoardError, ConnectError, PermanentConnectError, TransferError
from armload.core.progress import Progress
from armload.core.values import visible
from armload.engines.service_plan import ServingPlan
from armload.runs.request import Request
from armload.serving.front.app import Front, fronted
from armload.serving.front.llm_serving import DataForm, FrontedModel
from armload.serving.monitor import RETURNS_WITHIN_S
from armload.serving.service import Service
from armload.serving.starting import served
from armload.serving.tokenizer import ServiceApi

_LOOK_EVERY_S = 1.0


@contextmanager
def reached(
    request: Request,
    model_name: str,
    plan: ServingPlan | None,
    progress: Progress,
    *,
    detach: bool,
    port: int,
    front: DataForm | None = None,
) -> Iterator[tuple[Service, str | None]]:
    """Serve a model within the block, or leave it running with ``detach``.

    Args:
        port: of this machine; 0 for a free one.
        front: answer there in llm-serving's protocol, in this form of its events.

    Yields:
        The service, and the URL of its front, if it has one.

    Raises:
        ArmloadError: it cannot be served.
    """
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
        yield service, front_url


def _front(service: Service, form: DataForm) -> Front:
    job = service.job
    model = FrontedModel(
        name=service.model,
        quantisation=job.model.quantisation if job else "",
        slots=service.plan.slots,
        context_tokens=service.plan.context_tokens,
    )
    return Front(url=service.url, api_key=service.api_key, model=model, form=form)


def warn_of_chats(service: Service, progress: Progress) -> None:
    """Say what chats with a model that has no template are worth."""
    if ServiceApi(service.url, service.api_key).lacks_chat_template():
        progress.say(
            f"{service.model} has no chat template: chats are formatted as ChatML, whose "
            "markers it does not know. Use /v1/completions instead."
        )


def follow(service: Service, progress: Progress, log: Callable[[str], object]) -> None:
    """Pass a service's log on until Ctrl-C.

    Raises:
        ArmloadError: it is served no longer.
    """
    try:
        while True:
            _check(service, progress)
            log(visible(service.log()))
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return


def _check(service: Service, progress: Progress) -> None:
    """Raise why a service has ended; a board that restarted is waited for, and says it."""
    try:
        service.check()
        return
    except PermanentConnectError:
        raise
    except ConnectError as error:
        silence = error
    progress.say(f"{silence.message} Waiting for the board, to find out why.")
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
