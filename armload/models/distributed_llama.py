"""Which models distributed-llama can run, on how many nodes, and its file of such a model.

Format: ``loadLlmHeader`` and ``loadLlmNetWeight`` in ``src/llm.cpp`` of distributed-llama. Its
block of quantised weights is ggml's Q4_0, to the byte.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from armload.core.errors import UsageError
from armload.core.shell import join
from armload.core.values import Value
from armload.models.header import Header, Tensor, tensor_bytes
from armload.models.metadata import EMBEDDING, FLOAT_BYTES, OUTPUT, Metadata

Matrices = Literal["Q4_0", "F32"]
"""Types of all its matrices."""

_MAGIC = 0xA00ABCD
_ARCHITECTURES = {"llama": 0xABCD00, "qwen3": 0xABCD01, "qwen3moe": 0xABCD02}
_EPSILONS = {1e-5: 5, 1e-6: 6}
_FLOAT_TYPES: dict[Matrices, int] = {"F32": 0, "Q4_0": 2}
_SILU, _ROPE_LLAMA_3 = 1, 2
_LLAMA_3_SCALING = (1, 4, 8192)
"""Of the frequencies that Llama 3 divides: a low and a high factor, and the former context."""

_BLOCK = 32
_Q8_0_BYTES = 34
_FLOATS_AT_ONCE = 8
"""Its kernels for 32-bit floats take so many on x86-64; on ARM four."""

MOST_NODES = 64
BATCH_TOKENS = 32
"""Tokens of a prompt that go through the model at a time, if a plan says nothing."""

_PROGRAM_BYTES = 24 << 20
_FREQUENCIES = "rope_freqs.weight"

REST_MARK = b"armload-output-1"
"""The last bytes of a file whose last matrix is the rest of the output matrix."""


class Stored(Value):
    """A tensor of its file, in the order of the file.

    Attributes:
        name: of the tensor in the GGUF file.
        expert: the number of the one that it is of, where that tensor holds those of all.
        type_name: in which it is stored, ``F32`` or ``Q4_0``.
        elements: how many.
        is_everywhere: every node has all of it; else each has a part, or the root alone has it.
        is_rest: what the matrix before it lost when it was quantised.
    """

    name: str
    expert: int | None = None
    type_name: Matrices
    elements: int
    is_everywhere: bool = False
    is_rest: bool = False

    @property
    def size_bytes(self) -> int:
        return tensor_bytes(self.type_name, (self.elements,))


class NodeMemory(Value):
    """What a node takes of its board's memory, without the file that the root maps.

    Attributes:
        weights_bytes: its part of the weights, which it copies and locks.
        kv_bytes: its part of the KV cache, in 32 bits.
        buffer_bytes: of the program and its buffers.
    """

    weights_bytes: int
    kv_bytes: int
    buffer_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.buffer_bytes


class DistributedModel(Value):
    """A model that distributed-llama can run.

    Attributes:
        name: of the GGUF file.
        architecture: as GGUF calls it.
        matrices: type of all matrices.
        output_type: of the output matrix in the GGUF file.
        width, feed_forward, layers, heads, kv_heads, head_width: as in the GGUF file; of a mixture,
            ``feed_forward`` is that of an expert.
        experts, active_experts: 0 without a mixture.
        vocabulary: rows of the embedding.
        context_length: the longest that it was trained for.
        epsilon, theta: of norms and of rotary positions.
        scaling: of Llama 3's positions; none without.
        is_tied: the embedding is the output matrix, too.
    """

    name: str
    architecture: str
    matrices: Matrices
    output_type: str
    width: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    experts: int = 0
    active_experts: int = 0
    vocabulary: int
    context_length: int
    epsilon: float
    theta: int
    scaling: int | None = None
    is_tied: bool

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_width

    @property
    def query_width(self) -> int:
        return self.heads * self.head_width

    @property
    def has_rest(self) -> bool:
        """The output matrix is the sum of two in Q4_0, which has 8 bits.

        Most files have it in Q6_K or Q8_0, and a quarter of the top tokens would be others without.
        """
        return self.matrices == "Q4_0" != self.output_type

    @property
    def exchanged_bytes(self) -> float:
        """Of each activation that nodes exchange: in Q8_0 blocks, or as a float."""
        return _Q8_0_BYTES / _BLOCK if self.matrices == "Q4_0" else FLOAT_BYTES

    def check_nodes(self, nodes: int) -> None:
        """Refuse a number of nodes that cannot share the model.

        Raises:
            UsageError: says why, and which numbers can.
        """
        why = self.obstacle(nodes)
        if why:
            fit = [each for each in (1, 2, 4, 8, 16, 32, 64) if not self.obstacle(each)]
            numbers = " or ".join(map(str, fit))
            raise UsageError(
                f"distributed-llama cannot run {self.name} on {nodes} boards: {why}.",
                f"It can run on {numbers}: name a group of so many, or use --engine llama.cpp."
                if fit
                else "Use --engine llama.cpp.",
            )

    def obstacle(self, nodes: int) -> str:
        """Say why so many nodes cannot share the model; nothing where they can."""
        if nodes < 1 or nodes & (nodes - 1):
            return "the number of boards must be a power of two"
        if nodes > min(self.kv_heads, MOST_NODES):
            return f"it has only {self.kv_heads} key-value heads"
        step = self._step
        shared = {
            "attention heads": (self.heads, 1),
            "key-value heads": (self.kv_heads, 1),
            "width of the heads together": (self.query_width, step),
            "feed-forward width": (self.feed_forward, step),
            "vocabulary": (self.vocabulary, 1),
        }
        if self.width % step or self.head_width % _FLOATS_AT_ONCE:
            return (
                f"its width ({self.width}) and that of its heads ({self.head_width}) must be "
                f"multiples of {step} and {_FLOATS_AT_ONCE}"
            )
        for what, (size, unit) in shared.items():
            if size % (nodes * unit):
                parts = f" in multiples of {unit}" if unit > 1 else ""
                return f"its {what} ({size}) cannot be divided by {nodes}{parts}"
        return ""

    @property
    def _step(self) -> int:
        return _BLOCK if self.matrices == "Q4_0" else _FLOATS_AT_ONCE

    def memory(self, nodes: int, context_tokens: int, batch_tokens: int) -> list[NodeMemory]:
        """Return what each node takes, the root first, as its buffers follow from ``llm.cpp``."""
        parts = sum(each.size_bytes for each in self.tensors() if not _is_whole(each))
        whole = sum(each.size_bytes for each in self.tensors() if each.is_everywhere)
        embedding = FLOAT_BYTES * self.vocabulary * self.width
        kv = 2 * FLOAT_BYTES * self.layers * self.kv_width * context_tokens // nodes
        active = max(1, self.active_experts)
        per_token = (
            FLOAT_BYTES
            * (
                (3 + active) * self.width
                + 3 * self.query_width
                + self.heads * context_tokens // nodes
                + 2 * (1 + active) * self.feed_forward // nodes
                + self.vocabulary
                + (1 + self.has_rest) * self.vocabulary // nodes
            )
            + _Q8_0_BYTES * (nodes + 1 + active) * self.width // _BLOCK
        )
        positions = FLOAT_BYTES * context_tokens * (self.query_width + self.kv_width) // nodes
        matrix = max(each.size_bytes for each in self.tensors() if not _is_whole(each)) // nodes
        buffers = _PROGRAM_BYTES + batch_tokens * per_token + positions + matrix
        return [
            NodeMemory(
                weights_bytes=parts // nodes + whole + (embedding if node == 0 else 0),
                kv_bytes=kv,
                buffer_bytes=buffers,
            )
            for node in range(nodes)
        ]

    def tensors(self) -> Iterator[Stored]:
        """Yield what follows the header."""
        wide, inner = self.width, self.feed_forward
        yield Stored(name=EMBEDDING, type_name="F32", elements=self.vocabulary * wide)
        for layer in range(self.layers):
            block = f"blk.{layer}."
            yield self._matrix(f"{block}attn_q.weight", wide * self.query_width)
            yield self._matrix(f"{block}attn_k.weight", wide * self.kv_width)
            yield self._matrix(f"{block}attn_v.weight", wide * self.kv_width)
            yield self._matrix(f"{block}attn_output.weight", wide * self.query_width)
            if self.experts:
                router = f"{block}ffn_gate_inp.weight"
                yield _everywhere(router, wide * self.experts)
            for expert in range(self.experts):
                for part in ("gate", "down", "up"):
                    yield self._matrix(f"{block}ffn_{part}_exps.weight", wide * inner, expert)
            if not self.experts:
                for part in ("gate", "down", "up"):
                    yield self._matrix(f"{block}ffn_{part}.weight", wide * inner)
            if self.architecture != "llama":
                for part in ("q", "k"):
                    yield _everywhere(f"{block}attn_{part}_norm.weight", self.head_width)
            for part in ("attn", "ffn"):
                yield _everywhere(f"{block}{part}_norm.weight", wide)
        yield _everywhere("output_norm.weight", wide)
        output = self._matrix(EMBEDDING if self.is_tied else OUTPUT, self.vocabulary * wide)
        yield output
        if self.has_rest:
            yield output.model_copy(update={"is_rest": True})

    def computed_tensors(self) -> Iterator[Stored]:
        """Yield what tokens are computed with: all but the embedding, and all experts."""
        yield from (each for each in self.tensors() if each.is_everywhere or not _is_whole(each))

    def _matrix(self, name: str, elements: int, expert: int | None = None) -> Stored:
        return Stored(name=name, expert=expert, type_name=self.matrices, elements=elements)

    def header(self) -> bytes:
        """Return the beginning of its file."""
        values = {
            0: 0,
            1: _ARCHITECTURES[self.architecture],
            2: self.width,
            3: self.feed_forward,
            4: self.layers,
            5: self.heads,
            6: self.kv_heads,
            7: self.experts,
            8: self.active_experts,
            9: self.vocabulary,
            10: self.context_length,
            11: _SILU,
            12: self.theta,
            13: _FLOAT_TYPES[self.matrices],
            19: self.head_width,
            20: _EPSILONS[self.epsilon],
        }
        if self.scaling is not None:
            low, high, before = _LLAMA_3_SCALING
            values |= {14: self.scaling, 15: low, 16: high, 17: before, 18: _ROPE_LLAMA_3}
        if self.experts:
            values[21] = self.feed_forward
        pairs = b"".join(struct.pack("<ii", *pair) for pair in values.items())
        return struct.pack("<ii", _MAGIC, 8 + len(pairs)) + pairs

    @property
    def file_bytes(self) -> int:
        matrices = sum(each.size_bytes for each in self.tensors())
        return len(self.header()) + matrices + (len(REST_MARK) if self.has_rest else 0)


def _everywhere(name: str, elements: int) -> Stored:
    return Stored(name=name, type_name="F32", elements=elements, is_everywhere=True)


def _is_whole(stored: Stored) -> bool:
    is_looked_up = stored.name == EMBEDDING and stored.type_name == "F32"
    return stored.is_everywhere or is_looked_up


def distributed_model(path: Path, header: Header, frequencies: Sequence[float]) -> DistributedModel:
    """Return what distributed-llama makes of a GGUF file.

    Args:
        frequencies: by which it divides those of rotary positions; none where it does not.

    Raises:
        UsageError: distributed-llama cannot run the model; says why, and what would work.
        DataError: the header lacks a key.
    """
    metadata = Metadata(path, header)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    architecture = metadata.architecture
    if architecture not in _ARCHITECTURES:
        raise _refusal(
            path,
            f"it has the architecture {architecture}; distributed-llama knows "
            f"{', '.join(_ARCHITECTURES)}",
        )
    experts = metadata.number("expert_count", 0)
    if bool(experts) != (architecture == "qwen3moe"):
        raise _refusal(path, f"it knows no mixture of experts of the architecture {architecture}")
    widths, kv_heads = metadata.head_widths, metadata.kv_heads
    stated = header.metadata.get
    _check_equal_layers(path, widths, kv_heads)
    _check_positions(path, architecture, header, widths[0])
    biases = [name for name in tensors if name.endswith(".bias")]
    if biases:
        raise _refusal(path, f"it has biases ({biases[0]}), which distributed-llama cannot add")
    epsilon = stated(f"{architecture}.attention.layer_norm_rms_epsilon")
    known = next((each for each in _EPSILONS if _is_close(epsilon, each)), None)
    if known is None:
        raise _refusal(path, f"the epsilon of its norms is {epsilon}, not 1e-5 or 1e-6")
    inner = metadata.number("expert_feed_forward_length" if experts else "feed_forward_length")
    matrices, output_type = _types(path, tensors)
    found = DistributedModel(
        name=path.name,
        architecture=architecture,
        matrices=matrices,
        output_type=output_type,
        width=metadata.number("embedding_length"),
        feed_forward=inner,
        layers=metadata.layers,
        heads=metadata.number("attention.head_count"),
        kv_heads=kv_heads[0],
        head_width=widths[0],
        experts=experts,
        active_experts=metadata.number("expert_used_count", 0),
        vocabulary=tensors[EMBEDDING].shape[-1],
        context_length=metadata.number("context_length"),
        epsilon=known,
        theta=int(stated(f"{architecture}.rope.freq_base", 10000.0)),  # type: ignore[arg-type] # checked
        scaling=_scaling(path, frequencies, stated(f"{architecture}.rope.freq_base", 10000.0)),
        is_tied=OUTPUT not in tensors,
    )
    _check_tensors(path, found, tensors)
    found.check_nodes(1)
    return found


def frequencies_tensor(header: Header) -> Tensor | None:
    """Return the tensor by whose values rotary frequencies are divided; none without."""
    return next((each for each in header.tensors if each.name == _FREQUENCIES), None)


def _refusal(path: Path, why: str) -> UsageError:
    return UsageError(
        f"--engine dllama: {path.name} cannot run on distributed-llama: {why}.",
        "Use --engine llama.cpp, or a Llama, Qwen3 or Qwen3-MoE model in Q4_0.",
    )


def _is_close(value: object, wanted: float) -> bool:
    return isinstance(value, float) and math.isclose(value, wanted, rel_tol=1e-5)


def _check_equal_layers(path: Path, widths: tuple[int, int], kv_heads: tuple[int, ...]) -> None:
    if widths[0] != widths[1]:
        raise _refusal(path, f"its keys and values differ in width ({widths[0]} and {widths[1]})")
    if len(set(kv_heads)) > 1:
        raise _refusal(path, "its layers differ in their number of key-value heads")


def _check_positions(path: Path, architecture: str, header: Header, head_width: int) -> None:
    stated = header.metadata.get
    theta = stated(f"{architecture}.rope.freq_base", 10000.0)
    if not isinstance(theta, int | float) or theta != int(theta) or not 0 < theta < 1 << 31:
        raise _refusal(path, f"the base of its rotary positions is {theta}, not a whole number")
    rotated = stated(f"{architecture}.rope.dimension_count", head_width)
    if rotated != head_width:
        raise _refusal(path, f"it rotates {rotated} of the {head_width} values of a head")
    kind = stated(f"{architecture}.rope.scaling.type", "none")
    if kind != "none":
        raise _refusal(path, f"its positions are scaled ({kind})")
    window = stated(f"{architecture}.attention.sliding_window", 0)
    if window:
        raise _refusal(path, f"its attention has a sliding window of {window} tokens")


def _scaling(path: Path, frequencies: Sequence[float], theta: object) -> int | None:
    """Return the factor of Llama 3's scaling, which a GGUF file holds as divisors alone."""
    if not frequencies:
        return None
    low, high, before = _LLAMA_3_SCALING
    factor, count = round(max(frequencies)), len(frequencies)
    if not isinstance(theta, int | float):
        raise _refusal(path, "its rotary positions have no base")
    for number, divisor in enumerate(frequencies):
        wavelength = 2 * math.pi * theta ** (number / count)
        share = min(1.0, max(0.0, (before / wavelength - low) / (high - low)))
        if not math.isclose(divisor, 1 / (share + (1 - share) / factor), rel_tol=1e-3):
            raise _refusal(path, "its positions are not scaled as Llama 3's are")
    return factor


