"""What a board, or a program on it, is asked once: the question, and where the answer is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from armload.boards.host import Host
from armload.core.files import write_whole
from armload.core.places import cache_folder
from armload.core.shell import call, join
from armload.core.values import Value
from armload.deploy.retry import with_retries
from armload.engines.engine import Simulation
from armload.engines.footprint import FOOTPRINT_VARIABLE
from armload.models.whole_header import WholeHeader

Kept = TypeVar("Kept", bound=Value)


def answer_of(
    host: Host, asked: Simulation, header: WholeHeader, *, timeout_s: float, also: str = ""
) -> str:
    """Let a program on a board say what it would do with a model; return what it wrote.

    It gets the model's header, and no weights.

    Args:
        also: further variables for it, as words of a shell.

    Raises:
        ConnectError: the board does not answer, or not in that time.
    """
    size = f"{header.file_bytes},{asked.batch_tokens}"
    # Its threads together take more time of the CPUs than it is waited for.
    command = f"{call('lift_time')}{FOOTPRINT_VARIABLE}={size} {also} {join(asked.command)}"
    done = with_retries(lambda: host.run(command, stdin=header.content, timeout_s=timeout_s))
    return f"{done.text}\n{done.stderr.decode('utf-8', 'replace')}"


def cached_path(name: str, identity: Sequence[object], content: bytes = b"") -> Path:
    """Return where on this machine an answer is kept.

    Args:
        name: the folder of the cache, and of the kind of answer: ``operations/times``.
        identity: what it depends on, as JSON's types, and the bytes that follow it.
    """
    key = hashlib.sha256(json.dumps(identity, sort_keys=True, default=sorted).encode())
    key.update(content)
    return cache_folder() / f"{name}-{key.hexdigest()[:16]}.json"


def read_cached(kind: type[Kept], kept: Path) -> Kept | None:
    """Read a value that was kept; none where there is none."""
    try:
        return kind.model_validate_json(kept.read_bytes())
    except (OSError, ValueError):
        return None


def write_cached(kept: Path, value: Value) -> None:
    """Keep a value there, unless this machine has no room for it."""
    with suppress(OSError):
        write_whole(kept, value.model_dump_json().encode())
