"""Logits as they lie on this machine: in a run's folder, or in ``.npy`` files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armload.core.errors import DataError, UsageError
from armload.engines.answers import FailedAnswer, LogitsAnswer, read_answers
from armload.engines.scorer import ANSWERS, LOGITS
from armload.runs import store

if TYPE_CHECKING:
    import numpy.typing as npt

FLOAT_BYTES = 4


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
    """Return the logits that a run of the scorer has left.

    Raises:
        UsageError: it computed none.
        DataError: its files do not fit together.
    """
    import numpy as np

    answers = read_answers(folder / ANSWERS)
    found = [each for each in answers if isinstance(each, LogitsAnswer)]
    if not found:
        raise UsageError(
            f"{folder.name} has no logits.", "Name a run of: armload eval --task logits"
        )
    path = folder / LOGITS
    size_bytes = path.stat().st_size if path.is_file() else 0
    rows = {}
    for answer in found:
        if answer.offset_bytes is None or not answer.rows or not answer.columns:
            continue
        end = answer.offset_bytes + answer.rows * answer.columns * FLOAT_BYTES
        if end > size_bytes:
            raise DataError(
                f"{path}: shorter than its run says.", "Compute the logits again with --new."
            )
        rows[answer.id] = np.memmap(
            path,
            dtype="<f4",
            mode="r",
            offset=answer.offset_bytes,
            shape=(answer.rows, answer.columns),
        )
    return Logits(
        name=folder.name,
        rows=rows,
        tokens={answer.id: answer.tokens for answer in found},
        failed={each.id: each.error for each in answers if isinstance(each, FailedAnswer)},
    )


def logits_of_files(folder: Path) -> Logits:
    """Return the logits in a folder of ``.npy`` files, which are named 1.npy, 2.npy, ….

    Raises:
        UsageError: there are none.
        DataError: one is not a matrix of numbers.
    """
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
    """Return the logits that a person names: a run, as for ``store.find``, or a folder of files.

    Raises:
        UsageError, DataError: as for the two above, or there is no such run.
    """
    folder = Path(reference).expanduser()
    if folder.is_dir() and not (folder / store.RUN_FILE).is_file():
        return logits_of_files(folder)
    return logits_of_run(store.find(reference))
