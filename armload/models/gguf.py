"""The facts about a GGUF model that decide how fast it can run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from armload.core.errors import DataError, UsageError
from armload.core.progress import Progress, Silent
from armload.models.checksum import cached_sha256
from armload.models.header import Header, Tensor, read_header, require_whole
from armload.models.header_values import Array
from armload.models.model import Model

KV_BYTES_PER_VALUE = 2
EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
PER_LAYER_EMBEDDING = "per_layer_token_embd.weight"


def read_model(path: Path, progress: Progress | None = None) -> Model:
    """Read a GGUF file's facts; check first that the file is whole, then take its checksum.

    Raises:
        UsageError: there is no such file.
        DataError: it is no GGUF file that llama.cpp could load on a board, or not a whole one.
    """
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise UsageError(f"The model {path} {what}.", "Give the path of a GGUF file.")
    try:
        header = read_header(path)
        require_whole(path, header)
        facts = _Facts(path, header)
        return Model(
            path=path,
            size_bytes=path.stat().st_size,
            architecture=facts.architecture,
            quantisation=quantisation(header.tensors),
            parameters=sum(tensor.elements for tensor in header.tensors),
            layers=facts.layers,
            context_length=facts.number("context_length"),
            vocabulary=facts.vocabulary,
            bytes_per_token=facts.bytes_per_token,
            kv_bytes_per_token=facts.kv_bytes_per_token,
            sha256=cached_sha256(path, progress or Silent()),
        )
    except OSError as error:
        raise UsageError(f"The model {path} cannot be read: {error.strerror}.") from error


def quantisation(tensors: tuple[Tensor, ...]) -> str:
    """Return the tensor type that holds most bytes of weights."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type_name] += tensor.size_bytes
    return sizes.most_common(1)[0][0]


class _Facts:
    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._metadata = header.metadata
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self.architecture = self._text("general.architecture")
        parts = self._metadata.get("split.count", 0)
        if isinstance(parts, int) and parts > 1:
            raise DataError(
                f"{path}: this is one of {parts} parts of a model.",
                "Join them with `llama-gguf-split --merge FIRST-PART WHOLE.gguf`.",
            )
        embedding = self._tensors.get(EMBEDDING)
        if embedding is None or not embedding.elements or not embedding.shape:
            raise DataError(
                f"{path}: this GGUF file is no language model: it has no tensor {EMBEDDING!r}.",
                "Give the model itself, not its vocabulary, adapter or image projector.",
            )
        self.layers = self.number("block_count")
        if self.layers > len(self._tensors):
            raise DataError(
                f"{path}: {self.architecture}.block_count says {self.layers} layers, and there "
                f"are only {len(self._tensors)} tensors.",
                "The file is damaged: download, copy or convert it again.",
            )

    def number(self, key: str, default: int | None = None) -> int:
        return self._at_layer(self._value(key, default), 0, key)

    @property
    def vocabulary(self) -> int:
        tokens = self._metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, Array):
            return tokens.length
        return self._tensors[EMBEDDING].shape[-1]

    @property
    def bytes_per_token(self) -> int:
        """Every weight is read once per step, except unused experts and lookup tables."""
        experts = self.number("expert_count", 0)
        used = self.number("expert_used_count", 0)
        tied = OUTPUT not in self._tensors
        total = 0
        for tensor in self._tensors.values():
            if tensor.name == PER_LAYER_EMBEDDING or (tensor.name == EMBEDDING and not tied):
                total += tensor.size_bytes // max(tensor.shape[-1], 1)
            elif "_exps." in tensor.name and experts:
                total += tensor.size_bytes * used // experts
            else:
                total += tensor.size_bytes
        return total

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers; latent attention (MLA) is counted as it is stored."""
        heads = self._value("attention.head_count", 0)
        kv_heads = self._metadata.get(f"{self.architecture}.attention.head_count_kv", heads)
        query_heads = self.number("attention.head_count", 0)
        per_head = self.number("embedding_length", 0) // query_heads if query_heads else 0
        values_per_head = self.number("attention.key_length", per_head) + self.number(
            "attention.value_length", per_head
        )
        all_heads = sum(
            self._at_layer(kv_heads, layer, "attention.head_count_kv")
            for layer in range(self.layers)
        )
        return all_heads * values_per_head * KV_BYTES_PER_VALUE

    def _value(self, key: str, default: int | None) -> object:
        value = self._metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise self._lacks(f"{self.architecture}.{key}")
        return value

    def _at_layer(self, value: object, layer: int, key: str) -> int:
        if isinstance(value, Array):
            value = value.items[layer] if layer < len(value.items) else None
        if not isinstance(value, int) or value < 0:
            raise DataError(
                f"{self._path}: {self.architecture}.{key} has no usable value for layer {layer}.",
                "Convert the model again with a current llama.cpp.",
            )
        return value

    def _text(self, key: str) -> str:
        value = self._metadata.get(key)
        if not isinstance(value, str) or not value:
            raise self._lacks(key)
        return value

    def _lacks(self, key: str) -> DataError:
        return DataError(
            f"{self._path}: this GGUF file lacks the metadata key {key!r}.",
            "Give a language model that was converted with a current llama.cpp.",
        )
