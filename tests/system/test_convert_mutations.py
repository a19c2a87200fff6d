"""No changed or damaged checkpoint becomes a file that passes for it and is another model.

What each change leads to stands beside it: a refusal, by a part of its words, or a file, whose
logits are compared again here, with another prompt, at every position and by their largest
difference.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from armload.build.builder import build
from armload.build.programs import SCORER
from armload.build.target import load_target
from armload.conversion.checkpoints.environment import COMPARING
from armload.conversion.checkpoints.installing import KIND
from armload.core.places import cache_folder
from armload.core.progress import Silent
from armload.models.packaged import word_problems_model
from tests.checkpoints import checkpoint_of
from tests.mutations import CHANGES
from tests.person import Person

pytestmark = [
    pytest.mark.exhaustive(
        covers=["armload/conversion/checkpoints", "toolchains/converters", "tests/mutations.py"]
    ),
    pytest.mark.build,
]
PROMPT = "Nora has 3 packs with 8 eggs each. She shares them equally among 2 people. " * 2
CLOSE = 1e-3

LOGITS = """
import json, sys, torch
from transformers import AutoModelForCausalLM
folder, ids, path = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
with torch.inference_mode():
    model(input_ids=torch.tensor([json.loads(ids)]), use_cache=False).logits[0].numpy().tofile(path)
"""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    somebody = Person(tmp_path_factory.mktemp("person"))
    checkpoint_of(word_problems_model("word-problems:Q8_0"), somebody.folder / "sums", "llama-3")
    somebody.types("model.convert", "sums", "--yes", "--output", "first.gguf")
    return somebody


def is_the_checkpoint_s(person: Person, checkpoint: Path, made: Path) -> bool:
    """Compare all logits of a prompt that the product's own check does not use."""
    (scorer,) = build(load_target("host"), programs=[SCORER], progress=Silent())
    item = {"id": "1", "kind": "logits", "prompt": PROMPT, "positions": "all"}
    items, file, own = (person.folder / each for each in ("items.jsonl", "file.f32", "own.f32"))
    items.write_text(json.dumps(item) + "\n")
    file.unlink(missing_ok=True)
    words = [str(scorer.path), "-m", str(made), "--items", str(items), "--logits", str(file)]
    exact = ("-ctk", "f32", "-ctv", "f32", "-fa", "off", "--no-repack")
    answer = json.loads(subprocess.check_output([*words, *exact], stderr=subprocess.DEVNULL))
    (python,) = (cache_folder() / KIND).glob(f"*/{COMPARING}/../bin/python")
    subprocess.run(
        [str(python), "-s", "-c", LOGITS, str(checkpoint), json.dumps(answer["tokens"]), str(own)],
        check=True,
        capture_output=True,
        env=person.environment | {"PYTHONPATH": str(python.parents[1] / COMPARING)},
    )
    rows = answer["rows"]
    one, other = (np.fromfile(each, "<f4").reshape(rows, -1) for each in (own, file))
    columns = min(one.shape[1], other.shape[1])
    apart = np.abs(one[:, :columns] - other[:, :columns]).max()
    return bool(apart <= CLOSE * one[:, :columns].std())


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_checkpoint_is_converted_as_it_is_or_refused(person: Person, name: str) -> None:
    folder, made = person.folder / "changed", person.folder / "made.gguf"
    shutil.copytree(person.folder / "sums", folder)
    try:
        CHANGES[name](folder)
        words = ("model.convert", "changed", "--type", "F32", "--output", made.name)
        process = person.start(*words, "--yes", "--json")
        found = json.loads(process.communicate()[0])
        if process.returncode:
            assert process.returncode in {2, 3}, found
            assert not made.exists()
            assert found["error"]["remedy"]
        else:
            assert found["check"]["logits"]
            assert is_the_checkpoint_s(person, folder, made)
    finally:
        shutil.rmtree(folder)
        made.unlink(missing_ok=True)
