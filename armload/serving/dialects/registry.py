"""Every dialect, by its name."""

from __future__ import annotations

from armload.core.errors import UsageError
from armload.serving.dialects.dialect import Dialect
from armload.serving.dialects.llama_server import LlamaServer
from armload.serving.dialects.llm_serving import LlmServing
from armload.serving.dialects.openai import OpenAi, OpenAiChat, OpenAiEmbeddings

DIALECTS: tuple[Dialect, ...] = (
    OpenAi(),
    OpenAiChat(),
    OpenAiEmbeddings(),
    LlamaServer(),
    LlmServing(),
)


def dialect_named(name: str) -> Dialect:
    """Return a dialect."""
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    names = ", ".join(dialect.name for dialect in DIALECTS)
    raise UsageError(f"--dialect {name!a}: there is no such dialect.", f"The dialects are {names}.")
