"""distributed-llama's programs for tests, from the archive in the folder beside the checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.programs import DLLAMA, SCORER
from armload.build.source import pinned_source
from armload.build.target import load_target
from armload.core.workspace import compiling_folder
from armload.models.shape import SentencePieces, Shape
from tests.outside_data import shared

ARCHIVE = "distributed-llama-8d624a7.tar.gz"

SHAPE = Shape(
    layers=4,
    width=256,
    feed_forward=512,
    heads=8,
    kv_heads=4,
    vocabulary=2048,
    context_length=512,
    tokenizer=SentencePieces(add_end=False),
)
"""Of a model that four nodes can share."""


def provide_source() -> None:
    """Put the archive where a download would put it; without it, skip the test."""
    place = compiling_folder("sources")
    source = pinned_source("distributed-llama")
    name = f"{source.project}-{source.version}"
    if not list(place.glob(f"{name}-*")) and not (place / ARCHIVE).is_file():
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(shared(ARCHIVE), place / ARCHIVE)


def engine_for(target: str) -> Binary:
    """Return distributed-llama's program for a target."""
    provide_source()
    (engine,) = build(
        load_target(target), programs=(DLLAMA,), source=pinned_source("distributed-llama")
    )
    return engine


def programs_for(target: str) -> tuple[Binary, Binary]:
    """Return distributed-llama's program and the scorer for a target."""
    engine = engine_for(target)
    (scorer,) = build(load_target(target), programs=(SCORER,))
    return engine, scorer


def written_prompt(scorer: Path, vocabulary: Path, text: str, folder: Path) -> Path:
    """Tokenize a text with the scorer; return the file of its answer."""
    items, prompt = folder / "items.jsonl", folder / "prompt.jsonl"
    items.write_text(json.dumps({"id": "0", "kind": "tokenize", "text": text}) + "\n")
    words = [str(scorer), "-m", str(vocabulary), "--vocab-only", "--items", str(items)]
    done = subprocess.run(words, capture_output=True, check=True)
    prompt.write_bytes(done.stdout)
    return prompt
