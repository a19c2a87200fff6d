"""Similarities that an encoder computes on a board are those that transformers computes."""

from __future__ import annotations

import json
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from armload.conversion.checkpoints.environment import pinned_packages
from armload.conversion.checkpoints.installing import environment
from armload.core.progress import Silent
from armload.evaluation.similarity import read_pairs
from tests.encoders import write_bert
from tests.person import Person

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


def _converters_python() -> Path:
    with environment(pinned_packages(), lambda _: True, Silent()) as held:
        return held.python
