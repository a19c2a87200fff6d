"""A Hugging Face checkpoint in a folder: what it is, and whether all of it is there."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from armload.core.bounds import read_bounded
from armload.core.errors import DataError, UsageError
from armload.core.files import unreadable
from armload.core.values import Value, load_json

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
NEEDED_PATTERNS = (
    *("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken", "README.md"),
    *("*_Pooling/config.json", "*_Dense/config.json", "*_Dense/model.safetensors"),
)
"""Files of a checkpoint that take part in a conversion: no Python, and no pickled weights. How an
encoder of sentence-transformers pools its tokens, and the dense layers behind that, are in folders
that ``modules.json`` names."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json")
_PART = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors", re.ASCII)
_NAMES_SHOWN = 5
_NEW_MAJOR = 5
_VERSION_LENGTH = 20
_PACKED = {"I32": 8, "U8": 2}
"""Weights in an element of a type that holds several: those of 4 bits, as most are."""

TEXT_CLASSES = {"Lfm2VlForConditionalGeneration": "Lfm2ForCausalLM"}
"""Architectures that llama.cpp's converter knows for the projector alone, and for the text by the
class that published models name in ``text_config``; transformers 5 leaves it out."""

_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
_OF_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d{1,6})\.", re.ASCII)


class CheckpointOutline(Value):
    """What a checkpoint's ``config.json`` says.

    Attributes:
        architecture: the class that it was saved from, such as ``LlamaForCausalLM``.
        model_type: as the library transformers calls the architecture, such as ``llama``.
        tied: whether the token embedding is also the output matrix.
        brings_code: whether it wants Python code of its own to be run.
        transformers: the version of the library that saved it; empty if it does not say.
        layers: that its configuration states; 0 if it does not say.
    """

    architecture: str
    model_type: str
    tied: bool
    brings_code: bool
    transformers: str
    layers: int


class Checkpoint(CheckpointOutline):
    """A checkpoint whose files are all there.

    Attributes:
        folder: that it lies in.
        name: for people and for files that are made of it.
        architecture: the class that it was saved from, such as ``LlamaForCausalLM``.
        model_type: as the library transformers calls the architecture, such as ``llama``.
        dtype: the type of most of its weights, as safetensors calls it.
        parameters: the number of its weights; about, if they are quantised.
        size_bytes: of its files of weights.
        largest_tensor: the number of weights in its largest tensor.
        tied: whether the token embedding is also the output matrix.
        brings_code: whether it wants Python code of its own to be run.
        transformers: the version of the library that saved it; empty if it does not say.
        layers: that its configuration states; 0 if it does not say.
    """

    folder: Path
    name: str
    dtype: str
    parameters: int
    size_bytes: int
    largest_tensor: int

    @property
    def is_new(self) -> bool:
        """Whether transformers 5 or a later version saved it, which older ones misread."""
        major = self.transformers.partition(".")[0]
        return major.isdecimal() and int(major) >= _NEW_MAJOR


def read_checkpoint(folder: Path, name: str = "") -> Checkpoint:
    """Read a checkpoint, except for the values of its weights.

    Args:
        folder: the checkpoint's.
        name: its name; the folder's own if it is empty.
    """
    outline = read_checkpoint_outline(folder)
    files = weight_files(folder)
    tensors = _tensors(folder, files)
    if not any((folder / each).is_file() for each in _TOKENIZERS) and not list(
        folder.glob("*.tiktoken")
    ):
        raise DataError(
            f"{folder}: this checkpoint has no tokenizer (none of {', '.join(_TOKENIZERS)}).",
            "Copy the tokenizer's files of the same model into the folder.",
        )
    numbers = [int(match[1]) for name in tensors if (match := _OF_LAYER.search(name))]
    if numbers and outline.layers > max(numbers) + 1:
        raise DataError(
            f"{folder}: config.json says {outline.layers} layers, but there are weights of "
            f"{max(numbers) + 1} only.",
            "Correct the number of layers in config.json, or use the one that belongs to these "
            "weights. If layers were cut off the weights, copy all of their files again.",
        )
    weights_of: Counter[str] = Counter()
    for each in tensors.values():
        weights_of[each.dtype] += each.weights
    return Checkpoint(
        folder=folder,
        name=name or folder.absolute().name,
        **dict(outline),
        dtype=weights_of.most_common(1)[0][0],
        parameters=weights_of.total(),
        size_bytes=sum((folder / file).stat().st_size for file in files),
        largest_tensor=max(each.weights for each in tensors.values()),
    )


