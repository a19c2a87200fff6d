"""A file to upload to a board, and how much of it is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from armload.core.shell import render
from armload.core.values import Value


class Upload(Value):
    """A file to upload to a board.

    Attributes:
        local: on this machine.
        remote: on the board.
        sha256: of the content, 64 hexadecimal digits.
        executable: whether it is a program.
    """

    local: Path
    remote: PurePosixPath
    sha256: str
    executable: bool

    @property
    def part(self) -> PurePosixPath:
        """Where it grows on the board until it is whole."""
        return self.remote.with_name(f"{self.remote.name}.part")

    @property
    def size_bytes(self) -> int:
        """Of the local file, now."""
        return self.local.stat().st_size


class Stored(Value):
    """What of an upload lies on a board.

    Attributes:
        state: ``present`` was checked before and has not changed since.
        part_bytes: length of what a former transfer left.
    """

    state: Literal["present", "unchecked", "part", "absent"]
    part_bytes: int = 0


def stored_script(uploads: Sequence[Upload]) -> str:
    """Return the script whose output ``parse_stored`` reads."""
    return render("stored.sh.j2", {"files": uploads})


def parse_stored(uploads: Sequence[Upload], output: bytes) -> tuple[Stored, ...]:
    """Read what the script said of these uploads; malformed lines count as absent."""
    lines = iter(output.decode("utf-8", "replace").splitlines())
    for line in lines:
        if line == "#armload files":
            break
    return tuple(_stored(upload, lines) for upload in uploads)


def _stored(upload: Upload, lines: Iterator[str]) -> Stored:
    word = next(lines, "")
    if word == "present":
        record, mark = next(lines, ""), next(lines, "")
        as_recorded = record == f"{upload.sha256} {mark}"
        return Stored(state="present" if as_recorded else "unchecked")
    if word == "part":
        length = next(lines, "").strip()
        digits = re.fullmatch(r"[0-9]{1,18}", length)
        return Stored(state="part", part_bytes=int(length) if digits else 0)
    return Stored(state="absent")
