"""A GGUF file with a LoRA adapter, checked against the model that it is for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, require_utf_8, unreadable
from armload.core.progress import Progress
from armload.core.shell import join
from armload.models.adapter import Adapter, AdapterChoice
from armload.models.gguf import read_outline
from armload.models.header import Header, Tensor, check_whole, read_header
from armload.models.metadata import EMBEDDING
from armload.models.model import Model, cached_sha256

_A, _B, _IGNORED = ".lora_a", ".lora_b", "_norm.weight"
_SEPARATORS = re.compile(r'[:,"\s]')
"""Of llama.cpp's option for several adapters."""


def with_adapters(
    model: Model,
    choices: Sequence[AdapterChoice],
    progress: Progress,
    *,
    header: Header | None = None,
) -> Model:
    """Return a model with adapters, as computed with them.

    Args:
        choices: empty for the model alone.
        header: of the model; none to read its file.

    Raises:
        UsageError, DataError: a file is missing or no adapter, or does not fit the model.
    """
    if not choices:
        return model
    base = header or read_outline(model.path)[1]
    adapters = tuple(_read(each, model, base, progress) for each in choices)
    known: dict[str, str] = {}
    for each in adapters:
        if other := known.get(each.sha256):
            raise UsageError(
                f"--lora: {other} and {each.path} are the same file.",
                "List it once, with the sum of the scales.",
            )
        known[each.sha256] = str(each.path)
    return model.model_copy(update={"adapters": adapters})


def _read(choice: AdapterChoice, model: Model, base: Header, progress: Progress) -> Adapter:
    path = Path(choice.file).expanduser()
    if path.is_dir() and (path / "adapter_config.json").is_file():
        raise DataError(
            f"--lora: {path}: this is a PEFT checkpoint, not a GGUF adapter.",
            f"Convert it, and give the result: {join(('armload', 'model.convert', str(path)))}",
        )
    require_file(path, "adapter", "Give the path of a GGUF file: --lora FILE[:SCALE].")
    require_utf_8(path)
    if _SEPARATORS.search(path.name):
        raise UsageError(
            f"--lora: {path}: llama.cpp cannot take an adapter whose file name contains spaces, "
            "commas, colons or quotes.",
            "Rename the file.",
        )
    try:
        header = read_header(path)
        check_whole(path, header.file_bytes, header.whole_bytes)
        pairs = _pairs(path, header, model.architecture)
        ranks = [_rank(path, name, pair, base, model) for name, pair in pairs.items()]
        sha256 = cached_sha256(path, progress)
    except OSError as error:
        raise unreadable(path, error) from error
    tensors = [each for pair in pairs.values() for each in pair]
    name = header.metadata.get("general.base_model.0.name", "")
    return Adapter(
        path=path,
        sha256=sha256,
        size_bytes=header.file_bytes,
        scale=choice.scale,
        rank=max(ranks),
        alpha=_alpha(path, header),
        parameters=sum(each.elements for each in tensors),
        weights_bytes=sum(each.size_bytes for each in tensors),
        base=name[:200] if isinstance(name, str) else "",
    )


def _alpha(path: Path, header: Header) -> float:
    alpha = header.metadata.get("adapter.lora.alpha", 0.0)
    # llama.cpp ends with an assertion where the key has another type.
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise DataError(
            f"{path}: adapter.lora.alpha is {alpha!r}, which is not a finite 32-bit float.",
            "The file is damaged. Convert the adapter again.",
        )
    return alpha


Pair = tuple[Tensor, Tensor]


def _pairs(path: Path, header: Header, architecture: str) -> Mapping[str, Pair]:
    """Return the two factors of each product, by the tensor that it is added to."""
    kind = header.metadata.get("general.type", "model")
    if kind != "adapter":
        raise DataError(
            f"--lora: {path}: this GGUF file is not an adapter: its general.type is {kind!a}.",
            "Give a file that armload model.convert has made of an adapter.",
        )
    found = header.metadata.get("general.architecture")
    if found != architecture:
        raise DataError(
            f"--lora: {path}: this adapter is for the architecture {found!a}, and the model has "
            f"{architecture!a}.",
            "Use the adapter with the model that it was trained for.",
        )
    adapter_type = header.metadata.get("adapter.type")
    if adapter_type != "lora":
        raise DataError(
            f"--lora: {path}: this is an adapter of type {adapter_type!a}, and llama.cpp "
            "supports lora.",
            "Use a LoRA adapter.",
        )
    named = {tensor.name: tensor for tensor in header.tensors}
    names = dict.fromkeys(
        name.removesuffix(_A).removesuffix(_B) for name in named if not name.endswith(_IGNORED)
    )
    pairs = {}
    for name in names:
        a, b = named.get(name + _A), named.get(name + _B)
        if a is None or b is None:
            raise DataError(
                f"--lora: {path}: the tensor {name!a} lacks {_A if a is None else _B}.",
                "The file is damaged, or of an older format. Convert the adapter again.",
            )
        pairs[name] = (a, b)
    if not pairs:
        raise DataError(
            f"--lora: {path}: this adapter has no tensors.", "Convert the adapter again."
        )
    return pairs


def _rank(path: Path, name: str, pair: Pair, base: Header, model: Model) -> int:
    """Return the rank of a product, after the checks that llama.cpp makes when it loads it."""
    changed = next((tensor for tensor in base.tensors if tensor.name == name), None)
    if changed is None:
        raise DataError(
            f"--lora: {path}: this adapter changes the tensor {name!a}, which {model.name} does "
            "not have.",
            "Use the adapter with the model that it was trained for.",
        )
    a, b = (tuple(each.shape) + (1,) * (2 - len(each.shape)) for each in pair)
    whole = tuple(changed.shape) + (1,) * (2 - len(changed.shape))
    if name == EMBEDDING:  # which is looked up, not multiplied with
        fits = (b[1], a[1]) == whole[:2] and a[0] == b[0]
        rank = a[0]
    else:
        fits = (a[0], b[1]) == whole[:2] and a[1] == b[0]
        rank = a[1]
    if not fits or not rank or a[2:] != b[2:] or (a[2:] and a[2:] != whole[2:]):
        raise DataError(
            f"--lora: {path}: the adapter's products for {name!a} have the shapes "
            f"{_shape(a)} and {_shape(b)}, which do not fit the model's {_shape(whole)}.",
            "Use the adapter with the model that it was trained for.",
        )
    return rank


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
