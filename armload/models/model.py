"""A model file and the facts that decide how it runs."""

from __future__ import annotations

from pathlib import Path

from armload.core.values import Value


class ModelPart(Value):
    """One file of a model that is split into several.

    Attributes:
        path: on this machine.
        sha256: of the file, 64 hexadecimal digits.
    """

    path: Path
    sha256: str


class Model(Value):
    """A GGUF file that was read and found whole, or the parts of one.

    Attributes:
        path: the file on this machine; of several parts, the first.
        parts: all of them, if there are several.
        sha256: of the whole file, 64 hexadecimal digits; of several, of the list of theirs.
        size_bytes: of the whole file, or of all parts.
        architecture: ``general.architecture``, such as ``llama``.
        quantisation: the tensor type that most weights have, such as ``Q4_0``.
        parameters: number of weights.
        layers: number of transformer blocks.
        context_length: the longest context the model was trained for, in tokens.
        vocabulary: number of tokens.
        bytes_per_token: weight bytes that one decode step reads.
        kv_bytes_per_token: KV-cache bytes per token of context, at 16 bits a value.
        activation_bytes_per_token: of the engine's buffers, for each token of a micro-batch.
        experts: of a mixture of experts, in each layer; else 0.
        layers_without_attention: of a recurrent or hybrid model; else 0.
    """

    path: Path
    sha256: str
    size_bytes: int
    architecture: str
    quantisation: str
    parameters: int
    layers: int
    context_length: int
    vocabulary: int
    bytes_per_token: int
    kv_bytes_per_token: int
    activation_bytes_per_token: int = 0
    experts: int = 0
    layers_without_attention: int = 0
    parts: tuple[ModelPart, ...] = ()

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def unlike(self) -> str:
        """Why no slice and no estimate stands for its layers; empty where they can."""
        missing = self.layers_without_attention
        if not missing:
            return ""
        return f"it is recurrent or hybrid ({missing} of {self.layers} layers without attention)"
