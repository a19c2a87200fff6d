"""The metadata of a GGUF header, and the errors of a header that lacks keys."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from armload.core.errors import DataError
from armload.models.gguf_values import Array
from armload.models.header import Header, Tensor

KV_BYTES_PER_VALUE, FLOAT_BYTES = 2, 4
_EXPERTS_OUT = "ffn_down_exps.weight"
EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
PER_LAYER_EMBEDDING = "per_layer_token_embd.weight"
POSITION_EMBEDDING = "position_embd.weight"
TYPE_EMBEDDING = "token_types.weight"

_ARCHITECTURE = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_BLOCK = re.compile(r"(?:^|\.)blk\.(\d{1,6})\.")
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate)_exps\.weight$")
_ATTENTION = re.compile(r"\.attn_(?:q|k|qkv)\.weight$")

_KINDS = {
    "mmproj": "the projector for images or sound (mmproj) of a multimodal model",
    "adapter": "an adapter (LoRA)",
    "imatrix": "an importance matrix",
    "vocab": "a vocabulary",
}
"""Values of ``general.type`` that are no models."""

_OLLAMAS_NAMES: Mapping[str, str] = {
    "deepseekocr": "deepseek2-ocr",
    "glm4moelite": "deepseek2",
    "glmocr": "",
    "gptoss": "gpt-oss",
    "mllama": "",
    "olmo3": "olmo2",
    "qwen25vl": "qwen2vl",
}
"""Architectures that Ollama's own converter names, and what llama.cpp calls them; empty where it
has none. Source: the folder ``model/models`` of Ollama."""

_OTHER_PARTS = re.compile(r"(?:v|mm)\.")
"""How the tensors for images begin, which llama.cpp keeps in a file of their own."""

_ENCODERS = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "llama-embed",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
    }
)
EMBEDS = "computes embeddings"
"""How the purpose of a model ends whose embeddings can be served."""

_DIFFUSION = frozenset({"dream", "llada", "llada-moe", "rnd1"})
_DRAFTS = frozenset({"dflash", "eagle3"})
RANKS = "ranks texts by how well they answer a query"
"""The purpose of a reranker."""

_POOLINGS: Mapping[object, str] = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""``llama_pooling_type`` of ``llama.h``; ``mean``, ``cls`` and ``last`` make embeddings."""

