"""A model with LoRA adapters computes what the model computes that they were merged into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.adapters import RANK, merged, write_adapter
from tests.outside_data import shared
from tests.person import Person
from tests.system.serving import serving

pytestmark = pytest.mark.build

SCALE = 0.5
PROMPTS = ["One day Tom saw a cat", "The sun was", "Lily wanted to play"]
PLAN = ("--prompt", PROMPTS[0], "-n", "24", "--threads", "1")


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    base = shared("stories260K.gguf")
    person = Person(tmp_path_factory.mktemp("adapters") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    (person.folder / "base.gguf").symlink_to(base)
    adapter = write_adapter(person.folder / "style.gguf", base)
    write_adapter(person.folder / "other.gguf", base, seed=2)
    merged(person.folder / "merged.gguf", base, adapter, SCALE)
    (person.folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    return person


@pytest.fixture(scope="module")
def cells(ann: Person) -> list[dict[str, Any]]:
    adapters = (
        "--lora",
        "none",
        "--lora",
        f"style.gguf:{SCALE}",
        "--lora",
        "style.gguf,other.gguf",
    )
    done = ann.types("bench", "--board", "here", "--model", "base.gguf", *PLAN, *adapters, "--json")
    return list(json.loads(done.stdout)["cells"])


def run_of(ann: Person, cell: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads((ann.runs / cell["runs"][0] / "run.json").read_text()))


def test_a_run_with_an_adapter_writes_what_the_merged_model_writes(
    ann: Person, cells: list[dict[str, Any]]
) -> None:
    done = ann.types("bench", "--board", "here", "--model", "merged.gguf", *PLAN, "--json")
    plain, adapted, both = (run_of(ann, cell)["text"] for cell in cells)
    assert adapted == json.loads(done.stdout)["text"]
    assert len({plain, adapted, both}) == 3


def test_runs_record_their_adapters_and_compare_tells_them_apart(
    ann: Person, cells: list[dict[str, Any]]
) -> None:
    plain, adapted, both = (run_of(ann, cell) for cell in cells)
    assert plain["model"]["adapters"] == []
    (recorded,) = adapted["model"]["adapters"]
    assert (recorded["name"], recorded["scale"], recorded["rank"]) == ("style.gguf", SCALE, RANK)
    assert recorded["weights_bytes"] < (ann.folder / "style.gguf").stat().st_size
    assert [each["name"] for each in both["model"]["adapters"]] == ["style.gguf", "other.gguf"]
    done = ann.types("compare", plain["id"], adapted["id"])
    assert "style.gguf:0.5" in done.stdout


LARGEST_LOGIT = 32.0
ROUNDINGS = 64
"""Of 32-bit floats, that add up in a sum at most: the square root of the operations that a logit of
this model comes from, some 4,000 in a row."""


def test_logits_with_an_adapter_are_those_of_the_merged_model(ann: Person) -> None:
    # Merged or not, the same products are added up in another order. With a cache of 16 bits, or
    # the fused kernel, which rounds scores to 16 bits, each order would be rounded 8,192 times as
    # coarsely, and the limit would be of that rounding.
    exact = ("--kv-type", "f32", "--flash-attention", "off")
    command = ("eval", "--task", "logits", "--data", "prompts.txt", "--board", "here", *exact)
    of_merged = json.loads(ann.types(*command, "--model", "merged.gguf", "--json").stdout)
    words = ("--lora", f"style.gguf:{SCALE}", "--reference", of_merged["run"], "--json")
    found = json.loads(ann.types(*command, "--model", "base.gguf", *words).stdout)
    assert found["agreement"]["max_difference"] < ROUNDINGS * LARGEST_LOGIT * 2**-23
    alone = ("--reference", of_merged["run"], "--json")
    other = json.loads(ann.types(*command, "--model", "base.gguf", *alone).stdout)
    assert other["agreement"]["max_difference"] > 0.5


def test_a_request_chooses_the_scale_of_an_adapter(
    ann: Person, cells: list[dict[str, Any]]
) -> None:
    words = ("--model", "base.gguf", "--threads", "1", "--lora", f"style.gguf:{SCALE}")
    plain, adapted, _ = (run_of(ann, cell)["text"] for cell in cells)
    with serving(ann, *words) as service:

        def text(**fields: Any) -> str:
            asked: dict[str, Any] = {
                "prompt": PROMPTS[0],
                "n_predict": 16,
                "temperature": 0,
                **fields,
            }
            answer = service.ask("completion", **asked)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["content"])

        assert adapted.startswith(text())
        assert plain.startswith(text(lora=[{"id": 0, "scale": 0.0}]))
        assert adapted.startswith(text(lora=[{"id": 0, "scale": SCALE}]))


def test_an_adapter_of_another_model_is_refused_before_anything_is_copied(
    ann: Person, tmp_path: Path
) -> None:
    wide = write_adapter(tmp_path / "wide.gguf", ann.folder / "base.gguf", wide=8)
    board = ("--board", "here", "--model", "base.gguf")
    for verb in ("bench", "fit", "serve"):
        done = ann.types(verb, *board, "--lora", str(wide), status=3)
        assert "do not fit the model's" in done.stderr
    assert not list((ann.folder / "here-board").rglob("wide.gguf"))
