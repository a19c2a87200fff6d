"""Whether a service answers, before it is put under load."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from armload.analysis.load.records import RequestRecord
from armload.core.errors import ArmloadError, ConnectError, RunError, UsageError
from armload.serving.answer import REDIRECTED
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.openai import OpenAi, OpenAiChat
from armload.serving.dialects.registry import DIALECTS
from armload.serving.target import LoadTarget
from armload.serving.tokenizer import ServiceApi

_BAD, _UNAUTHORISED, _FORBIDDEN = 400, 401, 403
_NOT_FOUND, _NOT_ALLOWED, _NOT_IMPLEMENTED, _NOT_READY = 404, 405, 501, 503


def check_url(text: str) -> str:
    """Return a service's address without a path."""
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and parts.port != 0 and parts.hostname
    except ValueError:  # brackets or a port that make no sense
        is_address = None
    if not is_address:
        raise UsageError(
            f"--url {text!a}: must be the address of a service.", "Example: http://127.0.0.1:8080"
        )
    if parts.username or parts.query:
        raise UsageError(
            f"--url: the address of {parts.hostname} must not contain a user, key or query.",
            "Give a key with --api-key-file.",
        )
    return text.rstrip("/").removesuffix("/v1")


def check_service(target: LoadTarget, request: CompletionRequest, timeout_s: float) -> None:
    """Have one token generated, so that a service that cannot answer is found out at once.

    A refusal of this one request, such as of a prompt that is too long, is none of the service.
    """
    record = answer_alone(target, request.model_copy(update={"max_tokens": 1}), timeout_s)
    error = unreachable(target, record) or _misfit(target, record)
    if error is not None:
        raise error
    if target.dialect.name == OpenAiChat.name:
        _check_template(target, record)


def _check_template(target: LoadTarget, record: RequestRecord) -> None:
    if record.status == _BAD and "chat template" in record.error.lower():
        said = f"The server rejects chats: {record.error}"
    elif ServiceApi(target.url, target.api_key).lacks_chat_template():
        said = "The server would format chats as ChatML, whose markers the model does not know."
    else:
        return
    raise UsageError(
        f"{target.board or target.url}: {target.model} has no chat template. {said}",
        f"Use --dialect {OpenAi.name}, with prompts instead of messages in --data.",
    )


def answer_alone(target: LoadTarget, request: CompletionRequest, timeout_s: float) -> RequestRecord:
    """Send a request that is none of a load's, and return what became of it."""

    async def send() -> RequestRecord:
        async with connected(target.api_key) as session:
            client = Client(session, target.url, target.dialect, target.model, timeout_s)
            record = await client.send(request, number=0, scheduled_s=0.0)
        if record.outcome == "cancelled":
            raise asyncio.CancelledError  # or Ctrl-C would end nothing but this request
        return record

    return asyncio.run(send())


def unreachable(target: LoadTarget, record: RequestRecord) -> ArmloadError | None:
    """Return why a service answers nobody, or not this client; none where it does."""
    if record.outcome == "refused":
        return ConnectError(
            f"{target.url}: nothing answers there: {record.error}.",
            "Check the address, or start a service: armload serve --board BOARD --model MODEL",
        )
    if record.error.startswith(REDIRECTED):
        address = record.error.removeprefix(REDIRECTED).strip("'")
        place = address.removesuffix(target.dialect.path)
        return UsageError(
            f"{target.url}: {record.error}.",
            f"If that is the service that you mean, give its address: --url {place}",
        )
    if record.status in (_UNAUTHORISED, _FORBIDDEN):
        return UsageError(
            f"{target.url}: the service refuses the API key: {record.error}",
            "Give the file that holds its key: --api-key-file FILE.",
        )
    if record.status == _NOT_READY:
        return RunError(
            f"{target.url}: the service is not ready: {record.error}",
            "Try again when it has loaded its model.",
        )
    return None


def _misfit(target: LoadTarget, record: RequestRecord) -> ArmloadError | None:
    dialect = target.dialect
    others = ", ".join(each.name for each in DIALECTS if each is not dialect)
    if record.status in (_NOT_FOUND, _NOT_ALLOWED) or record.outcome == "malformed":
        return UsageError(
            f"{target.url}: the service does not speak dialect {dialect.name} at {dialect.path} "
            f"({record.error}).",
            f"Try --dialect with {others}.",
        )
    if record.status == _NOT_IMPLEMENTED or (
        record.status == _BAD and "pooling" in record.error.lower()
    ):
        return UsageError(
            f"{target.url}: the service does not support this: {record.error}",
            "For embeddings, serve the model with --embeddings model, or with --embeddings mean if "
            "its file specifies no pooling; for rankings, serve a reranker with --embeddings rank.",
        )
    if record.outcome == "timeout":
        return RunError(
            f"{target.url}: {record.error} to a request for one token.",
            "If it is that slow, give a longer --timeout.",
        )
    return None
