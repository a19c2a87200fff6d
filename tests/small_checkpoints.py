"""Small checkpoints that scripts write in the converters' environment, and their tokenizers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from armload.conversion.checkpoints.environment import COMPARING
from armload.conversion.checkpoints.installing import KIND
from armload.core.places import cache_folder
from armload.models.packaged import word_problems_model
from tests.checkpoints import checkpoint_of
from tests.person import Person
from tests.tokenizers import write_as_today, write_byte_pairs, write_sentence_pieces

ADDED = ("<|endoftext|>", "<|user|>", "[gMASK]")
"""Tokens that converters look for, and that fill the vocabulary."""


def with_checkpoints(
    folder: Path, script: Path, tokenizers: Mapping[str, tuple[str, Sequence[str]]]
) -> Person:
    """Return a person who has the checkpoints that a script writes.

    Args:
        tokenizers: the kind of each checkpoint's tokenizer, and its words beside the usual ones.
    """
    person = Person(folder)
    model = word_problems_model("word-problems:Q8_0")
    checkpoint_of(model, folder / "first")
    person.types("model.convert", "first", "--yes")  # makes the converters' environment
    in_environment("-P", str(script), str(folder / "of"))
    fields = {name: field.contents() for name, field in GGUFReader(model).fields.items()}
    for name, (kind, words) in tokenizers.items():
        write_tokenizer(folder / "of" / name, fields, kind, words)
    return person


def in_environment(*words: str, beside: Path = Path("nothing")) -> str:
    """Run a script in the converters' environment, with today's transformers."""
    (python,) = (cache_folder() / KIND).glob("*/bin/python")
    today = os.environ | {"PYTHONPATH": f"{python.parents[1] / COMPARING}{os.pathsep}{beside}"}
    done = subprocess.run(
        [str(python), "-s", *words], check=True, stdout=subprocess.PIPE, text=True, env=today
    )
    return done.stdout


def write_tokenizer(
    folder: Path, fields: dict[str, Any], kind: str, words: Sequence[str] = ()
) -> None:
    if kind in {"llama-bpe", "qwen2"}:
        write_byte_pairs(folder, fields, "qwen2" if kind == "qwen2" else "llama-bpe")
    else:
        write_sentence_pieces(folder, fields)
    write_as_today(folder, fields)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    first = content["added_tokens"][0]
    size = len(fields["tokenizer.ggml.tokens"])
    content["added_tokens"] += [
        {**first, "id": size + number, "content": text}
        for number, text in enumerate((*ADDED, *words))
    ]
    if kind == "sentence pieces after the first space":  # as Mistral 0.3
        content["pre_tokenizer"]["prepend_scheme"] = "first"
    elif kind == "sentence pieces after a space":  # as Llama 2 and Phi-3
        content["pre_tokenizer"] = None
        rules = [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ]
        content["normalizer"] = {"type": "Sequence", "normalizers": rules}
    path.write_text(json.dumps(content))