def _types(path: Path, tensors: dict[str, Tensor]) -> tuple[Matrices, str]:
    """Return the type of all matrices but the output matrix, and that of it."""
    inner = {
        name: tensor.type_name
        for name, tensor in tensors.items()
        if name not in (EMBEDDING, OUTPUT)
        and len(tensor.shape) > 1
        and not name.endswith("ffn_gate_inp.weight")
    }
    kinds = sorted(set(inner.values()))
    if kinds not in (["Q4_0"], ["F32"]):
        other = next(name for name, kind in inner.items() if kind != "Q4_0")
        quantise = join(["armload", "model.quantize", path, "--type", "Q4_0"])
        is_float = inner[other] in ("F16", "BF16", "F32")
        raise UsageError(
            f"--engine dllama: {path.name} has {inner[other]} matrices ({other}); "
            "distributed-llama computes with Q4_0 or F32 alone.",
            "Add --type Q4_0, or use --engine llama.cpp."
            if is_float
            else "Use the Q4_0 file of this model, or --engine llama.cpp. To accept the loss of "
            f"quantising it again: {quantise} --allow-requantize",
        )
    if kinds == ["F32"] and any("_exps." in name for name in inner):
        raise _refusal(path, "it has no kernels for a mixture of experts in F32")
    matrices: Matrices = "Q4_0" if kinds == ["Q4_0"] else "F32"
    return matrices, tensors.get(OUTPUT, tensors[EMBEDDING]).type_name


def _check_tensors(path: Path, found: DistributedModel, tensors: dict[str, Tensor]) -> None:
    for each in found.tensors():
        tensor = tensors.get(each.name)
        whole = each.elements * (found.experts if each.expert is not None else 1)
        if tensor is None or tensor.elements != whole:
            raise _refusal(path, f"its tensor {each.name} is missing or has another size")
    known = {each.name for each in found.tensors()} | {_FREQUENCIES}
    further = next((name for name in tensors if name not in known), None)
    if further is not None:
        raise _refusal(path, f"it has a tensor that distributed-llama does not know ({further})")
