"""Whether there is space and memory for what is to be made, asked before anything is copied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.core.errors import BoardError, DiskError
from armload.core.files import free_space
from armload.core.values import format_bytes
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.deploy.space import SPARE_BYTES, ask_space
from armload.deploy.upload import what_is_stored
from armload.models.file_types import TENSOR_TYPES
from armload.models.header import Header, block_of
from armload.models.metadata import EMBEDDING, OUTPUT
from armload.models.model import Model
from armload.models.quant_mix import predict_quantised


def largest_size_bytes(model: Model, header: Header, file_type: str) -> int:
    """Return how large a model becomes: exactly where its types can be predicted, else at most."""
    if (later := predict_quantised(model, header, file_type)) is not None:
        return later[0].size_bytes
    usual = _bytes_per_element(TENSOR_TYPES[file_type])
    finest = max(usual, _bytes_per_element("Q8_0"))
    return header_bytes(header) + round(
        sum(
            tensor.elements * (finest if tensor.name in (EMBEDDING, OUTPUT) else usual)
            if len(tensor.shape) > 1
            else tensor.size_bytes
            for tensor in header.tensors
        )
    )


def header_bytes(header: Header) -> int:
    """Return the length of the metadata."""
    return min((tensor.offset_bytes for tensor in header.tensors), default=0)


def need_disk(folders: Sequence[Path], name: str, wanted_bytes: int) -> None:
    """Make sure that a file fits on this machine's disk, wherever it passes through."""
    for folder in folders:
        there, free_bytes = free_space(folder)
        if wanted_bytes + SPARE_BYTES > free_bytes:
            raise DiskError(
                f"Not enough space for {name} on this machine: {format_bytes(free_bytes)} free in "
                f"{there}, {format_bytes(wanted_bytes)} needed.",
                "Free disk space (armload clean shows what the cache holds), or set ARMLOAD_CACHE "
                "to another folder.",
            )


def need_board_space(
    host: Host, layout: Layout, payload: Sequence[Payload], name: str, result_bytes: int
) -> None:
    """Make sure that what is copied to a board fits there together with what is made of it."""
    copied_bytes = 0
    for upload in (item for each in payload for item in each.items(layout)):
        stored = what_is_stored(host, upload)
        if stored.state in {"part", "absent"}:
            copied_bytes += upload.size_bytes - min(stored.part_bytes, upload.size_bytes)
    space = ask_space(host, layout, [layout.runs])
    wanted_bytes = copied_bytes + result_bytes + SPARE_BYTES
    if space.free_bytes is not None and wanted_bytes > space.free_bytes:
        raise BoardError(
            f"{host.name}: not enough space for {name}: {format_bytes(space.free_bytes)} free in "
            f"{layout.workdir}; {format_bytes(copied_bytes)} to send and "
            f"{format_bytes(result_bytes)} for the result.",
            space.advice,
        )


def need_memory(found: Probe, board: str, name: str, wanted_bytes: int) -> None:
    """Make sure that a board has the memory that a program cannot do without."""
    available_bytes = found.conditions.memory_available_bytes
    if wanted_bytes > available_bytes:
        raise BoardError(
            f"{board}: not enough memory for {name}: it needs {format_bytes(wanted_bytes)}, but "
            f"only {format_bytes(available_bytes)} are available.",
            "Stop other programs, or use another board: --on BOARD.",
        )


def _bytes_per_element(type_name: str) -> float:
    elements, size_bytes = block_of(type_name)
    return size_bytes / elements
