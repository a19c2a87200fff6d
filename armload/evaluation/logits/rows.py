"""Logits as they lie on this machine: in a run's folder, or in ``.npy`` files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armload.core.errors import DataError, RunError, UsageError
from armload.core.values import counted
from armload.core.workspace import RUN_FILE
from armload.engines.answers import FailedAnswer, LogitsAnswer, read_answers
from armload.engines.scorer import ANSWERS, LOGITS
from armload.evaluation.scorer_run import folders_of
from armload.runs import store

if TYPE_CHECKING:
    import numpy.typing as npt

FLOAT_BYTES = 4

TOO_LONG = "If the context is too short for a prompt, use --context with more tokens."


@dataclass(frozen=True, kw_only=True)
class Logits:
    """The logits of some prompts.

    Attributes:
        name: where they are from.
        rows: of each prompt, by its number from 1: positions x vocabulary. They stay in their
            files until they are used.
        tokens: of each prompt; nothing where that is not known.
        failed: why other prompts have none.
    """

    name: str
    rows: Mapping[str, npt.NDArray[Any]]
    tokens: Mapping[str, tuple[int, ...]]
    failed: Mapping[str, str]


def logits_of_run(folder: Path) -> Logits:
    """Return the logits that a run of the scorer, and those that it continues, have left."""
    found: dict[str, LogitsAnswer] = {}
    failed: dict[str, str] = {}
    rows: dict[str, npt.NDArray[Any]] = {}
    for each in folders_of(folder):
        for answer in read_answers(each / ANSWERS):
            if answer.id in found or answer.id in failed:
                continue
            if isinstance(answer, LogitsAnswer):
                found[answer.id] = answer
                rows |= _rows(answer, each / LOGITS)
            elif isinstance(answer, FailedAnswer) and answer.kind == "logits":
                failed[answer.id] = answer.error
    if not found and failed:
        number, why = next(iter(failed.items()))
        raise RunError(
            f"{folder.name}: none of {counted(len(failed), 'prompt')} has logits. Prompt {number}: "
            f"{why}.",
            TOO_LONG,
        )
    if not found:
        raise UsageError(
            f"{folder.name} has no logits.", "Name a run of: armload eval --task logits"
        )
    return Logits(
        name=folder.name,
        rows=rows,
        tokens={name: answer.tokens for name, answer in found.items()},
        failed=failed,
    )


def _rows(answer: LogitsAnswer, path: Path) -> dict[str, npt.NDArray[Any]]:
    import numpy as np

    if answer.offset_bytes is None or not answer.rows or not answer.columns:
        return {}
    size_bytes = path.stat().st_size if path.is_file() else 0
    if answer.offset_bytes + answer.rows * answer.columns * FLOAT_BYTES > size_bytes:
        raise DataError(
            f"{path}: shorter than its run states.", "Compute the logits again with --new."
        )
    shape = (answer.rows, answer.columns)
    return {
        answer.id: np.memmap(path, dtype="<f4", mode="r", offset=answer.offset_bytes, shape=shape)
    }


def logits_of_files(folder: Path) -> Logits:
    """Return the logits in a folder of ``.npy`` files, which are named 1.npy, 2.npy, …."""
    import numpy as np

    paths = {path.stem.lstrip("0") or "0": path for path in sorted(folder.glob("*.npy"))}
    if not paths:
        raise UsageError(
            f"{folder} holds no .npy files.",
            "Save the logits of each prompt (positions x vocabulary) as 1.npy, 2.npy, ….",
        )
    rows = {}
    for name, path in paths.items():
        try:
            matrix = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError) as error:
            raise DataError(
                f"{path}: not a NumPy file: {error}.", "Save it with numpy.save."
            ) from error
        if matrix.ndim != 2 or matrix.dtype.kind != "f":
            raise DataError(
                f"{path}: holds {matrix.ndim} dimensions of {matrix.dtype}.",
                "Save floating-point numbers: positions x vocabulary.",
            )
        rows[name] = matrix
    return Logits(name=str(folder), rows=rows, tokens={}, failed={})


def logits_called(reference: str) -> Logits:
    """Return the logits that a person names: a run, as for ``store.find``, or a folder of files."""
    folder = Path(reference).expanduser()
    if folder.is_dir() and not (folder / RUN_FILE).is_file():
        return logits_of_files(folder)
    return logits_of_run(store.find(reference))
