"""A watched program's command line, as typed on this machine and as run on the board."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

from armload.core.errors import UsageError
from armload.core.values import Value
from armload.deploy.layout import Layout
from armload.deploy.payload import FoundFile, FoundPayload, Payload, PayloadFile

Found = TypeVar("Found", bound=FoundPayload)


class Command(Value):
    """A command line for a board.

    Attributes:
        words: with what was put there by its path on the board.
        program: the file on this machine that the first word is; none for one that is on the
            board already.
        library_folders: on the board, that hold shared libraries which were put there.
    """

    words: tuple[str, ...]
    program: PayloadFile | None
    library_folders: tuple[PurePosixPath, ...]


def for_board(words: Sequence[str], payload: Sequence[Payload], layout: Layout) -> Command:
    """Replace each word that names a payload, or something in it, by its path on the board.

    A payload is named by its path on this machine or by its own name: ``qwen/config.json`` is that
    file of the folder ``qwen``. So is what follows the first ``=`` of an option.

    Raises:
        UsageError: as for ``program_among``.
    """
    program = program_among(words[0], payload)
    parts = (part for each in payload for part in each.files)
    return Command(
        words=tuple(_replaced(word, payload, layout) for word in words),
        program=next((part for part in parts if part is program), None),
        library_folders=tuple(
            dict.fromkeys(
                (each.folder(layout) / part.name).parent
                for each in payload
                for part in each.files
                if ".so" in part.name.suffixes
            )
        ),
    )


def program_among(first: str, payload: Sequence[FoundPayload]) -> FoundFile | None:
    """Return the file that the first word of a command line names; none for one of the board's.

    Raises:
        UsageError: two payloads have the same name, or the program is neither put there nor can
            lie on the board.
    """
    names = [each.name for each in payload]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Two files or folders called {twice!r} are to be put there.",
            "Rename one of them.",
        )
    found = _found(first, payload)
    if found is None and "/" in first and not first.startswith("/"):
        raise UsageError(
            f"{first!r} is not among the files of --put.",
            f"Add --put {first}, or give the full path of a program on the board.",
        )
    if found is None:
        return None
    thing, inside = found
    program = next((part for part in thing.files if part.name == inside), None)
    if program is None:
        raise UsageError(f"{first!r} is a folder, not a program.", "Name the program file in it.")
    return program


def _replaced(word: str, payload: Sequence[Payload], layout: Layout) -> str:
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    found = _found(value, payload)
    if found is None:
        return word
    thing, inside = found
    slash = "/" if value.endswith("/") else ""
    return f"{option}{equals}{thing.folder(layout) / inside}{slash}"


def _found(word: str, payload: Sequence[Found]) -> tuple[Found, PurePosixPath] | None:
    """Return the payload that a word names, and what in it, with the payload's own name before."""
    if not word:
        return None
    whole = Path(os.path.normpath(Path(word).expanduser().absolute()))
    own = PurePosixPath(os.path.normpath(word))
    for each in payload:
        inside = own
        if whole.is_relative_to(each.local):
            inside = PurePosixPath(each.name, *whole.relative_to(each.local).parts)
        if any(part.name == inside or inside in part.name.parents for part in each.files) and (
            inside.parts
        ):
            return each, inside
    return None
