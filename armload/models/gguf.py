"""The metadata of a GGUF model that decides how fast it can run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from armload.core.files import require_file, unreadable
from armload.core.progress import Progress, Silent
from armload.models.context_memory import context_memory
from armload.models.header import Header, check_whole
from armload.models.metadata import Metadata
from armload.models.model import Model, ModelPart, cached_sha256, read_headers
from armload.models.model_summary import ModelSummary, model_summary_of
from armload.models.projector_choice import projectors_beside


def read_model(path: Path, progress: Progress | None = None) -> Model:
    """Read a GGUF file's metadata; check first that the file is whole, then take its checksum."""
    require_file(path, "model", "Give the path of a GGUF file.")
    try:
        header, parts = read_headers(path)
        check_whole(path, header.file_bytes, header.whole_bytes)
        unnamed = outline_of(path, header)
        return unnamed.model_copy(update=_checksums(path, parts, progress or Silent()))
    except OSError as error:
        raise unreadable(path, error) from error


def read_model_summary(path: Path, progress: Progress | None = None) -> ModelSummary:
    """Read what a model consists of; of a file that was cut short, what its header says."""
    require_file(path, "model", "Give the path of a GGUF file.")
    try:
        header, parts = read_headers(path)
        summary = model_summary_of(outline_of(path, header), Metadata(path, header), header)
        beside = tuple(projectors_beside(path, summary.input_width))
        summary = summary.model_copy(update={"projectors": beside})
        if summary.missing_bytes:
            return summary
        return summary.model_copy(update=_checksums(path, parts, progress or Silent()))
    except OSError as error:
        raise unreadable(path, error) from error


def read_outline(path: Path) -> tuple[Model, Header]:
    """Read what a file's header says of the whole model, also where its weights are missing.

    Raises:
        DataError: it is no GGUF file that llama.cpp could load on a board.
    """
    require_file(path, "model", "Give the path of a GGUF file.")
    try:
        header, _ = read_headers(path, need_weights=False)
    except OSError as error:
        raise unreadable(path, error) from error
    whole_bytes = max(header.file_bytes, header.whole_bytes)
    return outline_of(path, header).model_copy(update={"size_bytes": whole_bytes}), header


def _checksums(path: Path, parts: Sequence[Path], progress: Progress) -> dict[str, object]:
    if not parts:
        return {"sha256": cached_sha256(path, progress)}
    read = tuple(ModelPart(path=part, sha256=cached_sha256(part, progress)) for part in parts)
    sums = "".join(f"{part.sha256}\n" for part in read)
    return {"sha256": hashlib.sha256(sums.encode()).hexdigest(), "parts": read}


def outline_of(path: Path, header: Header) -> Model:
    """Return a model by its header alone, without its checksum."""
    metadata = Metadata(path, header)
    return Model(
        path=path,
        size_bytes=header.file_bytes,
        architecture=metadata.architecture,
        quantisation=metadata.quantisation,
        parameters=metadata.parameters,
        active_parameters=metadata.active_parameters,
        layers=metadata.layers,
        context_length=metadata.number("context_length"),
        vocabulary=metadata.vocabulary,
        bytes_per_token=metadata.bytes_per_token,
        matrix_bytes=metadata.matrix_bytes,
        context_memory=context_memory(metadata),
        activation_bytes_per_token=metadata.activation_bytes_per_token,
        attention_heads=metadata.attention_heads,
        experts=metadata.number("expert_count", 0),
        row_table_bytes=metadata.row_table_bytes,
        expert_bytes=metadata.expert_bytes,
        expert_bytes_per_token=metadata.expert_bytes_per_token,
        prediction_layers=metadata.prediction_layers,
        purpose=metadata.purpose,
        pooling=metadata.pooling,
        prompt=metadata.prompt,
        sha256="",
    )
