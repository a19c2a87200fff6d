"""Small models of many architectures become GGUF files that compute the same, or are refused.

What is measured stands in docs/convert.md. ``python -m tests.system.test_convert_architectures``
prints the rows of its table.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from gguf import GGUFReader

from armload.models.packaged import word_problems_model
from tests import architectures
from tests.checkpoints import checkpoint_of
from tests.packed import pack_experts
from tests.person import Person
from tests.small_checkpoints import with_checkpoints
from tests.tokenizers import write_as_today, write_sentence_pieces

pytestmark = [
    pytest.mark.exhaustive(
        covers=[
            "armload/conversion/checkpoints",
            "toolchains/converters",
            "toolchains/sources/llama-cpp.yaml",
            "tests/architectures.yaml",
            "tests/small_checkpoints.py",
        ]
    ),
    pytest.mark.build,
]
SCRIPT = Path(architectures.__file__)
DESCRIBED: dict[str, Any] = yaml.safe_load(SCRIPT.with_suffix(".yaml").read_text())
NAMES: list[str] = list(DESCRIBED["architectures"])
PAGE = Path(__file__).parents[2] / "docs" / "convert.md"
ROUNDING = 1e-5
"""Differences up to this are one result: they depend on the machine's instructions."""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    return written(tmp_path_factory.mktemp("person"))


def written(folder: Path) -> Person:
    """Return a person who has a checkpoint of each architecture."""
    described = DESCRIBED["architectures"]
    tokenizers = {name: (described[name]["tokenizer"], ()) for name in NAMES}
    return with_checkpoints(folder, SCRIPT, tokenizers)


REFUSALS = {
    "drops 'sliding_window'": "refused: `sliding_window` would be lost",
    "computes different logits": "refused: other logits",
    "cannot load": "refused: llama.cpp cannot load it",
    "tokenized differently": "refused: other tokens",
}


def measured(person: Person, name: str) -> tuple[str, float]:
    """Return what became of an architecture's checkpoint, and how far its logits are apart."""
    words = ("model.convert", f"of/{name}", "--type", "F32", "--output", "made.gguf")
    made = person.folder / "made.gguf"
    process = person.start(*words, "--yes", "--json")
    found = json.loads(process.communicate()[0])
    if process.returncode == 0:
        check = found["check"]
        assert check["reference"].startswith("transformers 5")
        assert flags(made) == [True, True]
        but = ["spaces" for each in check["unchecked"] if each.startswith("spaces in ")]
        assert len(check["unchecked"]) == len(but), check
        made.unlink()
        said = "equal but for spaces" if but else "equal"
        return f"{said}, of {check['texts']} texts", check["logits"]["difference"]
    assert process.returncode == 3
    assert not made.exists()
    message = found["error"]["message"]
    (said,) = (each for part, each in REFUSALS.items() if part in message)
    apart = re.search(r"differ by up to ([\d.e+-]+),", message)
    return said, float(apart[1]) if apart else 0.0


def flags(made: Path) -> list[bool]:
    """Return what a file's metadata say of its tokens and its logits."""
    fields = GGUFReader(made).fields
    return [fields[f"armload.checked.{each}"].contents() for each in ("tokens", "logits")]


def row(name: str, said: str, difference: float) -> str:
    return f"| {name} | {said} | {f'{difference:.1e}' if difference else ''} |"


def table() -> dict[str, tuple[str, float]]:
    line = r"^\| (.+?) \| (equal.+?|refused: .+?) \| ?(.*?) ?\|$"
    found = re.findall(line, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (said, float(difference or 0)) for name, said, difference in found}


def test_the_page_names_every_architecture() -> None:
    assert list(table()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_becomes_what_the_page_says(person: Person, name: str) -> None:
    said, difference = table()[name]
    found, now = measured(person, name)
    assert found == said
    assert now == pytest.approx(difference, rel=0.5, abs=ROUNDING)


@pytest.mark.parametrize("type_name", ["F16", "BF16", "Q8_0"])
@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "llama", "mixtral", "qwen3_moe"])
def test_rounding_alone_is_no_reason_to_refuse(person: Person, name: str, type_name: str) -> None:
    words = ("model.convert", f"of/{name}", "--type", type_name, "--output", f"{type_name}.gguf")
    check = json.loads(person.types(*words, "--yes", "--json").stdout)["check"]
    (person.folder / f"{type_name}.gguf").unlink()
    assert check["logits"]["relative"] > 0


def test_experts_in_mxfp4_stay_as_they_are_and_are_compared(person: Person) -> None:
    folder = person.folder / "of" / "packed"
    shutil.copytree(person.folder / "of" / "gpt_oss", folder)
    pack_experts(folder)
    words = ("model.convert", "of/packed", "--type", "F32", "--output", "packed.gguf")
    done = json.loads(person.types(*words, "--yes", "--json").stdout)
    assert done["check"]["logits"]
    assert done["check"]["unchecked"] == []
    assert flags(person.folder / "packed.gguf") == [True, True]
    tensors = GGUFReader(person.folder / "packed.gguf").tensors
    types = {each.tensor_type.name for each in tensors if "exps.weight" in each.name}
    assert types == {"MXFP4"}


def refused(person: Person, folder: Path) -> str:
    before = set(person.folder.iterdir())
    done = person.types("model.convert", str(folder), "--yes", status=3)
    assert set(person.folder.iterdir()) == before
    assert "armload-" not in done.stderr
    return " ".join(done.stderr.split())


def test_another_gating_function_than_the_checkpoint_s_is_found_out(person: Person) -> None:
    """As transformers 5 left it out, and the converter took the one of DeepSeek-V2."""
    folder = person.folder / "of" / "deepseek_v3"
    path = folder / "config.json"
    config = path.read_text()
    path.write_text(json.dumps(json.loads(config) | {"scoring_func": "softmax"}))
    said = refused(person, folder)
    path.write_text(config)
    assert "the model computes different logits" in said


def test_pieces_without_scores_are_found_out(person: Person) -> None:
    """As a vocabulary came to be that was in ``tokenizer.json`` alone."""
    model = word_problems_model("word-problems:Q8_0")
    fields = {name: field.contents() for name, field in GGUFReader(model).fields.items()}
    folder = checkpoint_of(model, person.folder / "of" / "unscored")
    scores = [-1000.0] * len(fields["tokenizer.ggml.tokens"])
    write_as_today(folder, fields)
    settings = (folder / "tokenizer_config.json").read_bytes()
    write_sentence_pieces(folder, fields | {"tokenizer.ggml.scores": scores})
    (folder / "tokenizer_config.json").write_bytes(settings)
    said = refused(person, folder)
    assert re.search(
        r"texts are tokenized differently after the conversion: .+ in the checkpoint", said
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        somebody = written(Path(place))
        for each in sys.argv[1:] or NAMES:
            print(row(each, *measured(somebody, each)), flush=True)  # noqa: T201 - what it is for
