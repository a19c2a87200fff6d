"""A foreign program's command line, as it is typed on the laptop and as it is on the board."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from armload.core.errors import UsageError
from armload.core.values import Value
from armload.deploy.layout import Layout
from armload.deploy.things import Part, Thing


class Command(Value):
    """A command line for a board.

    Attributes:
        words: with what was put there by its path on the board.
        program: the file on the laptop that the first word is; none for one that is on the
            board already.
        library_folders: on the board, that hold shared libraries which were put there.
    """

    words: tuple[str, ...]
    program: Part | None
    library_folders: tuple[PurePosixPath, ...]


def for_board(words: Sequence[str], things: Sequence[Thing], layout: Layout) -> Command:
    """Replace each word that names a thing, or something in it, by its path on the board.

    A thing is named by its path on the laptop or by its own name: ``qwen/config.json`` is that
    file of the folder ``qwen``. So is what follows the first ``=`` of an option.

    Raises:
        UsageError: two things have the same name, or the program is neither put there nor can
            lie on the board.
    """
    names = [thing.name for thing in things]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Two things called {twice!r} are to be put there.", "Give one of them another name."
        )
    first = words[0]
    found = _found(first, things)
    if found is None and "/" in first and not first.startswith("/"):
        raise UsageError(
            f"{first!r} is not among what is put on the board.",
            f"Say --put {first} too, or give the whole path of a program on the board.",
        )
    thing, inside = found or (None, PurePosixPath())
    program = None
    if thing is not None:
        program = next((part for part in thing.parts if part.name == inside), None)
        if program is None:
            raise UsageError(f"{first!r} is a folder, and no program.", "Name the file in it.")
    return Command(
        words=tuple(_replaced(word, things, layout) for word in words),
        program=program,
        library_folders=tuple(
            dict.fromkeys(
                (thing.folder(layout) / part.name).parent
                for thing in things
                for part in thing.parts
                if ".so" in part.name.suffixes
            )
        ),
    )


def _replaced(word: str, things: Sequence[Thing], layout: Layout) -> str:
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    found = _found(value, things)
    if found is None:
        return word
    thing, inside = found
    slash = "/" if value.endswith("/") else ""
    return f"{option}{equals}{thing.folder(layout) / inside}{slash}"


def _found(word: str, things: Sequence[Thing]) -> tuple[Thing, PurePosixPath] | None:
    """Return the thing that a word names, and what in it, with the thing's own name before."""
    if not word:
        return None
    whole = Path(os.path.normpath(Path(word).expanduser().absolute()))
    own = PurePosixPath(os.path.normpath(word))
    for thing in things:
        inside = own
        if whole.is_relative_to(thing.local):
            inside = PurePosixPath(thing.name, *whole.relative_to(thing.local).parts)
        if any(part.name == inside or inside in part.name.parents for part in thing.parts) and (
            inside.parts
        ):
            return thing, inside
    return None
