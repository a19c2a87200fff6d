"""The importance of a model's weights, computed from a text once."""

from __future__ import annotations

from pathlib import Path

from armload.boards.probe import Probe
from armload.conversion.cached import IMPORTANCE, Artifact, find_artifact, keep, part_in, place_of
from armload.conversion.making import ModelSource, making_lock, run_tool
from armload.conversion.room import need_board_space, need_disk, need_memory
from armload.core.errors import UsageError
from armload.core.files import require_file, sha256_of
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes
from armload.engines.importance import CHUNK_TOKENS, PROGRAM, RESULT, Importance, ImportancePlan
from armload.models.model import Model

_LEAST_CHUNKS = 2
_LARGEST_BYTES = 256 << 20
"""More than a large model's: a number for each column of each matrix."""


class Calibration(Value):
    """A text from which the importance of weights is computed.

    Attributes:
        path: the file.
        sha256: of the file.
    """

    path: Path
    sha256: str


def read_calibration(path: Path, model: Model) -> Calibration:
    require_file(path, "calibration text", "Give a text file: --calibration FILE.")
    least = _LEAST_CHUNKS * _chunk_tokens(model)
    size_bytes = path.stat().st_size
    if size_bytes < least:
        raise UsageError(
            f"--calibration {path}: {format_bytes(size_bytes)} of text is too short: "
            f"llama-imatrix needs {least} tokens or more.",
            "Give a longer text; some hundred kilobytes are usual.",
        )
    return Calibration(path=path.resolve(), sha256=sha256_of(path))


def importance_of(
    source: ModelSource, identity: str, text: Calibration, progress: Progress
) -> tuple[Path, Artifact]:
    """Return the file with the importance of a model's weights; compute it when it is missing.

    Args:
        identity: of llama.cpp's source.
    """
    base = source.base
    place = place_of(IMPORTANCE, base.sha256, text.sha256, identity)
    with making_lock(place, progress):
        made = find_artifact(place, progress)
        if made is None:
            made = _made(source, text, place, progress)
    return place / made.file, made


def _made(source: ModelSource, text: Calibration, place: Path, progress: Progress) -> Artifact:
    base, board = source.base, source.board
    plan = ImportancePlan(text_sha256=text.sha256, chunk_tokens=_chunk_tokens(base))
    binary = source.where.binaries[PROGRAM]
    engine = Importance(plan, binary, base, text.path, in_place=source.in_place(place))
    need_disk([place], RESULT, _LARGEST_BYTES)

    def check_board(found: Probe, *_: object) -> None:
        need = engine.memory
        need_memory(found, board, PROGRAM, need.own_bytes)
        if need.wanted_bytes > found.conditions.memory_available_bytes:
            progress.say(
                f"{base.name} ({format_bytes(need.weights_bytes)}) exceeds the available memory of "
                f"{board}: each chunk of {plan.chunk_tokens} tokens reads it from storage."
            )
        host = source.where.connection.host
        need_board_space(host, source.layout, engine.payload, base.name, _LARGEST_BYTES)

    run = run_tool(source, engine, place, progress, check=check_board)
    chunks = (run.result or {}).get("chunks")
    made = Artifact(
        file=RESULT,
        sha256=sha256_of(part_in(place)),
        size_bytes=part_in(place).stat().st_size,
        base=base.name,
        calibration=text.path.name,
        source=source.label,
        board=board,
        run=run.id,
        chunks=chunks if isinstance(chunks, int) else None,
    )
    keep(place, made)
    return made


def _chunk_tokens(model: Model) -> int:
    return min(CHUNK_TOKENS, model.context_length)
