"""``model.convert`` end to end: a checkpoint becomes models that two engines run alike.

The checkpoints have the weights of the model that solves word problems, so the answer of those
without biases is known. What the one with biases must answer is what transformers answers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from PIL import Image
from safetensors.numpy import load_file, save_file

from armload.build.builder import build
from armload.build.programs import SEEING_SCORER
from armload.build.target import load_target
from armload.conversion.checkpoints.checking import TOLERANCES
from armload.conversion.checkpoints.environment import pinned_packages
from armload.conversion.checkpoints.installing import KIND
from armload.core.places import cache_folder, data_path
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

SIDE = 96
MAKE_SEEING = """
import json, sys
from pathlib import Path
import torch
from transformers import AutoTokenizer, Idefics3Config, Idefics3ForConditionalGeneration
text, folder, side = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(5)
tokenizer = AutoTokenizer.from_pretrained(text)
around = ["<fake_token_around_image>", "<global-img>"]
tokenizer.add_special_tokens({"additional_special_tokens": around})
tokenizer.add_tokens(["\\n\\n"])
words = len(tokenizer)
model = Idefics3ForConditionalGeneration(Idefics3Config(
    vision_config=dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, image_size=side, patch_size=16),
    text_config=dict(model_type="llama", vocab_size=words, hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0,
        max_position_embeddings=512, architectures=["LlamaForCausalLM"]),
    scale_factor=2, image_token_id=5, pad_token_id=0, tie_word_embeddings=False))
with torch.no_grad():
    for name, value in model.named_parameters():
        if "norm" not in name:
            value.normal_(0, 0.2)
model.save_pretrained(folder)
tokenizer.save_pretrained(folder)
edges = {"longest_edge": side}
(folder / "preprocessor_config.json").write_text(json.dumps({
    "image_processor_type": "Idefics3ImageProcessor", "size": edges, "max_image_size": edges,
    "image_mean": [0.5, 0.4, 0.6], "image_std": [0.25, 0.5, 0.5]}))
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


def test_a_checkpoint_that_sees_becomes_two_files_that_see_the_same(
    person: Person, expected: dict[str, str], tmp_path: Path
) -> None:
    del expected  # by then the environment is there
    python, text = str(_converters_python()), person.folder / "llama-3"
    make = [python, "-c", MAKE_SEEING, str(text), str(person.folder / "seeing"), str(SIDE)]
    subprocess.run(make, check=True)
    done = converts(person, "seeing", "--type", "F32")
    assert (done["path"], done["projector"]) == ("seeing-F32.gguf", "mmproj-seeing-F32.gguf")
    check = done["check"]
    assert check["unchecked"] == []
    assert check["logits"]["relative"] < TOLERANCES["F32"]
    image = check["image"]
    # In patches of 16 that are merged two by two.
    assert image["tokens"] % (SIDE // 32) ** 2 == 0
    assert 0 < image["difference"] < 0.01 * image["largest"]
    Image.effect_noise((200, 100), 90).convert("RGB").save(person.folder / "noise.png")
    words = ("--model", done["path"], "--image", "noise.png", "--prompt", QUESTION, "-n", "4")
    run = person.benches(*words, board="here")
    assert run["projector"]["kind"] == "idefics3"
    (person.folder / done["path"]).rename(person.folder / "elsewhere.gguf")
    again = person.types("model.convert", "seeing", "--type", "F32", status=2)
    assert "mmproj-seeing-F32.gguf already exists" in again.stderr
    (person.folder / "elsewhere.gguf").rename(person.folder / done["path"])

    # With one matrix changed, the comparison tells.
    other = tmp_path / "other.gguf"
    shutil.copy(person.folder / done["projector"], other)
    reader = GGUFReader(other, "r+")
    (matrix,) = (each for each in reader.tensors if each.name == "mm.model.fc.weight")
    matrix.data[:] = matrix.data[::-1].copy()
    reader.data.flush()
    (scorer,) = build(load_target("host"), programs=[SEEING_SCORER])
    script = data_path("toolchains", "converters", "check_projector.py")
    files = [person.folder / "seeing", person.folder / done["path"], other, scorer.path]
    comparing = Path(python).parents[1] / "comparing"
    subprocess.run(
        [python, "-s", script, *files, tmp_path / "result.json"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(comparing)},
    )
    assert json.loads((tmp_path / "result.json").read_text())["image"]["relative"] > 0.1


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
    adapted = person.benches(*words, "--lora", "style-F32.gguf:16", board="here")
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
