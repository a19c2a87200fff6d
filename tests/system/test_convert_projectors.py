"""Small models of each kind that sees or hears become two files that see or hear the same.

What is measured stands in docs/figures.md. ``python -m tests.system.test_convert_projectors``
prints the rows of its table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from armload.conversion.checkpoints.checking import TOLERANCES
from armload.conversion.checkpoints.environment import COMPARING
from armload.conversion.checkpoints.installing import KIND
from armload.core.places import cache_folder
from armload.models.packaged import word_problems_model
from tests import projector_checkpoints
from tests.checkpoints import checkpoint_of
from tests.person import Person
from tests.projector_checkpoints import KINDS
from tests.system.test_convert_architectures import write_tokenizer

pytestmark = [
    pytest.mark.exhaustive(
        covers=[
            "armload/conversion/checkpoints",
            "toolchains/converters",
            "toolchains/native/scorer/media.cpp",
            "toolchains/sources/llama-cpp.yaml",
            "tests/projector_checkpoints.py",
        ]
    ),
    pytest.mark.build,
]
SCRIPT = Path(projector_checkpoints.__file__)
ENDS = {"voxtral": "Invalid number of output tokens"}
"""Kinds with which llama.cpp ends, and what it says."""

MOST = 0.01
"""Of the largest value."""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    return with_checkpoints(tmp_path_factory.mktemp("person"))


def with_checkpoints(folder: Path) -> Person:
    """Return a person who has a checkpoint of each kind."""
    person = Person(folder)
    model = word_problems_model("word-problems:Q8_0")
    checkpoint_of(model, folder / "first")
    person.types("model.convert", "first", "--yes")  # makes the converters' environment
    in_environment("-P", str(SCRIPT), str(folder / "of"))
    fields = {name: field.contents() for name, field in GGUFReader(model).fields.items()}
    for kind, described in KINDS.items():
        write_tokenizer(folder / "of" / kind, fields, described["tokenizer"], described["words"])
    return person


def in_environment(*words: str) -> str:
    """Run a script in the converters' environment, with today's transformers."""
    (python,) = (cache_folder() / KIND).glob("*/bin/python")
    today = os.environ | {"PYTHONPATH": str(python.parents[1] / COMPARING)}
    done = subprocess.run(
        [str(python), "-s", *words], check=True, stdout=subprocess.PIPE, text=True, env=today
    )
    return done.stdout


def measured(person: Person, kind: str) -> dict[str, Any]:
    """Return how far a kind's embeddings and logits are from those of its checkpoint."""
    words = ("model.convert", f"of/{kind}", "--type", "F32", "--output", f"{kind}.gguf")
    done = json.loads(person.types(*words, "--yes", "--json").stdout)
    assert done["projector"] == f"mmproj-{kind}.gguf"
    check = done["check"]
    assert not [each for each in check["unchecked"] if not each.startswith("spaces in ")], check
    found: dict[str, Any] = check["image"] or check["sound"]
    return found


def row(kind: str, found: dict[str, Any]) -> str:
    what = f"{found['width']}x{found['height']}" if "width" in found else f"{found['seconds']:g} s"
    shares = (each["difference"] / each["largest"] for each in (found, found["after"]))
    return f"| {kind} | {what} | {found['tokens']} | " + " | ".join(
        f"{share:.4%}" for share in shares
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ENDS])
def test_a_kind_sees_or_hears_the_same_and_continues_alike(person: Person, kind: str) -> None:
    found = measured(person, kind)
    assert 0 < found["difference"] < MOST * found["largest"]
    assert found["relative"] < TOLERANCES["F32"]
    after = found["after"]
    assert 0 < after["difference"] < MOST * after["largest"]


@pytest.mark.parametrize("kind", ENDS)
def test_a_kind_with_which_llama_cpp_ends_is_refused(person: Person, kind: str) -> None:
    words = ("model.convert", f"of/{kind}", "--type", "F32", "--output", "no.gguf", "--yes")
    refused = person.types(*words, status=3)
    assert ENDS[kind] in refused.stderr
    assert not list(person.folder.glob("*no.gguf"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        somebody = with_checkpoints(Path(place))
        for each in sys.argv[1:] or [kind for kind in KINDS if kind not in ENDS]:
            print(row(each, measured(somebody, each)), flush=True)  # noqa: T201 - what it is for
