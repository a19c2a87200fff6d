"""With whom a person talks: a service at an address, on a board, or one for the duration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from armload.boards.board import Board, is_group, load_board
from armload.boards.connect import connect
from armload.boards.naming import boards_called
from armload.core.defaults import DEMO
from armload.core.errors import ArmloadError, RunError, UsageError
from armload.core.progress import Progress
from armload.deploy.heartbeat import heartbeat
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries
from armload.engines.service_plan import ServingPlan
from armload.models.find import model_called
from armload.models.find_projector import AUTO
from armload.runs.api_keys import key_on_board
from armload.runs.request import Request
from armload.serving.dialects.openai import OpenAi, OpenAiChat
from armload.serving.listing import RunningService, services
from armload.serving.service import target_of_service
from armload.serving.starting import served
from armload.serving.target import LoadTarget
from armload.serving.tokenizer import ServiceApi, ServiceProperties

CONTEXT_TOKENS = 8192
"""Of a service that is started for a conversation, where the model was trained for as much: the
memory of the four slots that a service has by default."""

_NOTED_WITHIN_S, _LOOK_EVERY_S = 5.0, 0.5

_SERVERS_OWN: dict[str, Any] = {"reasoning_format": "auto"}
"""llama-server tells thoughts from the answer as the model's template writes them."""

_ON_BOARD: dict[str, Any] = {"cache_prompt": True}
"""A service that was started for measurements would compute the whole conversation each time."""


class ChatPartner:
    """A service that answers.

    Attributes:
        target: how it is asked.
        place: it, for messages.
        properties: of its model.
        extra_body: further keys of each request.

    Args:
        check: raises an ``ArmloadError`` where the service has ended; none where nobody can tell.
    """

    def __init__(
        self,
        target: LoadTarget,
        check: Callable[[], object] | None = None,
        *,
        is_ours: bool = False,
    ) -> None:
        self._api = ServiceApi(target.url, target.api_key)
        self._check = check
        self._is_ours = is_ours
        self.models = self._api.models()
        self.target = target
        self.place = target.board or target.url
        self.use(target.model)
        if self._api.lacks_chat_template(self.properties):
            self.target = replace(self.target, dialect=OpenAi())

    @property
    def extra_body(self) -> dict[str, Any]:
        """Further keys of each request."""
        is_llama = bool(self.properties.template)
        return {**(_SERVERS_OWN if is_llama else {}), **(_ON_BOARD if self._is_ours else {})}

    def why_gone(self) -> ArmloadError | None:
        """Return why a service that does not answer has ended; none if nothing is known of that.

        A board notes the end of a program a moment later than who is connected to it.
        """
        until_s = time.monotonic() + _NOTED_WITHIN_S
        while self._check is not None:
            try:
                self._check()
            except ArmloadError as error:
                return error
            if time.monotonic() > until_s:
                break
            time.sleep(_LOOK_EVERY_S)
        return None

    def use(self, model: str) -> None:
        """Ask a model of several from now on."""
        self.target = replace(self.target, model=model)
        self.properties = ServiceProperties()
        self.look_again()

    def look_again(self) -> None:
        """Ask what the model is like, where that was not known; a router may have loaded it now."""
        if self.properties == ServiceProperties():
            several = len(self.models) > 1
            self.properties = self._api.properties(self.target.model if several else "")


@contextmanager
def partner_on_board(
    request: Request,
    model: str,
    plan: ServingPlan | None,
    progress: Progress,
    *,
    shows_images: bool = False,
) -> Iterator[ChatPartner]:
    """Yield the service that runs on a board, or one that runs until the block ends.

    Args:
        model: empty for that of the service there, or else the usual one.
        plan: how to serve it; none takes a running service as it is.
        shows_images: one that is started has the model's projector, unless the plan names one.

    Raises:
        ArmloadError: there is none, and none can be started.
    """
    (name,) = boards_called([request.board])
    may_run = plan is None and not is_group(name)
    running = services(load_board(name), progress) if may_run else []
    found = _running(name, running, model)
    if found is not None:
        with _attached(load_board(name), found, progress) as partner:
            yield partner
        return
    chosen = model or DEMO
    trained_tokens = model_called(chosen, progress).context_length
    usual: dict[str, Any] = {"slots": 1, "context_tokens": min(CONTEXT_TOKENS, trained_tokens)}
    if shows_images:
        usual["mmproj"] = AUTO
    if plan is not None or (may_run and not running):
        given = {field: getattr(plan, field) for field in plan.model_fields_set} if plan else {}
        plan = ServingPlan.model_validate({**usual, **given})
    with served(
        request, chosen, plan, progress, usual=ServingPlan.model_validate(usual)
    ) as service:
        if not service.was_running:
            progress.say(f"{service.board} serves {service.model} until the conversation ends.")
        target = target_of_service(service, OpenAiChat())
        yield ChatPartner(target, partial(service.check, is_certain=True), is_ours=True)


def _running(board: str, every: Sequence[RunningService], model: str) -> RunningService | None:
    """Return the service of a model among those of a board, or the only one there.

    A model that is named by a file here is found by its content, when it is served.
    """
    if model:
        is_file = Path(model).expanduser().exists()
        names = {model, model.removesuffix(".gguf")}
        alike = [each for each in every if each.model.removesuffix(".gguf") in names]
        return alike[0] if alike and not is_file else None
    if len(every) > 1:
        listed = ", ".join(each.model for each in every)
        raise UsageError(f"{board} serves {listed}.", "Choose one with --model.")
    return every[0] if every else None


@contextmanager
def _attached(board: Board, service: RunningService, progress: Progress) -> Iterator[ChatPartner]:
    if service.port is None:
        raise RunError(
            f"{board.name} is still loading {service.model}.", "Repeat the command in a moment."
        )
    folder = Layout(workdir=board.workdir).run(service.run)

    def check() -> None:
        if with_retries(lambda: heartbeat(host, folder, look_only=True)).condition != "running":
            raise RunError(
                f"{board.name} no longer serves {service.model}.",
                f"Find out why: armload pull --board {board.name}, then armload show {service.run}",
            )

    with closing(connect(board, progress)) as host:
        key = key_on_board(host, board.workdir)
        with host.forwarded(service.port) as forward:
            target = LoadTarget(
                url=f"http://127.0.0.1:{forward.port}",
                api_key=key,
                model=service.model,
                dialect=OpenAiChat(),
                board=board.name,
                run=service.run,
            )
            yield ChatPartner(target, check, is_ours=True)
