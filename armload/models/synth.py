"""Models made to order: any shape, random weights, a vocabulary that works.

Their metadata has the keys that llama.cpp's converter writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from armload.core.errors import UsageError
from armload.core.files import require_room, written_whole
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.models.blocks import TYPES, bytes_per_row, elements_per_block, random_rows
from armload.models.byte_pairs import byte_pairs_vocabulary, smallest_text
from armload.models.quant_mix import check_file_type, mixed_types
from armload.models.shape import BytePairs, SentencePieces, Shape, check_shape
from armload.models.tensors import HARMONICS, ROUTER, Constant, Matrix, constants, matrices
from armload.models.vocabulary import (
    BEGIN_ID,
    END_ID,
    UNKNOWN_ID,
    Vocabulary,
    smallest_vocabulary,
    vocabulary,
)

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFWriter
    from numpy.typing import NDArray


CHUNK_WEIGHTS = 1 << 22
ALIGNMENT_BYTES = 32
FLOAT_BYTES = 4

GENERATION = 1
"""Goes up when equal arguments come to give other weights or words."""

RANDOM_SHAPE = Shape(
    layers=12,
    width=768,
    feed_forward=2048,
    heads=12,
    kv_heads=4,
    vocabulary=4096,
    context_length=2048,
    tokenizer=SentencePieces(add_end=False),
)
RANDOM_QUANTISATION = "Q4_0"
RANDOM_SEED = 1


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """A tensor of the file: a matrix in some type, or a vector; ``number`` seeds the weights."""

    tensor: Matrix | Constant
    type_name: str = "F32"
    number: int = 0

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        if isinstance(self.tensor, Constant):
            return (len(self.tensor.values),)
        experts = (self.tensor.experts,) if self.tensor.experts else ()
        return (*experts, self.tensor.rows, bytes_per_row(self.type_name, self.tensor.columns))

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * (FLOAT_BYTES if isinstance(self.tensor, Constant) else 1)


def synthesise(
    shape: Shape, path: Path, *, quantisation: str, seed: int, progress: Progress
) -> None:
    """Write a GGUF file with random weights, all matrices of one type.

    Those of routers, and those in which something is planted, are in F32.

    The text that such a model writes consists of English words without sense. Activations
    keep their size from layer to layer (weights have a variance of one over the number of
    inputs), so logits stay finite. Equal arguments give equal bytes. The file is streamed,
    and it is whole or absent.

    Args:
        path: the file to write; one that exists is replaced.
        quantisation: type of all matrices, one of ``blocks.TYPES``.
    """
    if quantisation not in TYPES:
        raise UsageError(
            f"Models cannot be generated in {quantisation!r}.", f"Available: {', '.join(TYPES)}."
        )
    words = _words(shape)
    planned = matrices(shape, words.words)
    block = elements_per_block(quantisation)
    for matrix in planned:
        if matrix.columns % block:
            what = "feed_forward" if matrix.role.startswith("ffn_down") else "width"
            raise UsageError(
                f"Cannot generate a model: {what} must be a multiple of {block} for "
                f"{quantisation}.",
                "Change the shape.",
            )
    types = {each.name: "F32" if each.role == ROUTER else quantisation for each in planned}
    tensors = _stored(shape, planned, types)
    file_type = quantisation + ("_S" if quantisation in ("Q3_K", "Q4_K", "Q5_K") else "")
    _write_whole(shape, path, words, tensors, file_type, seed, progress)


def synthesise_like(
    shape: Shape, path: Path, *, file_type: str, seed: int, progress: Progress
) -> None:
    """Write a GGUF file with random weights as llama-quantize would write it.

    Its tensors have the names, sizes, types and order of a file that llama-quantize makes of a
    trained model of this shape. Else it is like a model of ``synthesise``.

    Args:
        path: the file to write; one that exists is replaced.
        file_type: of llama.cpp, one of ``MIXTURES``.
    """
    file_type, words, tensors = _planned_like(shape, file_type)
    _write_whole(shape, path, words, tensors, file_type, seed, progress)


def header_like(shape: Shape, path: Path, *, file_type: str) -> None:
    """Write the header alone of the file that ``synthesise_like`` makes."""
    file_type, words, tensors = _planned_like(shape, file_type)
    with written_whole(path) as beside:
        _write_header(shape, beside, words, tensors, file_type)


def _planned_like(shape: Shape, file_type: str) -> tuple[str, Vocabulary, list[_Stored]]:
    """Return the file type by its own name, the vocabulary, and the tensors in their order."""
    file_type = check_file_type(file_type)
    words = _words(shape)
    planned = matrices(shape, words.words)
    tensors = _stored(shape, planned, mixed_types(shape, planned, file_type))
    return file_type, words, sorted(tensors, key=_place)


def _stored(shape: Shape, planned: Sequence[Matrix], types: Mapping[str, str]) -> list[_Stored]:
    return [
        *(_Stored(tensor=each) for each in constants(shape)),
        *(
            _Stored(
                tensor=each, type_name="F32" if each.places else types[each.name], number=number
            )
            for number, each in enumerate(planned)
        ),
    ]


def _place(stored: _Stored) -> tuple[int, str]:
    layer = re.match(r"blk\.(\d+)\.", stored.name)
    return (int(layer[1]) if layer else -1, stored.name)


def _words(shape: Shape) -> Vocabulary:
    if isinstance(shape.tokenizer, BytePairs):
        check_shape(shape, smallest_text())
        return byte_pairs_vocabulary(shape.tokenizer, shape.vocabulary)
    check_shape(shape, smallest_vocabulary())
    return vocabulary(shape.vocabulary)


def _write_whole(
    shape: Shape,
    path: Path,
    words: Vocabulary,
    tensors: Sequence[_Stored],
    file_type: str,
    seed: int,
    progress: Progress,
) -> None:
    names = (*words.tokens, *(f"{left} {right}" for left, right in words.merges))
    needed = sum(len(name.encode()) + 16 for name in names)
    needed += sum(each.size_bytes + 2 * ALIGNMENT_BYTES + len(each.name) for each in tensors)
    require_room(
        *(path.parent, needed, f"{path}: the model takes {format_bytes(needed)}"),
        "Free disk space, or choose a smaller shape or quantisation.",
    )
    with written_whole(path) as beside:
        _write_header(shape, beside, words, tensors, file_type)
        total = sum(each.size_bytes for each in tensors)
        done = 0
        with (
            beside.open("ab") as file,
            progress.step("Generating a model with random weights", total=total, unit="B") as step,
        ):
            file.write(bytes(-file.tell() % ALIGNMENT_BYTES))
            for each in tensors:
                for part in _parts(each, seed):
                    file.write(part.data)
                    done += part.nbytes
                    step.update(done, note=each.name)
                file.write(bytes(-file.tell() % ALIGNMENT_BYTES))


def _write_header(
    shape: Shape, path: Path, words: Vocabulary, tensors: Sequence[_Stored], file_type: str
) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, shape.architecture)
    try:
        describe(writer, shape, words, file_type)
        for each in tensors:
            if isinstance(each.tensor, Constant):
                writer.add_tensor_info(each.name, each.shape, np.dtype(np.float32), each.size_bytes)
            else:
                writer.add_tensor_info(
                    each.name,
                    each.shape,
                    np.dtype(np.uint8),
                    each.size_bytes,
                    raw_dtype=GGMLQuantizationType[each.type_name],
                )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()


def _parts(stored: _Stored, seed: int) -> Iterator[NDArray[np.uint8]]:
    import numpy as np

    if isinstance(stored.tensor, Constant):
        yield np.array(stored.tensor.values, "<f4").view(np.uint8)
        return
    matrix = stored.tensor
    deviations = np.full(matrix.all_rows, matrix.deviation)
    for rows, gain in matrix.gains:
        deviations[rows.start : rows.stop] *= gain
    random = np.random.Generator(np.random.PCG64((seed, stored.number)))
    step = max(1, CHUNK_WEIGHTS // matrix.columns)
    for start in range(0, matrix.all_rows, step):
        part = deviations[start : start + step]
        weights = random_rows(stored.type_name, matrix.columns, part, random)
        if matrix.places:
            _plant(weights, matrix, start)
        yield weights


def _plant(stored: NDArray[np.uint8], matrix: Matrix, start: int) -> None:
    """Add the part that rows of neighbouring places have in common: waves around the ring."""
    import numpy as np

    rows = stored.view("<f4")
    places = np.array(matrix.places[start : start + len(rows)])
    angles = 2 * np.pi * places[:, np.newaxis] * np.arange(1, HARMONICS + 1)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    planted = waves * (matrix.place_size / HARMONICS**0.5)
    planted[~rows.any(axis=1)] = 0.0  # what is never said
    rows[:, : 2 * HARMONICS] += planted.astype("<f4")


def describe(
    writer: GGUFWriter, shape: Shape, words: Vocabulary, file_type: str, *, name: str = ""
) -> None:
    """Give the writer all metadata.

    Args:
        file_type: such as ``Q4_K_M``.
        name: of a model whose weights are not random.
    """
    from gguf import LlamaFileType

    of = f"{shape.description}, " if shape.description else ""
    kind = "ALL_F32" if file_type == "F32" else f"MOSTLY_{file_type}"
    writer.add_name(name or f"{of}random weights")
    writer.add_file_type(LlamaFileType[kind])
    if file_type != "F32":
        writer.add_quantization_version(2)
    is_llama = shape.architecture == "llama"
    if is_llama:
        writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
    if shape.expert_feed_forward is not None:
        writer.add_expert_feed_forward_length(shape.expert_feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    if shape.head_width is not None:
        writer.add_key_length(shape.head_width)
        writer.add_value_length(shape.head_width)
    if is_llama:
        writer.add_rope_dimension_count(shape.head)
    if shape.rope_base is not None:
        writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    if isinstance(shape.tokenizer, BytePairs):
        _describe_byte_pairs(writer, shape.tokenizer, words)
    else:
        _describe_sentence_pieces(writer, shape.tokenizer, words)


def _describe_sentence_pieces(
    writer: GGUFWriter, tokenizer: SentencePieces, words: Vocabulary
) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words.tokens)
    writer.add_token_scores(words.scores)
    writer.add_token_types(words.kinds)
    writer.add_bos_token_id(BEGIN_ID)
    writer.add_eos_token_id(END_ID)
    writer.add_unk_token_id(UNKNOWN_ID)
    writer.add_bool("tokenizer.ggml.add_bos_token", val=True)
    if tokenizer.add_end is not None:
        writer.add_bool("tokenizer.ggml.add_eos_token", val=tokenizer.add_end)


def _describe_byte_pairs(writer: GGUFWriter, tokenizer: BytePairs, words: Vocabulary) -> None:
    ids = {name: tokenizer.text_tokens + number for number, name in enumerate(tokenizer.special)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(tokenizer.pre)
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.kinds)
    writer.add_token_merges([f"{left} {right}" for left, right in words.merges])
    writer.add_bos_token_id(ids[tokenizer.begin])
    writer.add_eos_token_id(ids[tokenizer.end])
    if tokenizer.padding is not None:
        writer.add_pad_token_id(ids[tokenizer.padding])
    if tokenizer.add_begin is not None:
        writer.add_bool("tokenizer.ggml.add_bos_token", val=tokenizer.add_begin)
