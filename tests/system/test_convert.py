"""``model.convert`` end to end: a checkpoint becomes models that two engines run alike.

The checkpoints have the weights of the model that solves word problems, so the answer of those
without biases is known. What the one with biases must answer is what transformers answers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file, save_file

from armload.conversion.checkpoints.checking import TOLERANCES
from armload.conversion.checkpoints.environment import pinned_packages
from armload.conversion.checkpoints.installing import KIND
from armload.core.places import cache_folder
from armload.models.packaged import word_problems_model
from tests.checkpoints import KINDS, checkpoint_of
from tests.person import Person
from tests.tokenizers import write_as_today

pytestmark = pytest.mark.exhaustive(
    covers=[
        "armload/conversion/checkpoints",
        "toolchains/converters",
        "armload/cli/verbs/model.py",
    ]
)
HERE = "target: host\nreach: {{kind: local}}\nworkdir: {workdir}\n"
QUESTION = (
    "Nora has 3 packs with 8 eggs each. She shares them equally among 2 people and keeps one "
    "share. How many eggs does Nora have now?"
)
TEMPLATED = f"Question: {QUESTION}\nAnswer:"
TOKENS = "38"  # the answer; the token that ends it is the next
ANSWER = (
    "Nora starts with 3*8=24 eggs. She keeps one of 2 shares: 24/2=12. The answer is \\boxed{12}."
)

CONTINUE = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
text, tokens, *folders = sys.argv[1:]
texts = []
for folder in folders:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    given = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
    model = AutoModelForCausalLM.from_pretrained(folder)
    (found,) = model.generate(**given, max_new_tokens=int(tokens), do_sample=False)
    texts.append(tokenizer.decode(found[given["input_ids"].shape[1]:]))
print(json.dumps(texts))
"""

needs_mnn = pytest.mark.usefixtures("mnn")


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    somebody = Person(tmp_path_factory.mktemp("person"))
    somebody.add_board("here", HERE.format(workdir=somebody.folder / "here"))
    model = word_problems_model("word-problems:Q8_0")
    for kind, shards in (("llama", 1), ("llama-3", 1), ("qwen2", 3)):
        checkpoint_of(model, somebody.folder / kind, kind, shards=shards)
    return somebody


@pytest.fixture(scope="module")
def expected(person: Person) -> dict[str, str]:
    """The text that transformers continues each checkpoint's question with."""
    converts(person, "llama", "--output", "first.gguf")  # makes the converters' environment
    words = [str(person.folder / kind) for kind in KINDS]
    done = subprocess.run(
        [str(_converters_python()), "-c", CONTINUE, TEMPLATED, TOKENS, *words],
        check=True,
        capture_output=True,
        text=True,
    )
    texts = dict(zip(KINDS, json.loads(done.stdout), strict=True))
    assert texts["llama"].strip() == texts["llama-3"].strip() == ANSWER
    assert texts["qwen2"].strip() != ANSWER  # the biases count
    return texts


def converts(person: Person, *words: str) -> dict[str, Any]:
    done: dict[str, Any] = json.loads(
        person.types("model.convert", *words, "--yes", "--json").stdout
    )
    return done


def _converters_python() -> Path:
    (python,) = (cache_folder() / KIND).glob("*/bin/python")
    return python


def answers(person: Person, model: str) -> dict[str, Any]:
    words = ("--model", model, "--prompt", TEMPLATED, "-n", TOKENS, "--engine-args", "--no-repack")
    return person.benches(*words, board="here")


@pytest.mark.parametrize(
    ("kind", "type_name"), [("llama", "F16"), ("llama-3", "F16"), ("qwen2", "Q8_0")]
)
def test_a_converted_checkpoint_answers_as_it_did_before(
    person: Person, expected: dict[str, str], kind: str, type_name: str
) -> None:
    done = converts(person, kind, "--type", type_name)
    assert done["path"] == f"{kind}-{type_name}.gguf"
    reader = GGUFReader(person.folder / done["path"])
    assert reader.fields["general.architecture"].contents() == KINDS[kind].model_type
    if KINDS[kind].tokenizer != "sentence pieces":
        assert reader.fields["tokenizer.ggml.pre"].contents() == KINDS[kind].tokenizer
    types = {each.tensor_type.name for each in reader.tensors if len(each.shape) > 1}
    assert types == {type_name}
    assert done["size_bytes"] == (person.folder / done["path"]).stat().st_size
    check = done["check"]
    assert check["unchecked"] == []
    assert check["texts"] > 16
    assert check["logits"]["positions"] == 64
    assert 0 < check["logits"]["relative"] < TOLERANCES[type_name]
    run = answers(person, done["path"])
    assert run["text"].strip() == expected[kind].strip()


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_as_transformers_5_saves_it_becomes_the_same_model(
    person: Person, kind: str
) -> None:
    model = word_problems_model("word-problems:Q8_0")
    found = []
    for folder in (person.folder / "then" / kind, person.folder / "today" / kind):
        checkpoint_of(model, folder, kind)
        if folder.parent.name == "today":
            write_as_today(folder, contents_of(model))
        path = f"{folder.parent.name}-{kind}.gguf"
        converts(person, str(folder), "--type", "F32", "--output", path)
        found.append(contents_of(person.folder / path))
    then, today = found
    names = {name for name in then if name.startswith("tokenizer.")} - {
        "tokenizer.ggml.add_eos_token"
    }
    assert len(names) > 5
    assert {name: today.get(name) for name in names} == {name: then[name] for name in names}


def contents_of(model: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in GGUFReader(model).fields.items()}


