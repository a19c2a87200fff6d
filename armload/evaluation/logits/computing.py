"""Computing the logits of prompts: on a board, and here by what they are compared with.

Here, llama-cpp-python computes them, the same engine in another binding, in a process of its own:
the package loads a compiled library that may end its process. Or distributed-llama does: what its
kernels make of the same model.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from armload.build.builder import build
from armload.build.programs import DLLAMA, SCORER
from armload.build.source import pinned_source
from armload.build.target import HOST, load_target
from armload.conversion.distributed import converted_files
from armload.core.errors import DataError, MissingToolError, RunError, UsageError
from armload.core.files import require_file, unreadable
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.shell import pip_install
from armload.core.values import format_bytes
from armload.engines.answers import TokenizedAnswer, read_answers
from armload.engines.distributed import ConvertedFiles
from armload.engines.plan import kv_halves
from armload.evaluation.logits.agreement import Agreement, agreement
from armload.evaluation.logits.rows import (
    FLOAT_BYTES,
    Logits,
    logits_called,
    logits_of_files,
    logits_of_run,
)
from armload.evaluation.preparing import EvaluationRequest
from armload.evaluation.scorer_run import answer_items
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.reach import CONNECTED, Reach
from armload.runs.request import Request

NODES = "dllama"

_Words = Sequence[str | Path]


@contextmanager
def logits_by_a_node(
    model: Model, prompts: Sequence[str], settings: ScorerSettings, progress: Progress
) -> Iterator[Logits]:
    """Compute the logits at all positions of prompts here; their files last as long as the block.

    One node computes all: the number of nodes changes no logit by more than the order of sums does.

    Args:
        prompts: as they are, without a chat template. They are numbered from 1.
        settings: whose threads are used; else there is one for each core of this machine.

    Raises:
        UsageError: distributed-llama cannot run the model.
        ArmloadError: its program cannot be built, or does not run.
    """
    import numpy as np

    converted = converted_files(model, progress)
    target = load_target(HOST)
    source = pinned_source("distributed-llama")
    (node,) = build(target, programs=(DLLAMA,), source=source, progress=progress)
    (scorer,) = build(target, programs=(SCORER,), progress=progress)
    threads = settings.threads or os.cpu_count() or 1
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="reference-") as name:
        folder = Path(name)
        tokens = _tokens(scorer.path, converted, prompts, folder)
        rows = {}
        with progress.step(f"Logits by {NODES}", total=len(tokens), unit="prompts") as step:
            for done, (number, its) in enumerate(tokens.items(), start=1):
                prompt, made = folder / f"{number}.json", folder / f"{number}.f32"
                prompt.write_text(json.dumps({"tokens": its}, separators=(",", ":")))
                words: _Words = [node.path, "root", "--model", converted.weights.local]
                words = [*words, "--prompt", prompt, "--logits", made, "--threads", str(threads)]
                _run([*words, "--context", str(len(its))], model.name)
                shape = (len(its), converted.facts.vocabulary)
                rows[number] = np.memmap(made, dtype="<f4", mode="r", shape=shape)
                step.update(done)
        yield Logits(name=NODES, rows=rows, tokens=tokens, failed={})


def _tokens(
    scorer: Path, converted: ConvertedFiles, prompts: Sequence[str], folder: Path
) -> dict[str, tuple[int, ...]]:
    """Let llama.cpp tokenize prompts, as it does for runs."""
    items, answers = folder / "items.jsonl", folder / "answers.jsonl"
    asked = (
        {"id": str(number), "kind": "tokenize", "text": prompt}
        for number, prompt in enumerate(prompts, start=1)
    )
    items.write_text("".join(json.dumps(each) + "\n" for each in asked))
    words: _Words = [scorer, "-m", converted.vocabulary.local, "--vocab-only", "--items", items]
    answers.write_bytes(_run(words, converted.facts.name))
    found = read_answers(answers)
    return {each.id: each.tokens for each in found if isinstance(each, TokenizedAnswer)}


def _run(words: _Words, model_name: str) -> bytes:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise RunError(
            f"{NODES} could not compute the logits of {model_name}: {said}",
            "Use another reference.",
        )
    return done.stdout


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


def read_prompts(path: Path, limit: int | None = None) -> tuple[str, ...]:
    """Read a file with a prompt on each line; empty lines count for nothing.

    Args:
        limit: take the first so many only.
    """
    require_file(path, "file of prompts", "Give a text file with a prompt on each line.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Save it as UTF-8.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    prompts = tuple(line for line in lines if line.strip())[:limit]
    if not prompts:
        raise UsageError(f"{path} holds no prompts.", "Write a prompt on each line.")
    return prompts


def compute_logits(
    request: Request,
    model: Model,
    prompts: Sequence[str],
    settings: ScorerSettings,
    progress: Progress,
    *,
    reach: Reach = CONNECTED,
) -> Path:
    """Compute the logits at all positions of prompts; return the run's folder.

    Args:
        prompts: as they are, without a chat template. They are numbered from 1.
        reach: how the board is reached.
    """
    items = logits_items(model, prompts, progress)
    return answer_items(request, model, items, settings, progress, reach=reach)


def logits_items(
    model: Model, prompts: Sequence[str], progress: Progress
) -> list[dict[str, object]]:
    """Return what asks the scorer for the logits at all positions of prompts; say their size."""
    items: list[dict[str, object]] = [
        {"id": str(number), "kind": "logits", "prompt": prompt, "positions": "all"}
        for number, prompt in enumerate(prompts, start=1)
    ]
    # A token is at least a byte, and one may begin the text.
    most_tokens = sum(len(prompt.encode()) + 1 for prompt in prompts)
    size = format_bytes(most_tokens * model.vocabulary * FLOAT_BYTES)
    progress.say(f"The logits take {size} at most, on the board and here.")
    return items


def logits_and_reference(
    request: Request,
    asked: EvaluationRequest,
    settings: ScorerSettings,
    progress: Progress,
    *,
    reference: str,
    reach: Reach,
) -> tuple[Path, int, Logits, Agreement | None]:
    """Compute the logits of one model's prompts, and compare them where there is a reference.

    Returns:
        The run's folder, the number of prompts, their logits, and how far these agree.

    Raises:
        ArmloadError: they could not be computed, or not be compared.
    """
    if not asked.data:
        raise UsageError(
            "--task logits needs prompts.", "Give a file with a prompt on each line: --data FILE."
        )
    model_name = asked.only_model("logits")
    prompts = read_prompts(Path(asked.data), asked.limit)
    model = with_adapters(model_called(model_name, progress), settings.adapters, progress)
    with ExitStack() as stack:
        known = None
        if reference == BINDING:
            known = stack.enter_context(logits_by_binding(model, prompts, settings, progress))
        elif reference == NODES:
            known = stack.enter_context(logits_by_a_node(model, prompts, settings, progress))
        elif reference:
            known = logits_called(reference)
        folder = compute_logits(request, model, prompts, settings, progress, reach=reach)
        logits = logits_of_run(folder)
        return folder, len(prompts), logits, agreement(logits, known) if known else None
