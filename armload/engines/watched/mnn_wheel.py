"""An MNN model under the Python wheel that a board has."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from armload.core.errors import UsageError
from armload.core.workspace import data_path
from armload.engines.watched.engine import WatchRequest

CONFIG = "config.json"
_SCRIPT = "mnn_answer.py"


def with_wheel(
    request: WatchRequest,
    model: Path,
    *,
    prompt: str,
    tokens: int,
    python: str,
    folder: Path,
) -> WatchRequest:
    """Return a request that lets the wheel answer a prompt.

    Args:
        request: how long it may take, and what else it needs.
        model: an MNN model's folder, with its ``config.json``.
        tokens: to generate, at most.
        folder: on this machine, for the prompt's file while the request lasts.
    """
    if not (model.expanduser() / CONFIG).is_file():
        raise UsageError(
            f"--mnn-python {model}: this folder has no {CONFIG}.",
            "Use the folder that MNN's llmexport wrote.",
        )
    if tokens < 1:
        raise UsageError("-n 0: generate at least one token.")
    try:
        content = prompt.encode()
    except UnicodeEncodeError as error:
        raise UsageError("--prompt: this is not valid UTF-8.") from error
    if not content.strip():
        raise UsageError("--prompt: the prompt is empty.")
    # Its name tells two prompts apart wherever only the command line is seen.
    file = folder / f"prompt-{hashlib.sha256(content).hexdigest()[:12]}.txt"
    file.write_bytes(content)
    script = data_path("deploy", _SCRIPT)
    name = Path(os.path.normpath(model.expanduser().absolute())).name
    words = (python, script.name, f"{name}/{CONFIG}", file.name, str(tokens))
    return request.model_copy(
        update={
            "words": words,
            "put": (*request.put, model, script, file),
            "reads": "mnn",
            "name": request.name or name,
            "wheel_python": python,
            "n_predict": tokens,
        }
    )
