"""Whether a board can run a foreign program, as far as that shows before anything is copied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from armload.bench.foreign.words import Command
from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.inspection import Inspection, inspect
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Progress
from armload.core.shell import render
from armload.deploy.things import Part, Thing

_WHEEL_LIMIT_S = 120.0


def check_program(
    host: Host,
    board: Board,
    found: Probe,
    command: Command,
    things: Sequence[Thing],
    progress: Progress,
) -> Inspection | None:
    """Refuse a program that cannot start on a board; warn of one that may not run.

    Args:
        host: the board.
        board: what its file says.
        found: what it says of itself, as programs see it.
        command: what is to be run.
        things: what is put there, which may hold libraries.
        progress: is told of doubts.

    Returns:
        What the program's file is; none for a script, and for a program of the board's own.

    Raises:
        BoardError: another kind of machine, no loader, no such program on the board.
        UsageError: the file may not be executed.
        BuildError: it is a damaged ELF file.
    """
    _check_folder(board, found)
    if command.program is None:
        _check_there(host, command.words[0])
        return None
    if not command.program.executable:
        raise UsageError(
            f"{command.program.local} lacks the right to be executed.",
            f"chmod +x {command.program.local}",
        )
    with command.program.local.open("rb") as file:
        begin = file.read(256)
    if begin.startswith(b"#!"):
        _check_interpreter(host, command.program, begin)
        return None
    inspection = inspect(command.program.local)
    _check_machine(host, found, inspection)
    if inspection.interpreter is not None:
        _check_loader(host, inspection, things, progress)
    _say_lacking_features(host, found, inspection, progress)
    return inspection


def check_wheel(host: Host, python: str) -> None:
    """Make sure that a board's Python has MNN's wheel, with its language models.

    Raises:
        BoardError: it has not; with Python's own words.
    """
    script = render("wheel.sh.j2", {"python": python})
    done = host.run(script, timeout_s=_WHEEL_LIMIT_S)
    if done.status == 0:
        return
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = lines[-1] if lines else f"exit {done.status}"
    raise BoardError(
        f"{host.name}: {python} cannot import MNN.llm: {said}.",
        f"Install the wheel on the board ({python} -m pip install MNN), or name the Python that "
        "has it with --python.",
    )


def _check_folder(board: Board, found: Probe) -> None:
    lack = "written" if not found.workdir_writable else "run from"
    if not (found.workdir_writable and found.workdir_executable):
        raise BoardError(
            f"{board.name}: {board.workdir} cannot be {lack}.",
            f"Choose another folder as 'workdir' in boards/{board.name}.yaml.",
        )


def _has(host: Host, path: PurePosixPath | str) -> bool:
    return host.run(render("has.sh.j2", {"names": [str(path)]})).text == str(path)


def _check_there(host: Host, word: str) -> None:
    if not _has(host, word):
        raise BoardError(
            f"{host.name}: there is no program {word}.",
            "Put it there with --put FILE, or give its whole path on the board.",
        )


def _check_interpreter(host: Host, program: Part, begin: bytes) -> None:
    line = begin[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
    if line and not _has(host, line[0]):
        raise BoardError(
            f"{host.name}: {program.name.name} is a script for {line[0]}, which is not there.",
            f"Name the interpreter: -- sh {program.name.name}, for instance.",
        )


def _check_machine(host: Host, found: Probe, inspection: Inspection) -> None:
    if host.launcher and not found.cpu_features:
        return
    if inspection.architecture != found.machine:
        raise BoardError(
            f"{host.name}: its kernel is {found.machine}, and {inspection.path.name} is built for "
            f"{inspection.architecture}.",
            "Build it for that machine.",
        )


def _check_loader(
    host: Host, inspection: Inspection, things: Sequence[Thing], progress: Progress
) -> None:
    name = inspection.path.name
    loader = str(inspection.interpreter)
    if not _has(host, loader):
        raise BoardError(
            f"{host.name}: {name} is not static: it needs the loader {loader}, which is not there.",
            "Link it with -static, or build it with the board's own system libraries.",
        )
    put = {part.name.name for thing in things for part in thing.parts}
    asked = [library for library in inspection.needed if library not in put]
    if not asked:
        return
    there = host.run(render("libraries.sh.j2", {"names": asked})).text.splitlines()
    missing = [library for library in asked if library not in there]
    if missing:
        progress.say(
            f"{name} needs {', '.join(missing)}, which is neither put there nor in the usual "
            f"folders of {host.name}: it may not start. (--put FILE takes libraries, too.)"
        )


def _say_lacking_features(
    host: Host, found: Probe, inspection: Inspection, progress: Progress
) -> None:
    lacking = [
        use.feature
        for use in inspection.features
        if not use.guarded and use.feature not in found.cpu_features
    ]
    if lacking and found.cpu_features:
        progress.say(
            f"{inspection.path.name} uses {', '.join(lacking)}, which the CPU of {host.name} "
            "lacks: unless it asks the CPU first, it ends with an illegal instruction."
        )
