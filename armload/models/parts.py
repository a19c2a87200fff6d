"""Models in several files, as llama-gguf-split writes them: ``NAME-00001-of-00003.gguf``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from armload.core.errors import DataError
from armload.models.header import Header, check_whole, read_header

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_KEYS = "split."


def part_names(name: str) -> tuple[str, ...]:
    """Return the names of all parts of a model from the first one's; of one file, its own."""
    match = _NAME.fullmatch(name)
    if match is None or int(match["number"]) != 1:
        return (name,)
    stem, count = match["stem"], int(match["count"])
    return tuple(f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))


def read_headers(path: Path, *, need_weights: bool = True) -> tuple[Header, tuple[Path, ...]]:
    """Read the header of a model, and of all its parts if it has several.

    Args:
        need_weights: a part that ends before its weights do is refused.

    Returns:
        The header of the file that the parts would be, one after the other; and the parts, of
        which the first is ``path``, or nothing if the model is one file.

    Raises:
        DataError: no header of a GGUF file, or a part that is missing or truncated, or not the
            first one.
        OSError: a file cannot be read.
    """
    first = read_header(path)
    parts = _parts(path, first)
    if not parts:
        return first, ()
    headers = [first, *(read_header(part) for part in parts[1:])]
    tensors, before_bytes = [], 0
    for part, header in zip(parts, headers, strict=True):
        if need_weights:
            check_whole(part, header.file_bytes, header.whole_bytes)
        tensors += [
            replace(tensor, offset_bytes=before_bytes + tensor.offset_bytes)
            for tensor in header.tensors
        ]
        before_bytes += max(header.file_bytes, header.whole_bytes)
    metadata = {key: value for key, value in first.metadata.items() if not key.startswith(_KEYS)}
    whole = replace(first, metadata=metadata, tensors=tuple(tensors), file_bytes=before_bytes)
    return whole, parts


def _parts(path: Path, header: Header) -> tuple[Path, ...]:
    count = header.metadata.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return ()
    name = _NAME.fullmatch(path.name)
    if name is None or int(name["count"]) != count:
        raise DataError(
            f"{path}: this file is one of {count} parts of a split model, and the other parts "
            "are found by its name.",
            f"Call it NAME-00001-of-{count:05}.gguf, and the others likewise.",
        )
    if int(name["number"]) != 1:
        raise DataError(
            f"{path}: this file is one of {count} parts of a split model.",
            f"Give the first part: {name['stem']}-00001-of-{count:05}.gguf",
        )
    parts = tuple(path.with_name(each) for each in part_names(path.name))
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise DataError(
            f"{path}: this file is one of {count} parts of a split model, and there is no "
            f"{missing[0]} beside it.",
            "Put all parts into one folder.",
        )
    return parts