_PROMPTS = {
    "armload word problems": (
        "Question: Leo has 14 marbles. He collects until there are 2 times as many. He splits them "
        "into 2 equal piles and keeps one pile. He gives 7 marbles to Sam. A year later Leo has 3 "
        "times as many. How many marbles does Leo have now?\nAnswer:"
    )
}
"""By ``general.name``, for models that write nonsense after other texts."""

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
        value = self._metadata.get("general.architecture")
        if not isinstance(value, str) or not value:
            raise self._lacks("general.architecture")
        self.architecture = value
        if not _ARCHITECTURE.fullmatch(self.architecture):
            raise DataError(
                f"{path}: general.architecture is {self.architecture[:64]!a}, which is not the "
                "name of an architecture.",
                "The file is damaged. Download, copy or convert it again.",
            )
        self._check_kind()
        self._check_maker()
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
        self._check_layers()
        self._check_heads()
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
        return sum(tensor.elements for tensor in self._tensors.values())

    @property
    def vocabulary(self) -> int:
        tokens = self._metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, Array) and tokens.length:
            return tokens.length
        return self._tensors[EMBEDDING].shape[-1]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the weights that one token uses."""
        return self._used(lambda tensor: tensor.size_bytes)

    @property
    def active_parameters(self) -> int:
        """Number of the weights that one token uses."""
        return self._used(lambda tensor: tensor.elements)

    @property
    def matrix_bytes(self) -> Mapping[str, int]:
        """By tensor type, of the matrices that llama.cpp can lay out anew when it loads them.

        It does so with what it multiplies with, if the rows come in eights.
        """
        tables = self._tables
        sizes: Counter[str] = Counter()
        for tensor in self._tensors.values():
            is_matrix = len(tensor.shape) == (3 if "_exps." in tensor.name else 2)
            if is_matrix and tensor.name not in tables and tensor.shape[1] % 8 == 0:
                sizes[tensor.type_name] += tensor.size_bytes
        return dict(sizes)

    @property
    def _tables(self) -> set[str]:
        """Return the names of the matrices of which a token only reads a row."""
        tables = {PER_LAYER_EMBEDDING, POSITION_EMBEDDING, TYPE_EMBEDDING}
        has_no_logits = self.purpose == RANKS or self.purpose.endswith(EMBEDS)
        return {*tables, EMBEDDING} if OUTPUT in self._tensors or has_no_logits else tables

    def _used(self, size: Callable[[Tensor], int]) -> int:
        """Every weight is read once per step, except unused experts and lookup tables.

        Nor are the layers that guess further tokens.
        """
        idle = tuple(f"blk.{layer}." for layer in range(self.trunk_layers, self.layers))
        experts = self.number("expert_count", 0)
        used = self.number("expert_used_count", 0)
        by_row = self._tables
        total = 0
        for tensor in self._tensors.values():
            if tensor.name.startswith(idle):
                continue
            if tensor.name in by_row:
                total += size(tensor) // max(tensor.shape[-1], 1)
            elif "_exps." in tensor.name and experts:
                total += size(tensor) * used // experts
            else:
                total += size(tensor)
        return total

    @property
    def row_table_bytes(self) -> int:
        """Of embeddings for each layer, of which a token reads a row."""
        table = self._tensors.get(PER_LAYER_EMBEDDING)
        return table.size_bytes if table else 0

    @property
    def expert_bytes(self) -> int:
        """Of all experts' matrices, in the layers that plain decoding runs."""
        trunk = tuple(f"blk.{layer}." for layer in range(self.trunk_layers))
        return sum(
            tensor.size_bytes
            for tensor in self._tensors.values()
            if tensor.name.startswith(trunk) and tensor.name.endswith("_exps.weight")
        )

    @property
    def expert_bytes_per_token(self) -> int:
        """Of ``bytes_per_token``, what is of experts."""
        experts = self.number("expert_count", 0)
        return self.expert_bytes * self.number("expert_used_count", 0) // max(experts, 1)

    @property
    def activation_bytes_per_token(self) -> int:
        """What llama.cpp's compute buffers hold of a token, at most.

        Two vectors as wide as the feed-forward layers, eight as wide as the model, and one more for
        each expert that a token uses. That is what llama.cpp's own figures show of a Llama,
        a Qwen3 and a Qwen3 MoE; other architectures take up to a third less.
        """
        inner, width = self._most("feed_forward_length"), self.number("embedding_length", 0)
        used = self.number("expert_used_count", 0)
        of_experts = used * max(
            (each.shape[0] for each in self._tensors.values() if each.name.endswith(_EXPERTS_OUT)),
            default=0,
        )
        return FLOAT_BYTES * (2 * max(inner, of_experts) + (8 + used) * width)

    @property
    def attention_heads(self) -> int:
        return self._most("attention.head_count")

    @property
    def prediction_layers(self) -> int:
        """Layers at the end that guess further tokens (MTP), which plain decoding leaves out."""
        return self.number("nextn_predict_layers", 0)

    @property
    def trunk_layers(self) -> int:
        return self.layers - self.prediction_layers

    @cached_property
    def kv_heads(self) -> tuple[int, ...]:
        heads = self._value("attention.head_count", 0)
        return self.by_layer("attention.head_count_kv", heads)

    @property
    def head_widths(self) -> tuple[int, int]:
        heads = self.number("attention.head_count", 0)
        usual = self.number("embedding_length", 0) // heads if heads else 0
        return (
            self.number("attention.key_length", usual),
            self.number("attention.value_length", usual),
        )

    @property
    def input_width(self) -> int:
        """Of what a projector gives for a token: several layers take a part of their own."""
        return self.number("embedding_length", 0) * (1 + self.number("n_deepstack_layers", 0))

    def by_layer(self, key: str, default: object = None) -> tuple[int, ...]:
        """Return the number of each layer; the same for all where the header has only one."""
        value = self._value(key, default)
        return tuple(self._at_layer(value, layer, key) for layer in range(self.layers))

    def is_list(self, key: str) -> bool:
        """Say whether a key of the architecture has a value for each layer."""
        return isinstance(self._metadata.get(f"{self.architecture}.{key}"), Array)

    def has(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self._metadata

    def word(self, key: str) -> str:
        """Return a text; empty when there is none under that key."""
        value = self._metadata.get(key)
        return value if isinstance(value, str) else ""

    @property
    def prompt(self) -> str:
        """A text in the format that the model was trained on; empty where none is known."""
        return _PROMPTS.get(self.word("general.name"), "")

    @property
    def pooling(self) -> str:
        """How the file says that tokens become one embedding, or a score; empty where it does not.

        In the words of llama.cpp's ``--pooling``.
        """
        value = self._metadata.get(f"{self.architecture}.pooling_type")
        return _POOLINGS.get(value, "") if isinstance(value, int) else ""

    @property
    def purpose(self) -> str:
        """What the model does instead of generating text; empty where it generates."""
        if self.pooling == "rank":
            return RANKS
        if self.architecture in _ENCODERS:
            return f"is an encoder, which {EMBEDS}"
        if self.pooling in ("mean", "cls", "last"):
            return EMBEDS
        if self.architecture in _DIFFUSION:
            return "writes by diffusion, which llama-completion and llama-server cannot do"
        if self.architecture in _DRAFTS:
            return "only drafts for another model"
        return ""

    def _check_kind(self) -> None:
        kind = self.word("general.type")
        if self.architecture == "clip" or kind in _KINDS:
            what = _KINDS.get(kind, _KINDS["mmproj"])
            raise DataError(
                f"{self._path}: this GGUF file is not a language model: it is {what}.",
                "Give the model itself, which lies beside it."
                if what == _KINDS["mmproj"]
                else "Give the model itself.",
            )

    def _check_maker(self) -> None:
        """Name files that Ollama's own converter has written, which llama.cpp does not load."""
        if self.architecture in _OLLAMAS_NAMES:
            usual = _OLLAMAS_NAMES[self.architecture]
            what = f"the architecture {self.architecture}, as only Ollama calls it"
        elif other := next(filter(_OTHER_PARTS.match, self._tensors), ""):
            usual, what = self.architecture, f"the tensors for images inside ({other!a})"
        else:
            return
        called = f" ({usual} in llama.cpp)" if usual else ", if llama.cpp has that architecture"
        raise DataError(
            f"{self._path}: this file was made for Ollama: it has {what}, and llama.cpp does not "
            "load it.",
            f"Use the GGUF file of the same model that was made for llama.cpp{called}: look for "
            "one on the hub (hf:ORG/REPO), such as in the repositories of ggml-org, unsloth or "
            "bartowski.",
        )

    def _check_layers(self) -> None:
        """Refuse what llama.cpp refuses when it looks for each layer's tensors."""
        found = {int(match[1]) for name in self._tensors if (match := _BLOCK.search(name))}
        # Layers for multi-token prediction may lie in a file of their own.
        least = self.layers - min(self.number("nextn_predict_layers", 0), self.layers)
        most = max(self.layers, self.number("decoder_block_count", 0))
        count = len(found)
        if count < least or max(found, default=0) >= most:
            raise DataError(
                f"{self._path}: {self.architecture}.block_count is {self.layers}, but the file has "
                f"tensors of {count} layer{'' if count == 1 else 's'}.",
                "The file is damaged. Download, copy or convert it again.",
            )

    def _check_heads(self) -> None:
        has_attention = any(_ATTENTION.search(name) for name in self._tensors)
        if has_attention and not self._most("attention.head_count"):
            raise DataError(
                f"{self._path}: {self.architecture}.attention.head_count is 0, but the file has "
                "tensors of attention.",
                "The file is damaged. Download, copy or convert it again.",
            )

    def _check_experts(self) -> None:
        """Refuse what llama.cpp asserts of experts (``load_hparams`` in ``llama-model.cpp``)."""
        experts, used = self._most("expert_count"), self._most("expert_used_count")
        for name, tensor in self._tensors.items():
            if _EXPERTS.search(name) and len(tensor.shape) == 3 and tensor.shape[2] != experts:
                raise DataError(
                    f"{self._path}: {self.architecture}.expert_count is {experts}, but {name!a} "
                    f"has {tensor.shape[-1]} experts.",
                    "The file is damaged. Download, copy or convert it again.",
                )
        if self.architecture in _IGNORES_ONE_EXPERT and experts <= 1:
            return
        if used > experts or (experts and not used):
            raise DataError(
                f"{self._path}: {self.architecture}.expert_used_count is {used}, but "
                f"{self.architecture}.expert_count is {experts}: llama.cpp aborts on such a file.",
                "Correct the number of experts per token in the checkpoint's config.json, and "
                "convert it again.",
            )

    def _most(self, key: str) -> int:
        value = self._value(key, 0)
        layers = range(self.layers) if isinstance(value, Array) else [0]
        return max((self._at_layer(value, layer, key) for layer in layers), default=0)

    def _value(self, key: str, default: object) -> object:
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

    def _lacks(self, key: str) -> DataError:
        return DataError(
            f"{self._path}: this GGUF file lacks the metadata key {key!r}.",
            "Give a language model converted with a current llama.cpp.",
        )