def read_checkpoint_outline(folder: Path) -> CheckpointOutline:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(
            f"{folder} {what}; a checkpoint is a folder with {CONFIG} and *.safetensors.",
            "Give that folder, or hf:ORG/REPO to download one.",
        )
    path = folder / CONFIG
    if not path.is_file():
        is_adapter = (folder / ADAPTER_CONFIG).is_file()
        what = (
            "this is an adapter, not a whole checkpoint"
            if is_adapter
            else f"there is no {CONFIG}, so this is not a checkpoint"
        )
        raise UsageError(
            f"{folder}: {what}.",
            "Merge it into its base model and save that, or convert it to GGUF, for --lora of "
            "bench."
            if is_adapter
            else f"Give the folder with {CONFIG} and *.safetensors, or hf:ORG/REPO.",
        )
    config = read_object(path)
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else {}
    names = text.get("architectures") or config.get("architectures")
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        raise DataError(
            f"{path}: 'architectures' is missing.",
            'Add the class that the checkpoint was saved from: "architectures": '
            '["LlamaForCausalLM"].',
        )
    return CheckpointOutline(
        architecture=TEXT_CLASSES.get(names[0], names[0]),
        model_type=str(config.get("model_type", "")),
        tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        brings_code="auto_map" in config,
        transformers=str(config.get("transformers_version") or "")[:_VERSION_LENGTH],
        layers=next((n for n in map((text or config).get, _LAYERS) if type(n) is int), 0),
    )


_MOST_BYTES = 256 << 20
"""Of an index of tensors, or a tokenizer's file."""


def read_object(path: Path) -> dict[str, Any]:
    text = read_bounded(path, _MOST_BYTES, "Download it again.")
    try:
        content = load_json(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Download it again.") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}.", "Download or save the file again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object.", "Download or save the file again.")
    return content


def shards(folder: Path) -> Mapping[str, str]:
    """Return the file of each tensor that the index names; nothing where there is no index."""
    path = folder / INDEX
    if not path.is_file():
        return {}
    content = read_object(path).get("weight_map")
    if (
        not isinstance(content, dict)
        or not content
        or not all(
            isinstance(file, str) and file == Path(file).name and file.endswith(".safetensors")
            for file in content.values()
        )
    ):
        raise DataError(
            f"{path}: 'weight_map' does not say which file each tensor is in.",
            "Download or save the file again.",
        )
    return content


def weight_files(folder: Path) -> list[str]:
    """Return the names of the files that hold a checkpoint's weights."""
    files = sorted(set(shards(folder).values())) or _without_index(folder)
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(files)} weight files "
            f"{'is' if len(missing) == 1 else 'are'} missing: {_listed(missing)}.",
            "Download them into the folder; all are needed.",
        )
    return files


def _tensors(folder: Path, files: Sequence[str]) -> Mapping[str, _Tensor]:
    index = shards(folder)
    tensors: dict[str, _Tensor] = {}
    for file in files:
        found = _header(folder / file)
        absent = [name for name, place in index.items() if place == file and name not in found]
        if absent:
            raise DataError(
                f"{folder / file}: tensors that {INDEX} lists are missing: {_listed(absent)}.",
                "The file belongs to another version of the model: download both again.",
            )
        tensors |= found
    if not tensors:
        raise DataError(f"{folder}: the weight files are empty.", "Download them again.")
    return tensors


class _Tensor(NamedTuple):
    dtype: str
    weights: int


def _header(path: Path) -> dict[str, _Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no dict
            return {
                name: _Tensor(
                    dtype=(dtype := each.get_dtype()),
                    weights=math.prod(each.get_shape()) * _PACKED.get(dtype, 1),
                )
                for name, each in slices.items()
            }
    except OSError as error:
        raise unreadable(path, error) from error
    except SafetensorError as error:
        reason = str(error).removeprefix("Error while deserializing header: ")[:200]
        raise DataError(
            f"{path}: this file is truncated, damaged, or not a safetensors file ({reason}).",
            "Download it again.",
        ) from error


def _without_index(folder: Path) -> list[str]:
    if (folder / SINGLE).is_file():
        return [SINGLE]
    parts = [match for path in folder.iterdir() if (match := _PART.fullmatch(path.name))]
    if parts:
        count = max(int(match[2]) for match in parts)
        return [f"model-{part + 1:05}-of-{count:05}.safetensors" for part in range(count)]
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise DataError(
            f"{folder}: the weights are pickled (*.bin or *.pt), and reading a pickle can run any "
            "code.",
            "Use the *.safetensors of the same model, or save it again with "
            "save_pretrained(folder, safe_serialization=True).",
        )
    raise DataError(
        f"{folder}: there are no weights: no {SINGLE} and no {INDEX}.",
        "Download the *.safetensors files into the folder.",
    )


def _listed(names: Iterable[str]) -> str:
    first, rest = list(names)[:_NAMES_SHOWN], list(names)[_NAMES_SHOWN:]
    return ", ".join(first) + (f" and {len(rest)} more" if rest else "")
