"""Models in distributed-llama's own format, each made once of a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from armload.conversion.cached import DISTRIBUTED, Artifact, find_artifact, keep, part_in, place_of
from armload.conversion.making import making_lock
from armload.conversion.overlapped import OverlappedFile
from armload.core.errors import DataError
from armload.core.files import require_room, sha256_of
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.deploy.payload import Payload
from armload.engines.distributed import ConvertedFiles
from armload.models.distributed_llama import (
    REST_MARK,
    DistributedModel,
    Stored,
    distributed_model,
    frequencies_tensor,
)
from armload.models.header import Header, Tensor, block_of
from armload.models.model import Model, read_headers
from armload.models.token_pieces import (
    end_tokens,
    header_with_words,
    token_pieces,
    write_pieces,
    write_vocabulary,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK_ELEMENTS = 4 << 20
_GENERATION = "2"


def converted_files(model: Model, progress: Progress) -> ConvertedFiles:
    """Return a GGUF model in distributed-llama's format; make it unless that is done.

    The weights are copied block by block, in bounded memory; norms and the embedding become 32-bit
    floats. An output matrix of another type becomes two in Q4_0, whose sum has 8 bits.

    Raises:
        UsageError: distributed-llama cannot run the model.
        DiskError: there is no room for it.
    """
    facts, header = look_at(model)
    words = header_with_words(model.path)
    place = place_of(DISTRIBUTED, model.sha256, _GENERATION)
    made = find_artifact(place, progress)
    if made is None:
        with making_lock(place, progress):
            made = find_artifact(place, progress) or _make(
                *(model, facts, header, words, place, progress)
            )
    label = model.name.removesuffix(".gguf")
    pieces, vocabulary = place / f"{label}.pieces", place / f"{label}.vocabulary.gguf"
    return ConvertedFiles(
        facts=facts,
        weights=Payload.of_file(place / made.file, sha256=made.sha256, executable=False),
        pieces=_payload(pieces),
        vocabulary=_payload(vocabulary),
        ends=end_tokens(words),
    )


def look_at(model: Model) -> tuple[DistributedModel, Header]:
    """Return what distributed-llama makes of a model, before anything is written.

    Raises:
        UsageError: it cannot run it.
    """
    header, _ = read_headers(model.path)
    scaling = frequencies_tensor(header)
    frequencies: Sequence[float] = ()
    if scaling is not None:
        with _Weights(model) as weights:
            frequencies = _floats(weights.read(scaling, 0, scaling.elements), scaling).tolist()
    return distributed_model(model.path, header, frequencies), header


def _payload(path: Path) -> Payload:
    return Payload.of_file(path, sha256=sha256_of(path), executable=False)


def _make(
    model: Model,
    facts: DistributedModel,
    header: Header,
    words: Header,
    place: Path,
    progress: Progress,
) -> Artifact:
    label = model.name.removesuffix(".gguf")
    need = (
        f"{label}.m: distributed-llama's file of the model takes {format_bytes(facts.file_bytes)}"
    )
    remedy = (
        "Free disk space (armload clean shows what the cache holds), or set ARMLOAD_CACHE to "
        "another folder."
    )
    require_room(place, facts.file_bytes, need, remedy)
    write_pieces(token_pieces(model.path, words, facts.vocabulary), place / f"{label}.pieces")
    write_vocabulary(model.path, words, place / f"{label}.vocabulary.gguf")
    part = part_in(place)
    try:
        sha256 = _write(model, facts, header, part, progress)
        size_bytes = part.stat().st_size
        if size_bytes != facts.file_bytes:
            raise AssertionError(f"{size_bytes} bytes in place of {facts.file_bytes}")
        made = Artifact(
            file=f"{label}.m",
            sha256=sha256,
            size_bytes=size_bytes,
            base=model.name,
            type="distributed-llama",
            source="armload",
            board="",
            run="",
        )
        keep(place, made)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return made


def _write(
    model: Model, facts: DistributedModel, header: Header, part: Path, progress: Progress
) -> str:
    tensors = {tensor.name: tensor for tensor in header.tensors}
    with (
        _Weights(model) as weights,
        OverlappedFile(part) as file,
        progress.step(f"Converting {model.name}", total=facts.file_bytes, unit="B") as step,
    ):
        file.write(facts.header())
        for each in facts.tensors():
            for chunk in _converted(weights, tensors[each.name], each):
                file.write(chunk)
                step.update(file.size_bytes, note=each.name)
        if facts.has_rest:
            file.write(REST_MARK)
        return file.sha256()


def _converted(weights: _Weights, tensor: Tensor, wanted: Stored) -> Iterator[bytes | memoryview]:
    """Yield a tensor, or an expert's part of it, in the wanted type."""
    start = (wanted.expert or 0) * wanted.elements
    for first in range(0, wanted.elements, _CHUNK_ELEMENTS):
        count = min(_CHUNK_ELEMENTS, wanted.elements - first)
        content = weights.read(tensor, start + first, count)
        if tensor.type_name == wanted.type_name:
            yield content
        elif wanted.is_rest:
            values = _floats(content, tensor)
            yield _quantised(values - _of_blocks(_quantised(values), "Q4_0")).data.cast("B")
        elif wanted.type_name == "F32":
            yield _floats(content, tensor).data.cast("B")
        else:
            yield _quantised(_floats(content, tensor)).data.cast("B")


