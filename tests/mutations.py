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
