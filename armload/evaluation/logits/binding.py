"""Logits computed on this machine by llama-cpp-python: the same engine, in another binding.

A process of its own computes them: the package loads a compiled library that may end its process.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from armload.core.errors import MissingToolError, RunError
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.shell import pip_install
from armload.engines.plan import kv_halves
from armload.evaluation.logits.rows import Logits, logits_of_files
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.model import Model

BINDING = "llama-cpp-python"
_EXTRA = "llama-cpp-python==0.3.36"
_LAST_WORDS = 5


@contextmanager
def logits_by_binding(
    model: Model, prompts: Sequence[str], settings: ScorerSettings, progress: Progress
) -> Iterator[Logits]:
    """Compute the logits at all positions of prompts here; their files last as long as the block.

    Args:
        prompts: as they are, without a chat template. They are numbered from 1.
        settings: whose threads, KV cache and flash attention are used; the package chooses the
            threads where none are given.
    """
    if importlib.util.find_spec("llama_cpp") is None:
        raise MissingToolError(
            f"--reference {BINDING} needs that package, which is compiled when it is installed.",
            f"Install it: {pip_install(_EXTRA)}",
        )
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="reference-") as folder:
        tokens = _computed(model, prompts, settings, Path(folder), progress)
        computed = logits_of_files(Path(folder))
        yield Logits(name=BINDING, rows=computed.rows, tokens=tokens, failed={})


def _computed(
    model: Model, prompts: Sequence[str], settings: ScorerSettings, folder: Path, progress: Progress
) -> dict[str, tuple[int, ...]]:
    words = [sys.executable, "-P", "-m", "armload.evaluation.logits.binding_process"]
    from gguf import GGMLQuantizationType

    # Unless it is told, llama.cpp uses flash attention on a CPU.
    flash = settings.flash_attention != "off"
    halves = kv_halves(settings.kv_type or "f16")
    asked = {
        "model": str(model.path),
        "threads": settings.threads,
        "flash_attention": flash,
        "kv_types": [GGMLQuantizationType[each.upper()].value for each in halves],
        "folder": str(folder),
    }
    tokens: dict[str, tuple[int, ...]] = {}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
        progress.step(f"Logits by {BINDING}", total=len(prompts), unit="prompts") as step,
    ):
        assert process.stdin is not None  # noqa: S101 - for mypy
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(json.dumps({**asked, "prompts": list(prompts)}))
        process.stdin.close()
        for line in process.stdout:
            number, found = json.loads(line)
            tokens[number] = tuple(found)
            step.update(len(tokens))
        if process.wait() != 0:
            log.seek(0)
            said = " ".join(log.read().split("\n")[-_LAST_WORDS:]).strip()
            raise RunError(
                f"{BINDING} could not compute the logits of {model.name}: {said}",
                "Use another reference, or a model that this version of it supports.",
            )
    return tokens
