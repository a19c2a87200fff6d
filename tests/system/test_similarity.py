"""Similarities that an encoder computes on a board are those that transformers computes."""

from __future__ import annotations

import json
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from armload.conversion.checkpoints.checking import TOLERANCES
from armload.conversion.checkpoints.environment import pinned_packages
from armload.conversion.checkpoints.installing import environment
from armload.core.progress import Silent
from armload.evaluation.similarity import read_pairs
from armload.models.packaged import word_problems_model
from tests.encoders import write_bert
from tests.person import Person
from tests.small_checkpoints import write_tokenizer

pytestmark = pytest.mark.build

WITHIN = 1e-3

MAKE = """
import json, os, sys
from transformers import BertConfig, BertModel, BertTokenizerFast
import torch
folder, *words = sys.argv[1:]
torch.manual_seed(3)
vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
open(folder + "/vocab.txt", "w").write("\\n".join(vocabulary) + "\\n")
BertTokenizerFast(vocab_file=folder + "/vocab.txt").save_pretrained(folder)
config = BertConfig(vocab_size=len(vocabulary), hidden_size=64, num_hidden_layers=3,
    num_attention_heads=4, intermediate_size=128, max_position_embeddings=128,
    initializer_range=0.2)
BertModel(config).save_pretrained(folder)
pooling = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
json.dump([pooling], open(folder + "/modules.json", "w"))
os.mkdir(folder + "/1_Pooling")
json.dump({"pooling_mode_mean_tokens": True}, open(folder + "/1_Pooling/config.json", "w"))
"""

MAKE_DENSE = """
import json, os, sys
import torch
from safetensors.torch import save_file
from transformers import Gemma3TextConfig, Gemma3TextModel
folder = sys.argv[1]
torch.manual_seed(3)
config = Gemma3TextConfig(vocab_size=640, hidden_size=64, intermediate_size=128,
    num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    query_pre_attn_scalar=32, sliding_window=48, max_position_embeddings=512,
    use_bidirectional_attention=True, bos_token_id=1, eos_token_id=2, pad_token_id=0)
model = Gemma3TextModel(config)
with torch.no_grad():
    for name, values in model.named_parameters():
        values.normal_(0, 0.2)
model.save_pretrained(folder)
path = os.path.join(folder, "config.json")
written = json.load(open(path))
written["sliding_window"] = 48  # of the published model, both ways together
json.dump(written, open(path, "w"))
kinds = {"0": ("Transformer", ""), "1": ("Pooling", "1_Pooling"), "2": ("Dense", "2_Dense"),
    "3": ("Dense", "3_Dense"), "4": ("Normalize", "4_Normalize")}
json.dump([{"idx": int(n), "name": n, "path": path, "type": f"sentence_transformers.models.{kind}"}
    for n, (kind, path) in kinds.items()], open(folder + "/modules.json", "w"))
os.mkdir(folder + "/1_Pooling")
json.dump({"pooling_mode_mean_tokens": True}, open(folder + "/1_Pooling/config.json", "w"))
for name, inner, outer in (("2_Dense", 64, 96), ("3_Dense", 96, 64)):
    os.mkdir(f"{folder}/{name}")
    json.dump({"in_features": inner, "out_features": outer, "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity"},
        open(f"{folder}/{name}/config.json", "w"))
    save_file({"linear.weight": torch.randn(outer, inner)}, f"{folder}/{name}/model.safetensors")
"""

COSINES = """
import json, sys
import torch
from transformers import AutoTokenizer, BertModel
folder, pairs = sys.argv[1], json.loads(sys.stdin.read())
tokenizer = AutoTokenizer.from_pretrained(folder)
model = BertModel.from_pretrained(folder).eval()
def embedding(text):
    with torch.inference_mode():
        found = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    return found.mean(0)
print(json.dumps([
    float(torch.nn.functional.cosine_similarity(embedding(a), embedding(b), dim=0))
    for a, b in pairs
]))
"""


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("similarity") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    return person


def similarity(ann: Person, model: str, *words: str) -> dict[str, Any]:
    command = ("eval", "--task", "similarity", "--board", "here", "--model", model)
    return dict(json.loads(ann.types(*command, "--threads", "1", *words, "--json").stdout))


