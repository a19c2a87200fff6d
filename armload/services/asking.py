"""Waiting for a service on a board, and asking it for its first tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from armload.boards.host import Host
from armload.core.errors import ConnectError, RunError
from armload.core.progress import Progress
from armload.core.shell import quote
from armload.core.values import format_seconds, visible
from armload.deploy.retry import with_retries
from armload.engines.server import LOOPBACK
from armload.services.state import ServiceOnBoard, SupervisorState, service_at
from armload.services.version import (
    AnsweredSpeed,
    AnsweredSpeeds,
    InstalledModel,
    ServiceLayout,
    ServiceVersion,
)
from armload.serving.dialects.dialect import CompletionRequest, Dialect
from armload.serving.dialects.openai import OpenAi, OpenAiEmbeddings, Rerank
from armload.serving.readiness import answer_alone
from armload.serving.target import LoadTarget

_LOOK_EVERY_S = 1.0
_BEGINS_WITHIN_S = 60
"""From the start of its unit, until there is a supervisor."""

_FINISHES_WITHIN_S = 300
"""A supervisor lets a version finish its requests before it starts the next one."""

_PROMPT = "Once upon a time"
_TOKENS, _REQUESTS = 16, 5
_FEWEST_REQUESTS, _ENOUGH_S = 2, 60.0
_ANSWERS_WITHIN_S = 900.0
_REFUSED = (401, 403)
_LOOKS_FOR_END = 3
_LOG_TAIL_BYTES, _LOG_LINES = 16384, 12


def wait_until_ready(
    host: Host,
    layout: ServiceLayout,
    version_id: str,
    progress: Progress,
    before: SupervisorState | None = None,
) -> ServiceOnBoard:
    """Wait until a version answers.

    Args:
        before: as noted before it was started; what was noted until then says nothing of it.

    Raises:
        RunError: it ended, another version runs in its place, or it takes longer than its
            supervisor would let it; says what it wrote last.
    """
    began_s = time.monotonic()
    most_s = _BEGINS_WITHIN_S + _FINISHES_WITHIN_S
    with progress.step(f"Starting {layout.service} on {host.name}") as step:
        while True:
            now = with_retries(lambda: service_at(host, layout))
            state = now.state if now is not None and now.is_alive else None
            waited_s = time.monotonic() - began_s
            if now is not None and state is None and now.condition in ("failed", "stopped"):
                left = now.state
                if left is not None and left.is_news(before):
                    why = left.last_end.what if left.last_end else now.condition
                    raise _failed(host, layout, why)
            is_its = state is not None and state.version == version_id
            if now is None or state is None or not is_its or state.is_same_start(before):
                if state is not None and state.fell_back is not None and state.is_news(before):
                    raise _failed(host, layout, f"it fell back: {state.fell_back.why}")
                if waited_s > (_BEGINS_WITHIN_S if state is None else most_s):
                    raise _failed(host, layout, "its unit did not start it")
            elif state.state == "ready":
                return now
            elif state.last_end is not None and state.is_news(before):
                raise _failed(host, layout, state.last_end.what)
            elif state.state in ("failed", "stopped"):
                raise _failed(host, layout, state.state)
            elif waited_s > most_s + (now.record.load_limit_s if now.record else 0):
                raise _failed(host, layout, f"{state.state} for {format_seconds(waited_s)}")
            step.update(0, note="loading the model")
            time.sleep(_LOOK_EVERY_S)


def _failed(host: Host, layout: ServiceLayout, why: str) -> RunError:
    tail = log_tail(host, layout, _LOG_TAIL_BYTES).splitlines()[-_LOG_LINES:]
    said = "".join(f"\n  {line}" for line in tail)
    return RunError(
        f"{host.name}: the service {layout.service} does not answer: {why}."
        + (f" Its last output:{said}" if said else " It printed nothing."),
        "Change the option that it names, or use a smaller model or context.",
    )


def log_tail(host: Host, layout: ServiceLayout, most_bytes: int) -> str:
    """Return the end of a service's log, without control characters."""
    log = quote(layout.log)
    script = (
        f'for each in {log}.1 {log}; do [ ! -f "$each" ] || tail -c {most_bytes:d} "$each"; done'
    )
    done = with_retries(lambda: host.run(script))
    return visible(done.stdout[-most_bytes:].decode("utf-8", "replace"))


