"""The service that a load is put on: at an address, or started on a board for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.core.errors import UsageError
from armload.core.files import require_file, unreadable
from armload.core.progress import Progress
from armload.engines.service_plan import ServingPlan
from armload.runs.request import Request
from armload.serving.dialects.dialect import Dialect
from armload.serving.dialects.openai import OpenAiEmbeddings
from armload.serving.readiness import check_url
from armload.serving.service import target_of_service
from armload.serving.starting import served
from armload.serving.target import LoadTarget
from armload.serving.tokenizer import ServiceApi


def target_of(url: str, api_key_file: Path | None, dialect: Dialect, model: str) -> LoadTarget:
    """Describe a service that is reached by its address.

    Raises:
        UsageError: that is no address, or there is no such file of a key.
        DiskError: the file of the key cannot be read.
    """
    address = check_url(url)
    key = _key_in(api_key_file) if api_key_file else ""
    return LoadTarget(
        url=address,
        api_key=key,
        model=model or ServiceApi(address, key).model(),
        dialect=dialect,
    )


@contextmanager
def target_on_board(
    request: Request,
    model: str,
    plan: ServingPlan | None,
    dialect: Dialect,
    progress: Progress,
) -> Iterator[LoadTarget]:
    """Serve a model on a board within the block, or use the service that runs there.

    Raises:
        ArmloadError: it cannot be served.
    """
    usual = None
    if dialect.name == OpenAiEmbeddings.name:
        usual = ServingPlan(embeddings="model")
        if plan is not None and plan.embeddings is None:
            plan = plan.model_copy(update={"embeddings": usual.embeddings})
    with served(request, model, plan, progress, usual=usual) as service:
        if service.was_running:
            progress.say(f"{service.board} already serves {service.model}: {service.run}")
        yield target_of_service(service, dialect)


def _key_in(path: Path) -> str:
    require_file(path, "file of an API key", "Give another one with --api-key-file.")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise unreadable(path, error) from error
    if not text or not text.isascii() or len(text.split()) != 1:
        raise UsageError(f"{path}: must contain only an API key.")
    return text