def test_each_pair_has_a_similarity_and_all_together_a_correlation(ann: Person) -> None:
    write_bert(ann.folder / "bert.gguf")
    write_bert(ann.folder / "rank.gguf", pooling=4)
    lines = [{"a": "the cat sat", "b": "the cat sat"}, {"a": "the cat", "b": "a mat on the sat"}]
    (ann.folder / "own.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    found = similarity(ann, "bert.gguf", "--data", "own.jsonl")
    same, other = (each["similarity"] for each in found["pairs"])
    assert same == pytest.approx(1.0, abs=1e-5)
    assert other < 0.999
    assert found["spearman"] is None
    ranked = similarity(ann, "rank.gguf", "--data", "own.jsonl")
    assert ranked["dimensions"] == 1
    assert len({each["similarity"] for each in ranked["pairs"]}) == 2
    # llama-embedding makes room for 256 texts, which a pass of 128 tokens has not.
    write_bert(ann.folder / "short.gguf", context=128)
    short = similarity(ann, "short.gguf", "--data", "own.jsonl")
    assert short["pairs"][0]["similarity"] == pytest.approx(1.0, abs=1e-5)
    shipped = similarity(ann, "bert.gguf")
    assert len(shipped["pairs"]) == len(read_pairs(""))
    assert -1 <= shipped["spearman"] <= 1


@pytest.mark.exhaustive(
    covers=["armload/conversion/checkpoints", "toolchains/converters", "armload/evaluation"]
)
def test_an_encoder_finds_pairs_as_alike_as_in_transformers(ann: Person) -> None:
    pairs = read_pairs("")
    texts = [text.lower() for pair in pairs for text in (pair.a, pair.b)]
    words = sorted({word.strip(".,") for text in texts for word in text.split()})
    # Letters of Korean syllables, which BERT's tokenizer decomposes and llama.cpp does not.
    parts = sorted(set(unicodedata.normalize("NFD", "\ube60\ub978\uac08\uc0c9")))
    words += [*parts, *(f"##{each}" for each in parts)]
    folder = ann.folder / "encoder"
    folder.mkdir()
    python = _converters_python()
    subprocess.run([python, "-c", MAKE, folder, *words, ".", "'", "-"], check=True)
    done = ann.types("model.convert", "encoder", "--type", "F32", "--yes", "--json")
    check = json.loads(done.stdout)["check"]
    assert check["texts"] > 16
    assert any("in Korean" in each for each in check["unchecked"])
    assert 0 < check["embeddings"]["relative"] < TOLERANCES["F32"]
    found = similarity(ann, "encoder-F32.gguf")
    given = json.dumps([[pair.a, pair.b] for pair in pairs])
    expected = json.loads(
        subprocess.run(
            [python, "-c", COSINES, folder], input=given, check=True, capture_output=True, text=True
        ).stdout
    )
    assert max(expected) - min(expected) > 0.05  # the pairs are told apart
    for pair, cosine in zip(found["pairs"], expected, strict=True):
        assert pair["similarity"] == pytest.approx(cosine, abs=WITHIN)


@pytest.mark.exhaustive(
    covers=["armload/conversion/checkpoints", "toolchains/converters", "armload/evaluation"]
)
def test_dense_layers_behind_the_pooling_are_converted_or_refused(ann: Person) -> None:
    folder = ann.folder / "dense"
    folder.mkdir()
    subprocess.run([_converters_python(), "-c", MAKE_DENSE, folder], check=True)
    model = GGUFReader(word_problems_model("word-problems:Q8_0"))
    fields = {name: field.contents() for name, field in model.fields.items()}
    write_tokenizer(folder, fields, "sentence pieces")
    words = ("model.convert", "dense", "--type", "F32", "--yes", "--json")
    check = json.loads(ann.types(*words).stdout)["check"]
    assert 0 < check["embeddings"]["relative"] < TOLERANCES["F32"]
    names = {each.name for each in GGUFReader(ann.folder / "dense-F32.gguf").tensors}
    assert {"dense_2.weight", "dense_3.weight"} <= names
    assert similarity(ann, "dense-F32.gguf")["dimensions"] == 64
    # Without one of them, the comparison tells; what the converter would drop is refused.
    modules = json.loads((folder / "modules.json").read_text())
    config = folder / "2_Dense" / "config.json"
    config.write_text(config.read_text().replace("linear.Identity", "activation.Tanh"))
    refused = ann.types(*words, "--output", "no.gguf", status=3).stderr
    assert "activation Tanh" in refused
    (folder / "modules.json").write_text(json.dumps([*modules[:2], modules[3], modules[4]]))
    assert "3_Dense" in ann.types(*words, "--output", "no.gguf", status=3).stderr


def _converters_python() -> Path:
    with environment(pinned_packages(), lambda _: True, Silent()) as held:
        return held.python