@contextmanager
def reached(host: Host, record: ServiceVersion, port: int | None = None) -> Iterator[str]:
    """Let this machine reach a service within the block, and yield its URL.

    Args:
        port: of the board's loopback; none for that of the record.
    """
    with host.forwarded(port or record.listening.port) as forward:
        yield f"http://{LOOPBACK}:{forward.port}"


def ask(
    host: Host,
    layout: ServiceLayout,
    record: ServiceVersion,
    key: str,
    progress: Progress,
    port: int | None = None,
) -> AnsweredSpeeds:
    """Have every model of a service generate some tokens, and return how fast it did.

    Raises:
        RunError: one does not answer; says what it wrote last where its server has ended.
    """
    speeds = []
    with reached(host, record, port) as url:
        _check_keys(url, host.name)
        for model in record.models:
            with progress.step(f"Asking {model.alias} for {_TOKENS} tokens"):
                try:
                    speeds.append(_asked(url, key, model, host.name))
                except RunError as error:
                    if why := _ended(host, layout):
                        raise _failed(host, layout, f"its server ended: {why}") from error
                    raise
    return AnsweredSpeeds(models=tuple(speeds))


def _ended(host: Host, layout: ServiceLayout) -> str:
    """Return how the server of a service ended that was ready before; empty if it runs on."""
    for _ in range(_LOOKS_FOR_END):  # its supervisor hears of it after the client
        try:
            now = with_retries(lambda: service_at(host, layout))
        except ConnectError:
            return ""
        state = now.state if now is not None else None
        if state is not None and state.last_end and (state.restarts or state.child is None):
            return state.last_end.what
        time.sleep(_LOOK_EVERY_S)
    return ""


def _check_keys(url: str, board: str) -> None:
    """Make sure that nobody is answered without a key.

    Raises:
        RunError: somebody is.
    """
    with requests.Session() as session:
        session.trust_env = False  # a proxy's refusal is not the service's
        try:
            with session.get(
                f"{url}/v1/models", timeout=_ANSWERS_WITHIN_S, allow_redirects=False, stream=True
            ) as answer:
                status = answer.status_code
        except requests.RequestException as error:
            raise ConnectError(f"{board}: the service does not answer: {error}.") from error
    if status not in _REFUSED:
        raise RunError(
            f"{board}: the service answers without an API key (status {status}).",
            "Its file of keys may be empty: see armload service.keys.",
        )


def _asked(url: str, key: str, model: InstalledModel, board: str) -> AnsweredSpeed:
    pooling = model.plan.embeddings
    embeds = pooling is not None
    dialect: Dialect = OpenAi()
    if embeds:
        dialect = Rerank() if pooling == "rank" else OpenAiEmbeddings()
    target = LoadTarget(url=url, api_key=key, model=model.alias, dialect=dialect, board=board)
    words = {} if embeds else {"extra_body": {"cache_prompt": False}}
    request = CompletionRequest(prompt=_PROMPT, max_tokens=_TOKENS, ignores_end=not embeds, **words)
    times: list[float] = []
    text = ""
    began_s = time.monotonic()
    for number in range(_REQUESTS):
        if number >= _FEWEST_REQUESTS and time.monotonic() - began_s > _ENOUGH_S:
            break
        record = answer_alone(target, request, _ANSWERS_WITHIN_S)
        if record.outcome != "ok":
            why = record.error or record.outcome
            error = ConnectError if record.outcome == "refused" else RunError
            raise error(f"{board}: {model.alias} does not answer: {why}.")
        text = text if number else record.text
        timings = record.timings
        if timings and timings.generated_ms and (timings.generated_tokens or 0) > 1:
            times.append(timings.generated_ms / 1e3 / (timings.generated_tokens or 1))
    return AnsweredSpeed(model=model.alias, token_s=tuple(times), tokens=_TOKENS, text=text)
