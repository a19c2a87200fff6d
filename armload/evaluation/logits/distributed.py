"""Logits computed on this machine by distributed-llama: what its kernels make of the same model."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from armload.build.builder import build
from armload.build.programs import DLLAMA, SCORER
from armload.build.source import pinned_source
from armload.build.target import HOST, load_target
from armload.conversion.distributed import converted_files
from armload.core.errors import RunError
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.engines.answers import TokenizedAnswer, read_answers
from armload.engines.distributed import ConvertedFiles
from armload.evaluation.logits.rows import Logits
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.model import Model

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
