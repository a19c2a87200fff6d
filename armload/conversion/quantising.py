"""Models quantised by llama.cpp's own llama-quantize, each once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from armload.boards.board import THIS_MACHINE, LocalReach, load_board
from armload.boards.probe import Probe
from armload.build.source import choose
from armload.conversion.cached import QUANTISED, Artifact, find_artifact, keep, part_in, place_of
from armload.conversion.calibrating import Calibration, importance_of
from armload.conversion.making import ModelSource, making_lock, run_tool
from armload.conversion.room import (
    header_bytes,
    largest_size_bytes,
    need_board_space,
    need_disk,
    need_memory,
)
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.shell import join
from armload.core.workspace import runs_folder
from armload.engines import importance
from armload.engines.quantise import (
    LEAST_BUFFER_BYTES,
    PROGRAM,
    Fallback,
    Quantising,
    QuantisingPlan,
)
from armload.models.file_types import check_importance, quantised_types
from armload.models.find import model_called
from armload.models.gguf import read_model, read_outline
from armload.models.header import Header
from armload.models.model import Model
from armload.models.quant_mix import quantised_name
from armload.runs.request import Request
from armload.runs.session import session

_PROGRAM_BYTES = 64 << 20
"""Of llama-quantize itself, with some to spare."""


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """A quantised model in the cache.

    Attributes:
        path: its file.
        made: what it was made of.
        was_there: it had been made before.
    """

    path: Path
    made: Artifact
    was_there: bool


def on_this_machine(request: Request) -> Request:
    """Return where models are quantised for a run: here, from the same source."""
    return Request(board=THIS_MACHINE, source=request.source, ref=request.ref)


def quantised_for(
    request: Request, names: Sequence[str], file_types: Sequence[str], progress: Progress
) -> tuple[str, ...]:
    """Return the files that models become in each type, for a run that ``request`` describes.

    Args:
        names: as for ``model_called``.
        file_types: in their usual spelling.
    """
    load_board(request.board)  # a wrong name is reported before minutes pass
    here = on_this_machine(request)
    return tuple(
        str(each.path)
        for name in names
        for each in quantise(here, model_called(name, progress), file_types, progress)
    )


def quantise(
    request: Request,
    base: Model,
    file_types: Sequence[str],
    progress: Progress,
    *,
    calibration: Calibration | None = None,
    allow_requantize: bool = False,
) -> tuple[Quantised, ...]:
    """Return a model in each type; make what is missing on a board.

    Args:
        request: where, and from which source.
        file_types: in their usual spelling.
        calibration: computes the importance of the weights from it first.
        allow_requantize: the model may be quantised already.
    """
    board = load_board(request.board)
    source = choose(request.source, ref=request.ref, progress=progress)
    text_sha256 = calibration.sha256 if calibration else ""
    places = {
        each: place_of(QUANTISED, base.sha256, each, text_sha256, source.identity)
        for each in file_types
    }
    found = {each: find_artifact(place, progress) for each, place in places.items()}
    missing = [each for each, made in found.items() if made is None]
    if missing:
        check_importance(missing, has_importance=calibration is not None)
        _, header = read_outline(base.path)
        _check_base(base, header, missing, allow_requantize=allow_requantize)
        if isinstance(board.reach, LocalReach) and not sys.platform.startswith("linux"):
            raise UsageError(
                "Models cannot be quantised on this machine: armload builds llama-quantize "
                "for Linux only.",
                "Quantise on a board: armload model.quantize BASE.gguf --type TYPE --on BOARD",
            )
        programs = [*([importance.PROGRAM] if calibration else []), PROGRAM]
        with session(request, programs, progress) as where:
            of = ModelSource(
                where=where, base=base, tensors=len(header.tensors), label=source.label
            )
            matrix = (
                importance_of(of, source.identity, calibration, progress) if calibration else None
            )
            work = _Work(of, header, matrix, calibration, progress)
            for each in missing:
                found[each] = work.made(each, places[each])
    return tuple(
        Quantised(path=places[each] / made.file, made=made, was_there=each not in missing)
        for each, made in found.items()
        if made is not None
    )


class _Work:
    """Quantises one model on one board."""

    def __init__(
        self,
        source: ModelSource,
        header: Header,
        matrix: tuple[Path, Artifact] | None,
        calibration: Calibration | None,
        progress: Progress,
    ) -> None:
        self._source = source
        self._header = header
        self._matrix = matrix
        self._calibration = calibration
        self._progress = progress

    def made(self, file_type: str, place: Path) -> Artifact:
        with making_lock(place, self._progress):
            # Another armload may have made it while this one waited.
            return find_artifact(place, self._progress) or self._make(file_type, place)

    def _make(self, file_type: str, place: Path) -> Artifact:
        source, progress = self._source, self._progress
        base, board = source.base, source.board
        name = quantised_name(base.path, file_type, has_importance=self._matrix is not None)
        engine = Quantising(
            QuantisingPlan(
                type=file_type,
                importance_sha256=self._matrix[1].sha256 if self._matrix else "",
                allow_requantize=bool(quantised_types(self._header)),
            ),
            source.where.binaries[PROGRAM],
            source.base,
            tensors=source.tensors,
            importance=self._matrix[0] if self._matrix else None,
            in_place=source.in_place(place),
        )
        result_bytes = largest_size_bytes(base, self._header, file_type)
        folders = [place] if source.is_here else [runs_folder(), place]
        need_disk(folders, name, result_bytes)

        def check_board(found: Probe, *_: object) -> None:
            working_bytes = LEAST_BUFFER_BYTES + _PROGRAM_BYTES + header_bytes(self._header)
            need_memory(found, board, PROGRAM, working_bytes)
            if not source.is_here:
                host = source.where.connection.host
                need_board_space(host, source.layout, engine.payload, name, result_bytes)

        progress.say(f"Quantising {base.name} to {file_type} on {board}.")
        run = run_tool(source, engine, place, progress, check=check_board)
        later = read_model(part_in(place), progress)  # whole, whatever the program said
        fallbacks = (run.result or {}).get("fallbacks")
        made = Artifact(
            file=name,
            sha256=later.sha256,
            size_bytes=later.size_bytes,
            base=base.name,
            type=file_type,
            calibration=self._calibration.path.name if self._calibration else "",
            source=source.label,
            board=board,
            run=run.id,
            fallbacks=tuple(
                Fallback.model_validate(each)
                for each in (fallbacks if isinstance(fallbacks, list) else [])
            ),
        )
        keep(place, made)
        return made


def _check_base(
    base: Model, header: Header, missing: Sequence[str], *, allow_requantize: bool
) -> None:
    has = quantised_types(header)
    if has and not allow_requantize:
        raise UsageError(
            f"{base.name} is quantised already ({', '.join(has)}): quantising it again can lose "
            "much more quality than quantising the 16- or 32-bit model.",
            "Give the F16, BF16 or F32 file. To accept the loss: "
            + join(["armload", "model.quantize", base.path, "--type", ",".join(missing)])
            + " --allow-requantize",
        )
