"""Models made to order: any shape, random weights, a vocabulary that works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from armload.core.errors import UsageError
from armload.core.files import written_whole
from armload.core.progress import Progress
from armload.core.values import Value
from armload.models.blocks import TYPES, bytes_per_row, elements_per_block, random_rows
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
LOGIT_DEVIATION = 3.0
"""Spread of the logits: wide enough for one word to stand out."""

SHARPNESS = 2.0
"""Factor on the query and key weights: attention that picks places keeps the text varied."""

GENERATION = 1
"""Goes up when equal arguments come to give other weights or words."""

Count = Annotated[int, Field(ge=1)]


class Shape(Value):
    """The sizes of a Llama-type model.

    Attributes:
        layers: transformer blocks.
        width: of the residual stream.
        feed_forward: inner width of the gated feed-forward layers.
        heads, kv_heads: for queries, and for keys and values; ``kv_heads`` divides ``heads``.
        vocabulary: number of tokens.
        context_length: the longest context, in tokens.
    """

    layers: Count
    width: Count
    feed_forward: Count
    heads: Count
    kv_heads: Count
    vocabulary: Count
    context_length: Count


DEMO_SHAPE = Shape(
    layers=12,
    width=768,
    feed_forward=2048,
    heads=12,
    kv_heads=4,
    vocabulary=4096,
    context_length=2048,
)
DEMO_QUANTISATION = "Q4_0"
DEMO_SEED = 1


@dataclass(frozen=True, kw_only=True)
class _Matrix:
    name: str
    rows: int
    columns: int
    deviation: float
    only_rows: range | None = None


def synthesise(
    shape: Shape, path: Path, *, quantisation: str, seed: int, progress: Progress
) -> None:
    """Write a GGUF file with random weights that llama.cpp loads and runs.

    The text that such a model writes consists of English words without sense. Activations
    keep their size from layer to layer (weights have a variance of one over the number of
    inputs), so logits stay finite. Equal arguments give equal bytes. The file is streamed,
    and it is whole or absent.

    Args:
        shape: sizes of the model.
        path: the file to write; one that exists is replaced.
        quantisation: type of all matrices, one of ``blocks.TYPES``.
        seed: of the weights.
        progress: where the bytes written are shown.

    Raises:
        UsageError: no such quantisation, or a shape that cannot be.
    """
    _check(shape, quantisation)
    with written_whole(path) as beside:
        _write(shape, beside, quantisation, seed, progress)


def _check(shape: Shape, quantisation: str) -> None:
    if quantisation not in TYPES:
        raise UsageError(
            f"No model can be made in {quantisation!r}.", f"There are: {', '.join(TYPES)}."
        )
    block = elements_per_block(quantisation)
    head = shape.width // shape.heads
    for wrong, what in (
        (shape.width % shape.heads, "width must be a multiple of heads"),
        (shape.heads % shape.kv_heads, "heads must be a multiple of kv_heads"),
        (head % 2, "width / heads must be even"),
        (shape.width % block, f"width must be a multiple of {block} for {quantisation}"),
        (shape.feed_forward % block, f"feed_forward must be a multiple of {block}"),
        (
            shape.vocabulary < smallest_vocabulary(),
            f"vocabulary must be {smallest_vocabulary()} or more",
        ),
    ):
        if wrong:
            raise UsageError(f"This model cannot be made: {what}.", "Change the shape.")


def _write(shape: Shape, path: Path, quantisation: str, seed: int, progress: Progress) -> None:
    words = vocabulary(shape.vocabulary)
    matrices = _matrices(shape, words)
    _write_header(shape, path, quantisation, words, matrices)
    total = sum(matrix.rows * bytes_per_row(quantisation, matrix.columns) for matrix in matrices)
    done = 0
    with (
        path.open("ab") as file,
        progress.step("Making a model of random weights", total=total, unit="B") as step,
    ):
        for number, matrix in enumerate(matrices):
            for rows in _stored_rows(matrix, quantisation, (seed, number)):
                file.write(rows.data)
                done += rows.nbytes
                step.update(done, note=matrix.name)
            file.write(bytes(-file.tell() % ALIGNMENT_BYTES))


def _write_header(
    shape: Shape,
    path: Path,
    quantisation: str,
    words: Vocabulary,
    matrices: Sequence[_Matrix],
) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, "llama")
    try:
        _describe(writer, shape, words, quantisation)
        norms = _norms(shape)
        for name in norms:
            writer.add_tensor_info(name, (shape.width,), np.dtype(np.float32), shape.width * 4)
        for matrix in matrices:
            row_bytes = bytes_per_row(quantisation, matrix.columns)
            kind = GGMLQuantizationType[quantisation]
            stored = (matrix.rows, row_bytes)
            bytes_type = np.dtype(np.uint8)
            writer.add_tensor_info(
                f"{matrix.name}.weight", stored, bytes_type, prod(stored), raw_dtype=kind
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for _ in norms:
            writer.write_tensor_data(np.ones(shape.width, np.float32))
    finally:
        writer.close()


def _stored_rows(
    matrix: _Matrix, quantisation: str, seed: tuple[int, int]
) -> Iterator[NDArray[np.uint8]]:
    import numpy as np

    random = np.random.Generator(np.random.PCG64(seed))
    step = max(1, CHUNK_WEIGHTS // matrix.columns)
    for start in range(0, matrix.rows, step):
        count = min(step, matrix.rows - start)
        rows = random_rows(quantisation, count, matrix.columns, matrix.deviation, random)
        if matrix.only_rows is not None:
            # A row of zero bytes is a row of zero weights in every format.
            numbers = np.arange(start, start + count)
            silent = (numbers < matrix.only_rows.start) | (numbers >= matrix.only_rows.stop)
            rows = np.where(silent[:, np.newaxis], np.uint8(0), rows)
        yield rows


def _matrices(shape: Shape, words: Vocabulary) -> list[_Matrix]:
    """Return the matrices in the order in which a decode step reads them."""
    width, inner = shape.width, shape.feed_forward
    kv_width = width // shape.heads * shape.kv_heads
    matrices = [_Matrix(name="token_embd", rows=shape.vocabulary, columns=width, deviation=1.0)]
    for layer in range(shape.layers):
        for name, rows, columns, factor in (
            ("attn_q", width, width, SHARPNESS),
            ("attn_k", kv_width, width, SHARPNESS),
            ("attn_v", kv_width, width, 1.0),
            ("attn_output", width, width, 1.0),
            ("ffn_gate", inner, width, 1.0),
            ("ffn_up", inner, width, 1.0),
            ("ffn_down", width, inner, 1.0),
        ):
            matrices.append(
                _Matrix(
                    name=f"blk.{layer}.{name}",
                    rows=rows,
                    columns=columns,
                    deviation=factor * columns**-0.5,
                )
            )
    output = _Matrix(
        name="output",
        rows=shape.vocabulary,
        columns=width,
        deviation=LOGIT_DEVIATION * width**-0.5,
        only_rows=words.words,
    )
    return [*matrices, output]


def _norms(shape: Shape) -> list[str]:
    layers = [
        f"blk.{layer}.{name}.weight"
        for layer in range(shape.layers)
        for name in ("attn_norm", "ffn_norm")
    ]
    return ["output_norm.weight", *layers]


def _describe(writer: GGUFWriter, shape: Shape, words: Vocabulary, quantisation: str) -> None:
    from gguf import LlamaFileType

    suffix = "_S" if quantisation in ("Q4_K", "Q5_K") else ""
    file_type = "ALL_F32" if quantisation == "F32" else f"MOSTLY_{quantisation}{suffix}"
    writer.add_name("random weights")
    writer.add_file_type(LlamaFileType[file_type])
    writer.add_quantization_version(2)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words.tokens)
    writer.add_token_scores(words.scores)
    writer.add_token_types(words.kinds)
    writer.add_bos_token_id(BEGIN_ID)
    writer.add_eos_token_id(END_ID)
    writer.add_unk_token_id(UNKNOWN_ID)
    writer.add_bool("tokenizer.ggml.add_bos_token", val=True)
    writer.add_bool("tokenizer.ggml.add_eos_token", val=False)