@needs_mnn
@pytest.mark.parametrize("kind", KINDS)
def test_mnn_answers_the_same_and_the_two_engines_compare(
    person: Person, expected: dict[str, str], kind: str
) -> None:
    done = converts(person, kind, "--to", "mnn", "--type", "8-bit")
    folder = person.folder / done["path"]
    assert folder.name == f"{kind}-mnn-8-bit"
    assert done["size_bytes"] == sum(each.stat().st_size for each in folder.iterdir())
    words = ("--mnn-python", str(folder), "--python", sys.executable, "--prompt", QUESTION)
    watched = json.loads(
        person.types("watch", "--board", "here", *words, "-n", TOKENS, "--json").stdout
    )
    assert expected[kind].strip() in watched["text"]
    benched = answers(person, converts(person, kind, "--type", "BF16")["path"])
    (found,) = json.loads(person.types("compare", benched["id"], watched["id"], "--json").stdout)
    assert found["finding"] != "not comparable", found["differences"]
    assert {each["key"] for each in found["figures"]} >= {"decode"}


def test_four_bits_take_about_half_of_eight(person: Person) -> None:
    sizes = [
        converts(person, "llama", "--to", "mnn", "--type", bits, "--output", f"of-{bits}")[
            "size_bytes"
        ]
        for bits in ("4-bit", "8-bit")
    ]
    assert 0.5 < sizes[0] / sizes[1] < 0.7


def write_peft(folder: Path, base: Path, **settings: Any) -> Path:
    """Write an adapter of random weights for a checkpoint, as PEFT saves one."""
    random, rank = np.random.default_rng(7), 4
    products: dict[str, Any] = {}
    for name, weight in load_file(base / "model.safetensors").items():
        if any(each in name for each in ("q_proj", "k_proj", "v_proj", "down_proj")):
            begin = f"base_model.model.{name.removesuffix('.weight')}"
            for factor, shape in (("A", (rank, weight.shape[1])), ("B", (weight.shape[0], rank))):
                values = random.normal(0, 0.1, shape).astype(np.float32)
                products[f"{begin}.lora_{factor}.weight"] = values
    folder.mkdir()
    save_file(products, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "bias": "none", **settings}
    config["base_model_name_or_path"] = str(base)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_an_adapter_computes_what_the_model_does_that_it_was_merged_into(person: Person) -> None:
    write_peft(person.folder / "style", person.folder / "llama")
    done = converts(person, "style")
    assert (done["path"], done["converter"].split()[0]) == (
        "style-F32.gguf",
        "convert_lora_to_gguf.py",
    )
    check = done["check"]
    assert check["logits"]["positions"] == 64
    assert 0 < check["logits"]["relative"] < TOLERANCES["F32"]
    converts(person, "llama", "--type", "F32", "--output", "plain.gguf")
    words = ("--model", "plain.gguf", "--prompt", TEMPLATED, "-n", "8")
    plain = person.benches(*words, board="here")
    adapted = person.benches(*words, "--lora", "style-F32.gguf", board="here")
    assert plain["text"] != adapted["text"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"use_rslora": True}, "rsLoRA"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"modules_to_save": ["lm_head"]}, "whole matrices"),
    ],
)
def test_an_adapter_that_llama_cpp_has_no_place_for_is_refused(
    person: Person, tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    folder = write_peft(tmp_path / "other", person.folder / "llama", **settings)
    refused = person.types("model.convert", str(folder), "--yes", status=2)
    assert says in refused.stderr


def test_an_adapter_of_another_model_is_not_converted(person: Person, tmp_path: Path) -> None:
    folder = write_peft(tmp_path / "wide", person.folder / "llama")
    weights = load_file(folder / "adapter_model.safetensors")
    wide = {name: np.pad(each, ((0, 0), (0, 8))) for name, each in weights.items()}
    save_file(wide, folder / "adapter_model.safetensors")
    person.types("model.convert", str(folder), "--yes", "-o", "wide.gguf", status=3)
    assert not (person.folder / "wide.gguf").exists()


def test_an_interrupted_conversion_leaves_nothing_that_looks_finished(person: Person) -> None:
    before = set(person.folder.iterdir())
    person.interrupts("Converting llama", "model.convert", "llama", "--output", "half.gguf")
    assert set(person.folder.iterdir()) == before


def test_what_the_converter_itself_refuses_is_told_in_its_words(person: Person) -> None:
    folder = checkpoint_of(word_problems_model("word-problems:Q8_0"), person.folder / "odd")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": "four"}))
    done = person.types("model.convert", "odd", "--yes", status=3)
    assert "the converter refused this checkpoint" in done.stderr
    assert not (person.folder / "odd-BF16.gguf").exists()


def test_the_converters_packages_know_the_types_that_are_let_through(person: Person) -> None:
    converts(person, "llama", "--output", "once.gguf")
    (package,) = (cache_folder() / KIND).glob("*/lib/*/site-packages/llmexport")
    mapped = set(
        re.findall(r"self\.regist\('(\w+)'", (package / "utils" / "model_mapper.py").read_text())
    )
    ask = (
        "from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES;"
        "print(*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)"
    )
    classes = set(subprocess.check_output([_converters_python(), "-c", ask], text=True).split())
    assert set(pinned_packages().mnn_types) <= mapped & classes


def test_mnn_s_tools_neither_install_packages_nor_report(person: Person) -> None:
    """A ``pip`` in ``PATH`` is what they would call."""
    tools = person.folder / "tools"
    tools.mkdir()
    (tools / "pip").write_text(f"#!/bin/sh\ntouch {tools}/called\n")
    (tools / "pip").chmod(0o755)
    environment = person.environment
    person.environment = environment | {"PATH": f"{tools}:{environment['PATH']}"}
    converts(person, "llama", "--to", "mnn", "--output", "quiet")
    person.environment = environment
    assert not Path(tools / "called").exists()
