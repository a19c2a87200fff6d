"""From what a person calls a model to its file."""

from __future__ import annotations

from pathlib import Path

from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.workspace import cache_folder
from armload.models import hub
from armload.models.synth import DEMO_QUANTISATION, DEMO_SEED, DEMO_SHAPE, GENERATION, synthesise

DEMO = "demo"
"""The name of the model of random weights that armload makes itself."""


def resolve(reference: str, progress: Progress) -> Path:
    """Return the file of a model: a path, ``hf:ORG/REPO/FILE.gguf``, or ``demo``.

    The demo's model is made, and a model of the hub downloaded, when it is not there yet.
    A file that is itself called ``demo`` is ``./demo``.

    Raises:
        UsageError: there is no such file.
        MissingToolError: the hub is asked for and its package is not installed.
        ConnectError: the hub cannot be reached.
    """
    if reference == DEMO:
        return demo_model(progress)
    if reference.startswith(hub.PREFIX):
        return hub.fetch(reference, progress)
    path = Path(reference).expanduser()
    if not path.exists():
        raise UsageError(
            f"There is no model {reference}.",
            f"Give a GGUF file, hf:ORG/REPO/FILE.gguf, or {DEMO!r} for one of random weights.",
        )
    return path


def demo_model(progress: Progress) -> Path:
    """Return the demo's model; make it when it is missing."""
    shape = DEMO_SHAPE
    sizes = f"{shape.layers}x{shape.width}-{DEMO_QUANTISATION.lower()}-seed{DEMO_SEED}"
    path = cache_folder() / "models" / f"made-{GENERATION}" / f"random-{sizes}.gguf"
    if not path.is_file():
        synthesise(shape, path, quantisation=DEMO_QUANTISATION, seed=DEMO_SEED, progress=progress)
    return path