def _floats(content: bytes, tensor: Tensor) -> NDArray[np.float32]:
    import numpy as np

    kind = tensor.type_name
    if kind in ("F32", "F16"):
        return np.frombuffer(content, dtype="<f4" if kind == "F32" else "<f2").astype(np.float32)
    return _of_blocks(np.frombuffer(content, dtype=np.uint8), kind)


def _of_blocks(blocks: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    if kind == "Q4_0":
        return _of_q4_0(blocks)
    # It computes some rows at a time: as one row, a chunk takes a twentieth of the time.
    row = blocks.reshape(1, -1)
    values: NDArray[np.float32] = dequantize(row, GGMLQuantizationType[kind]).reshape(-1)
    return values


def _of_q4_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return what gguf does, to the bit, in a third of its time: embeddings are large."""
    import numpy as np

    rows = blocks.reshape(-1, 18)
    scales = rows[:, :2].copy().view("<f2").astype(np.float32)
    values = np.empty((len(rows), 32), dtype="<f4")
    for half, quants in enumerate((rows[:, 2:] & 15, rows[:, 2:] >> 4)):
        signed = quants.view(np.int8) - np.int8(8)
        np.multiply(signed, scales, out=values[:, 16 * half : 16 * half + 16])
    return values.reshape(-1)


def _quantised(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    return quantize(values, GGMLQuantizationType.Q4_0)


class _Weights:
    """The bytes of a model's tensors, which may lie in several files."""

    def __init__(self, model: Model) -> None:
        self._paths = [part.path for part in model.parts] or [model.path]
        self._files: list[tuple[BinaryIO, int]] = []

    def __enter__(self) -> _Weights:
        start = 0
        for path in self._paths:
            self._files.append((path.open("rb"), start))
            start += path.stat().st_size
        return self

    def __exit__(self, *_: object) -> None:
        for file, _start in self._files:
            file.close()

    def read(self, tensor: Tensor, first: int, count: int) -> bytes:
        """Return some elements, which are whole blocks."""
        block, block_bytes = block_of(tensor.type_name)
        at = tensor.offset_bytes + first // block * block_bytes
        file, start = max((each for each in self._files if each[1] <= at), key=lambda each: each[1])
        file.seek(at - start)
        wanted = count // block * block_bytes
        content = file.read(wanted)
        if len(content) < wanted:
            raise DataError(
                f"{file.name}: the file ended while it was read.", "Download or copy it again."
            )
        return content
