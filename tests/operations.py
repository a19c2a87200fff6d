"""What llama.cpp's programs say that a model computes, and how long that takes here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from armload.engines.footprint import FOOTPRINT_VARIABLE
from armload.engines.operations import (
    LIST,
    OPERATIONS_VARIABLE,
    Operations,
    Timed,
    read_operations,
    read_timed,
)
from armload.models.whole_header import WholeHeader

CONTEXT = 512
LIMIT_S = 60


def listed(completion: Path, model: WholeHeader) -> Operations:
    """List what a model computes with a KV cache of ``CONTEXT`` tokens."""
    found = read_operations(_answer(completion, model, LIST))
    assert found is not None
    return found


def timed(completion: Path, model: WholeHeader, numbers: Iterable[int]) -> list[Timed]:
    """Time operations of a model's list with one thread."""
    question = " ".join(map(str, (LIMIT_S, *numbers)))
    return list(read_timed(_answer(completion, model, question)))


def _answer(completion: Path, model: WholeHeader, question: str) -> str:
    words = [str(completion), "-m", "/nonexistent.gguf", "-p", "x", "-n", "1", "-no-cnv"]
    words += ["-c", str(CONTEXT), "-t", "1", "-fit", "off"]
    variables = {FOOTPRINT_VARIABLE: f"{model.file_bytes},1", OPERATIONS_VARIABLE: question}
    done = subprocess.run(
        words,
        input=model.content,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return done.stdout.decode("utf-8", "replace")
