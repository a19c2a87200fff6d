"""Headers of safetensors files: an eight-byte length, a JSON object, and the tensors' bytes.

Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from armload.core.errors import DataError
from armload.core.files import unreadable
from armload.core.values import load_json

_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000
_AGAIN = "Download it again."


class StoredTensor(BaseModel):
    """What a header says of a tensor.

    Attributes:
        dtype: the type as safetensors calls it, such as ``BF16``.
        shape: its dimensions.
        data_offsets: where its bytes begin and end, counted from the header's end.
    """

    model_config = ConfigDict(frozen=True)

    dtype: str
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    data_offsets: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]

    @property
    def weights(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """In the file."""
        return self.data_offsets[1] - self.data_offsets[0]


_HEADER = TypeAdapter(dict[str, StoredTensor])


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a safetensors file by their names; their bytes are not read.

    Raises:
        DataError: it is no safetensors file, or it is truncated.
        DiskError: it cannot be read.
    """
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if not 2 <= length <= _MOST_HEADER_BYTES:
                raise DataError(f"{path}: this is not a safetensors file.", _AGAIN)
            header = file.read(length)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(header) < length:
        raise _cut(path, _LENGTH_BYTES + length - size_bytes)
    try:
        content = load_json(header)
        content.pop("__metadata__", None)
        tensors = _HEADER.validate_python(content)
    except (ValueError, AttributeError, ValidationError) as error:
        raise DataError(
            f"{path}: the header of this safetensors file is damaged.", _AGAIN
        ) from error
    end = max((each.data_offsets[1] for each in tensors.values()), default=0)
    missing = _LENGTH_BYTES + length + end - size_bytes
    if missing > 0:
        raise _cut(path, missing)
    return tensors


def _cut(path: Path, missing_bytes: int) -> DataError:
    return DataError(
        f"{path}: this file is truncated; {missing_bytes:,} bytes are missing.", _AGAIN
    )
