"""Damage to small checkpoints, of which no file must be made that passes for theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_LENGTH_BYTES = 8
_INDEX = "model.safetensors.index.json"


def damage_values(folder: Path, seed: int) -> tuple[str, int]:
    """Set some weights to NaN or infinity; return their tensor's name, and how many they are."""
    random = np.random.default_rng(seed)
    paths = sorted(folder.glob("*.safetensors"))
    path = paths[random.integers(len(paths))]
    content = bytearray(path.read_bytes())
    begin = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(content[_LENGTH_BYTES:begin])
    header.pop("__metadata__", None)
    name = sorted(header)[random.integers(len(header))]
    first, end = header[name]["data_offsets"]
    values = np.frombuffer(content, "<f4", offset=begin)[first // 4 : end // 4]
    count = int(random.integers(1, 4))
    places = random.choice(len(values), count, replace=False)
    values[places] = random.choice([np.nan, np.inf, -np.inf])
    path.write_bytes(content)
    return name, count


def set_config(folder: Path, **changes: object) -> None:
    """Change settings of ``config.json``; none deletes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    kept = {name: value for name, value in config.items() if value is not None}
    path.write_text(json.dumps(kept))


def more_layers_than_weights(folder: Path) -> str:
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    set_config(folder, num_hidden_layers=layers + 2)
    return f"says {layers + 2} layers, but there are weights of {layers} only"


def many_more_layers(folder: Path) -> str:
    set_config(folder, num_hidden_layers=10**6)
    return "says 1000000 layers"


def index_of_another_model(folder: Path) -> str:
    path = folder / _INDEX
    index = json.loads(path.read_text())
    first = next(iter(index["weight_map"]))
    index["weight_map"][f"{first}.other"] = index["weight_map"][first]
    path.write_text(json.dumps(index))
    return f"{first}.other"


def index_swaps_files(folder: Path) -> str:
    path = folder / _INDEX
    index = json.loads(path.read_text())
    one, *_, other = index["weight_map"]
    places = index["weight_map"]
    places[one], places[other] = places[other], places[one]
    path.write_text(json.dumps(index))
    return "are missing"


def a_negative_shape(folder: Path) -> str:
    return _rewrite(folder, b'"shape":[', b'"shape":[-')


def an_unknown_type(folder: Path) -> str:
    return _rewrite(folder, b'"F32"', b'"F31"')


def a_header_longer_than_the_file(folder: Path) -> str:
    path = next(iter(sorted(folder.glob("*.safetensors"))))
    path.write_bytes(b"\xff" * 6 + b"\0\0" + path.read_bytes()[_LENGTH_BYTES:])
    return "not a safetensors file"


def _rewrite(folder: Path, old: bytes, new: bytes) -> str:
    path = next(iter(sorted(folder.glob("*.safetensors"))))
    content = path.read_bytes()
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = content[_LENGTH_BYTES : _LENGTH_BYTES + length]
    changed = header.replace(b'": ', b'":').replace(b", ", b",").replace(old, new, 1)
    assert changed != header
    path.write_bytes(
        len(changed).to_bytes(_LENGTH_BYTES, "little") + changed + content[_LENGTH_BYTES + length :]
    )
    return "not a safetensors file"


DAMAGES: tuple[Callable[[Path], str], ...] = (
    more_layers_than_weights,
    many_more_layers,
    index_of_another_model,
    index_swaps_files,
    a_negative_shape,
    an_unknown_type,
    a_header_longer_than_the_file,
)


def set_tokenizer(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change ``tokenizer.json``."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def _settings(**changes: object) -> Callable[[Path], None]:
    return lambda folder: set_config(folder, **changes)


def _tokenizer(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    return lambda folder: set_tokenizer(folder, change)


def _token_settings(**changes: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return apply


def _reversed_merges(content: dict[str, Any]) -> None:
    content["model"]["merges"].reverse()


def _half_of_the_merges(content: dict[str, Any]) -> None:
    content["model"]["merges"] = content["model"]["merges"][::2]


def _no_merges(content: dict[str, Any]) -> None:
    content["model"]["merges"] = []


def _swapped_ids(content: dict[str, Any]) -> None:
    vocabulary = content["model"]["vocab"]
    long = [text for text in vocabulary if text.isalpha() and len(text) > 1]
    one, other = long[0], long[1]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


def _other_digits(content: dict[str, Any]) -> None:
    split = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    split["Regex"] = split["Regex"].replace("{1,3}", "{1,2}")


def _prefix_space(content: dict[str, Any]) -> None:
    content["pre_tokenizer"]["pretokenizers"][-1]["add_prefix_space"] = True


def _lowercase(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Lowercase"}


def _without_accents(content: dict[str, Any]) -> None:
    rules = [{"type": "NFD"}, {"type": "StripAccents"}]
    content["normalizer"] = {"type": "Sequence", "normalizers": rules}


def _composed(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "NFC"}


def _compatible(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "NFKC"}


def _no_beginning(content: dict[str, Any]) -> None:
    content["post_processor"] = None


def _an_end(content: dict[str, Any]) -> None:
    rule = content["post_processor"]
    ends = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    number = next(e["id"] for e in content["added_tokens"] if e["content"] == "</s>")
    rule["single"].append(ends)
    rule["special_tokens"]["</s>"] = {"id": "</s>", "ids": [number], "tokens": ["</s>"]}


def _added(text: str, **flags: bool) -> Callable[[dict[str, Any]], None]:
    """Return what gives the last token of the vocabulary another text, and makes it special."""

    def change(content: dict[str, Any]) -> None:
        model = content["model"]
        last = max(model["vocab"], key=model["vocab"].__getitem__)
        number = model["vocab"].pop(last)
        merges = (m for m in model["merges"] if last not in (*m, "".join(m)))
        content["model"]["merges"] = list(merges)
        first = content["added_tokens"][0]
        content["added_tokens"].append(first | {"id": number, "content": text} | flags)

    return change


def _normal_end(content: dict[str, Any]) -> None:
    content["added_tokens"] = [e for e in content["added_tokens"] if e["content"] != "</s>"]


def _whole_words(content: dict[str, Any]) -> None:
    content["model"]["ignore_merges"] = not content["model"]["ignore_merges"]


def _in_eight_bits(folder: Path) -> None:
    """Pack the matrices as DeepSeek-V3 does: 8-bit floats, and a factor for each 128 by 128."""
    random = np.random.default_rng(0)
    content = (folder / "model.safetensors").read_bytes()
    begin = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(content[_LENGTH_BYTES:begin])
    header.pop("__metadata__", None)
    made: dict[str, Any] = {}
    parts: list[bytes] = []
    end = 0

    def add(name: str, dtype: str, shape: list[int], data: bytes) -> None:
        nonlocal end
        made[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        parts.append(data)
        end += len(data)

    for name, about in header.items():
        first, last = about["data_offsets"]
        shape = about["shape"]
        if len(shape) == 1 or "embed" in name:
            add(name, "F32", shape, content[begin + first : begin + last])
            continue
        codes = random.integers(0x20, 0x40, shape) | random.choice([0, 0x80], shape)
        add(name, "F8_E4M3", shape, codes.astype(np.uint8).tobytes())
        blocks = [-(-each // 128) for each in shape]
        scales = random.uniform(0.1, 0.2, blocks).astype(np.float32)
        add(f"{name}_scale_inv", "F32", blocks, scales.tobytes())
    text = json.dumps({"__metadata__": {"format": "pt"}, **made}).encode()
    whole = len(text).to_bytes(_LENGTH_BYTES, "little") + text + b"".join(parts)
    (folder / "model.safetensors").write_bytes(whole)
    packing = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    set_config(folder, quantization_config=packing | {"activation_scheme": "dynamic"})


_DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

CHANGES: dict[str, Callable[[Path], None]] = {
    "rope_theta": _settings(rope_theta=500.0),
    "rms_norm_eps": _settings(rms_norm_eps=0.5),
    "no rms_norm_eps": _settings(rms_norm_eps=None),
    "gelu": _settings(hidden_act="gelu"),
    "relu": _settings(hidden_act="relu"),
    "no such activation": _settings(hidden_act="glue"),
    "attention_bias": _settings(attention_bias=True),
    "mlp_bias": _settings(mlp_bias=True),
    "fewer heads": _settings(num_attention_heads=2),
    "fewer heads for keys": _settings(num_key_value_heads=1),
    "more heads for keys": _settings(num_key_value_heads=64),
    "head_dim": _settings(head_dim=16),
    "partial_rotary_factor": _settings(partial_rotary_factor=0.5),
    "linear scaling": _settings(rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "dynamic scaling": _settings(rope_scaling=_DYNAMIC),
    "llama 3's scaling": _settings(rope_scaling=_LLAMA3 | {"original_max_position_embeddings": 64}),
    "yarn": _settings(
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    ),
    "no such scaling": _settings(rope_scaling={"rope_type": "spiral", "factor": 4.0}),
    "not tied": _settings(tie_word_embeddings=False),
    "a larger vocab_size": _settings(vocab_size=4096),
    "a smaller vocab_size": _settings(vocab_size=100),
    "another hidden_size": _settings(hidden_size=128),
    "another intermediate_size": _settings(intermediate_size=64),
    "fewer layers": _settings(num_hidden_layers=2),
    "no layers": _settings(num_hidden_layers=0),
    "layers below zero": _settings(num_hidden_layers=-1),
    "another architecture": _settings(architectures=["Qwen3ForCausalLM"], model_type="qwen3"),
    "another class alone": _settings(architectures=["MistralForCausalLM"]),
    "another type alone": _settings(model_type="gemma"),
    "granite's settings": _settings(
        architectures=["GraniteForCausalLM"],
        model_type="granite",
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        residual_multiplier=0.22,
        attention_multiplier=0.1,
    ),
    "a soft cap": _settings(final_logit_softcapping=3.0),
    "a window": _settings(
        architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=16
    ),
    "a long window": _settings(
        architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=4096
    ),
    "a context of one": _settings(max_position_embeddings=1),
    "a context of text": _settings(max_position_embeddings="many"),
    "an unknown packing": _settings(quantization_config={"quant_method": "rot13"}),
    "packed in 8 bits": _in_eight_bits,
    "packed by gptq": _settings(quantization_config={"quant_method": "gptq", "bits": 4}),
    "compressed tensors": _settings(quantization_config={"quant_method": "compressed-tensors"}),
    "reversed merges": _tokenizer(_reversed_merges),
    "half of the merges": _tokenizer(_half_of_the_merges),
    "no merges": _tokenizer(_no_merges),
    "swapped ids": _tokenizer(_swapped_ids),
    "other digits": _tokenizer(_other_digits),
    "a space before a text": _tokenizer(_prefix_space),
    "lower case": _tokenizer(_lowercase),
    "no accents": _tokenizer(_without_accents),
    "composed characters": _tokenizer(_composed),
    "compatible characters": _tokenizer(_compatible),
    "no beginning": _tokenizer(_no_beginning),
    "an end": _tokenizer(_an_end),
    "whole words": _tokenizer(_whole_words),
    "an end that is text": _tokenizer(_normal_end),
    "a token that drops spaces": _tokenizer(_added("<drop>", rstrip=True, lstrip=True)),
    "a word as token": _tokenizer(_added("fox jumps", special=False)),
    "a normalized token": _tokenizer(_added("Quick", special=False, normalized=True)),
    "a whole word as token": _tokenizer(_added("lazy", special=False, single_word=True)),
    "no class of tokenizer": _token_settings(tokenizer_class=None),
    "another class of tokenizer": _token_settings(tokenizer_class="BertTokenizer"),
    "another beginning": _token_settings(bos_token="</s>"),
    "an end by its settings": _token_settings(add_eos_token=True),
}
"""Changes to a checkpoint of byte pairs. A file that is made of it is the changed model's."""
