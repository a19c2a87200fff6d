"""The metadata of a GGUF header, and the errors of a header that lacks keys."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path

from armload.core.errors import DataError
from armload.models.header import Array, Header

KV_BYTES_PER_VALUE, FLOAT_BYTES = 2, 4
EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
PER_LAYER_EMBEDDING = "per_layer_token_embd.weight"

_IGNORES_ONE_EXPERT = ("hunyuan-dense", "hunyuan_vl")


class Metadata:
    """What the header of a language model says; asked only for what is needed.

    Every method raises DataError where the header lacks a key or has nonsense for it.

    Attributes:
        architecture: ``general.architecture``, the prefix of most keys.
        layers: transformer blocks.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._metadata = header.metadata
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self.architecture = self._text("general.architecture")
        embedding = self._tensors.get(EMBEDDING)
        if embedding is None or not embedding.elements or not embedding.shape:
            raise DataError(
                f"{path}: this GGUF file is not a language model: it has no tensor {EMBEDDING!r}.",
                "Give the model itself, not its vocabulary, adapter or image projector.",
            )
        self.layers = self.number("block_count")
        if not self.layers:
            raise DataError(
                f"{path}: {self.architecture}.block_count is 0: this model has no layers.",
                "Give a whole language model converted with a current llama.cpp.",
            )
        if self.prediction_layers >= self.layers:
            raise DataError(
                f"{path}: {self.architecture}.nextn_predict_layers is {self.prediction_layers}, "
                f"but there are only {self.layers} layers.",
                "Give the whole model, not only the layers that predict further tokens.",
            )
        if self.layers > len(self._tensors):
            raise DataError(
                f"{path}: {self.architecture}.block_count is {self.layers}, but the file has "
                f"only {len(self._tensors)} tensors.",
                "The file is damaged. Download, copy or convert it again.",
            )
        self._check_experts()

    def number(self, key: str, default: int | None = None) -> int:
        """Return a number of the architecture; the first layer's where layers differ."""
        return self._at_layer(self._value(key, default), 0, key)

    @property
    def quantisation(self) -> str:
        """The tensor type that holds most bytes of weights."""
        sizes: Counter[str] = Counter()
        for tensor in self._tensors.values():
            sizes[tensor.type_name] += tensor.size_bytes
        return sizes.most_common(1)[0][0]

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(tensor.elements for tensor in self._tensors.values())

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        tokens = self._metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, Array) and tokens.length:
            return tokens.length
        return self._tensors[EMBEDDING].shape[-1]

    @property
    def bytes_per_token(self) -> int:
        """Every weight is read once per step, except unused experts and lookup tables.

        Nor are the layers that guess further tokens.
        """
        idle = tuple(f"blk.{layer}." for layer in range(self.trunk_layers, self.layers))
        experts = self.number("expert_count", 0)
        used = self.number("expert_used_count", 0)
        tied = OUTPUT not in self._tensors
        total = 0
        for tensor in self._tensors.values():
            if tensor.name.startswith(idle):
                continue
            if tensor.name == PER_LAYER_EMBEDDING or (tensor.name == EMBEDDING and not tied):
                total += tensor.size_bytes // max(tensor.shape[-1], 1)
            elif "_exps." in tensor.name and experts:
                total += tensor.size_bytes * used // experts
            else:
                total += tensor.size_bytes
        return total

    @property
    def activation_bytes_per_token(self) -> int:
        """What llama.cpp's compute buffers hold of a token, at most.

        Two vectors as wide as the feed-forward layers, and eight as wide as the model, as
        ``armload_graph_bytes`` finds them in Llama and Qwen2.
        """
        inner, width = self._most("feed_forward_length"), self.number("embedding_length", 0)
        return FLOAT_BYTES * (2 * inner + 8 * width)

    @property
    def prediction_layers(self) -> int:
        """Layers at the end that guess further tokens (MTP), which plain decoding leaves out."""
        return self.number("nextn_predict_layers", 0)

    @property
    def trunk_layers(self) -> int:
        """Layers without those that guess further tokens."""
        return self.layers - self.prediction_layers

    @cached_property
    def kv_heads(self) -> tuple[int, ...]:
        """Heads for keys and values, of each layer."""
        heads = self._value("attention.head_count", 0)
        return self._each_layer("attention.head_count_kv", heads)

    @property
    def head_widths(self) -> tuple[int, int]:
        """Width of one head's keys, and of its values."""
        heads = self.number("attention.head_count", 0)
        usual = self.number("embedding_length", 0) // heads if heads else 0
        return (
            self.number("attention.key_length", usual),
            self.number("attention.value_length", usual),
        )

    def by_layer(self, key: str, default: int | None = None) -> tuple[int, ...]:
        """Return the number of each layer; the same for all where the header has only one."""
        return self._each_layer(key, default)

    def is_list(self, key: str) -> bool:
        """Say whether a key of the architecture has a value for each layer."""
        return isinstance(self._metadata.get(f"{self.architecture}.{key}"), Array)

    def has(self, key: str) -> bool:
        """Say whether the architecture has a key."""
        return f"{self.architecture}.{key}" in self._metadata

    def word(self, key: str) -> str:
        """Return a text; empty when there is none under that key."""
        value = self._metadata.get(key)
        return value if isinstance(value, str) else ""

    def _check_experts(self) -> None:
        """Refuse what llama.cpp asserts of experts (``load_hparams`` in ``llama-model.cpp``)."""
        experts, used = self.number("expert_count", 0), self._most("expert_used_count")
        if self.architecture in _IGNORES_ONE_EXPERT and experts <= 1:
            return
        if used > experts or (experts and not used):
            raise DataError(
                f"{self._path}: {self.architecture}.expert_used_count is {used}, but "
                f"{self.architecture}.expert_count is {experts}: llama.cpp aborts on such a file.",
                "Correct the number of experts per token in the checkpoint's config.json, and "
                "convert it again.",
            )

    def _each_layer(self, key: str, default: object) -> tuple[int, ...]:
        value = self._metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise self._lacks(f"{self.architecture}.{key}")
        return tuple(self._at_layer(value, layer, key) for layer in range(self.layers))

    def _most(self, key: str) -> int:
        value = self._value(key, 0)
        layers = range(self.layers) if isinstance(value, Array) else [0]
        return max((self._at_layer(value, layer, key) for layer in layers), default=0)

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
            "Give a language model converted with a current llama.cpp.",
        )
