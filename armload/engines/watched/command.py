"""A watched program's command line, and whether a board can run it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.inspection import Inspection, inspect
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Progress
from armload.core.shell import call, join
from armload.core.values import Value
from armload.deploy.compatibility import is_cpu_unknown, used_features
from armload.deploy.exit_reason import HOW_TO_LINK
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
    """Return the file that the first word of a command line names; none for one of the board's."""
    names = [each.name for each in payload]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Two --put paths have the same name, {twice!r}.",
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
    program = file_among(first, payload)
    if program is None:
        raise UsageError(f"{first!r} is a folder, not a program.", "Name the program file in it.")
    return program


def file_among(word: str, payload: Sequence[FoundPayload]) -> FoundFile | None:
    """Return the file that a word names, as ``for_board`` replaces it; none where it names none."""
    found = _found(word, payload)
    if found is None:
        return None
    thing, inside = found
    return next((part for part in thing.files if part.name == inside), None)


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


_WHEEL_LIMIT_S = 120.0


class Script(Value):
    """A program that another one reads.

    Attributes:
        name: its file's.
        interpreter: the program that reads it; empty where its first line names none.
    """

    name: str
    interpreter: str


def look_at_program(program: FoundFile) -> Inspection | Script:
    if not program.executable:
        raise UsageError(
            f"{program.local} is not executable.",
            f"Make it executable: {join(['chmod', '+x', program.local])}",
        )
    with program.local.open("rb") as file:
        begin = file.read(256)
    if not begin.startswith(b"#!"):
        return inspect(program.local)
    words = begin[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
    return Script(name=program.name.name, interpreter=words[0] if words else "")


def check_program(
    host: Host,
    board: Board,
    found: Probe,
    program: Inspection | Script | str,
    payload: Sequence[Payload],
    progress: Progress,
) -> None:
    """Refuse a program that cannot start on a board; warn of one that may not run.

    Args:
        found: what it says of itself, as programs see it.
        program: what is to be run; the name of a program of the board's own.
        payload: what is put there, which may hold libraries.
    """
    if isinstance(program, str):
        _check_there(host, program)
    elif isinstance(program, Script):
        if program.interpreter and not _has(host, program.interpreter):
            raise BoardError(
                f"{host.name}: {program.name} is a script for {program.interpreter}, which is "
                "missing on the board.",
                f"Call another interpreter: -- sh {program.name}, for instance.",
            )
    else:
        if not is_cpu_unknown(board, found) and program.architecture != found.machine:
            raise BoardError(
                f"{board.name}: its kernel is {found.machine}, and {program.path.name} is built "
                f"for {program.architecture}.",
                "Rebuild it for that architecture.",
            )
        if program.interpreter is not None:
            _check_loader(host, program, payload, progress)
        used = used_features(program.features)
        lacking = [name for name in used if name not in found.cpu_features]
        if lacking and found.cpu_features:
            progress.say(
                f"{program.path.name} uses {', '.join(lacking)}, which the CPU of {host.name} "
                "does not have: unless it checks for them at run time, it will end with an illegal "
                "instruction."
            )


def check_wheel(host: Host, python: str) -> None:
    """Make sure that a board's Python has MNN's wheel, with its language models."""
    done = host.run(join([python, "-c", "import MNN.llm"]), timeout_s=_WHEEL_LIMIT_S)
    if done.status == 0:
        return
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = lines[-1] if lines else f"exit {done.status}"
    raise BoardError(
        f"{host.name}: {python} cannot import MNN.llm: {reason}.",
        f"Install the wheel on the board ({python} -m pip install MNN; where pip refuses that, in "
        "a virtual environment), and name the Python that has it with --python.",
    )


def _has(host: Host, path: PurePosixPath | str) -> bool:
    return host.run(call("tell_there", path)).text == str(path)


def _check_there(host: Host, word: str) -> None:
    if not _has(host, word):
        raise BoardError(
            f"{host.name}: no program {word} on the board.",
            "Copy it with --put FILE, or give its full path on the board.",
        )


def _check_loader(
    host: Host, inspection: Inspection, payload: Sequence[Payload], progress: Progress
) -> None:
    name = inspection.path.name
    loader = str(inspection.interpreter)
    if not _has(host, loader):
        raise BoardError(
            f"{host.name}: {name} is dynamically linked: it needs the loader {loader}, "
            "which is missing on the board.",
            HOW_TO_LINK,
        )
    put = {part.name.name for each in payload for part in each.files}
    asked = [library for library in inspection.needed if library not in put]
    if not asked:
        return
    there = host.run(call("tell_libraries", *asked)).text.splitlines()
    missing = [library for library in asked if library not in there]
    if missing:
        progress.say(
            f"{name} needs {', '.join(missing)}, which is not among the files of --put or in the "
            f"usual library folders of {host.name}: it may not start. Copy libraries with --put "
            "FILE, too."
        )
