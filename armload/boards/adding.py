"""A new board's file, from what the board shows of itself."""

from __future__ import annotations

import contextlib
import itertools
import re
from pathlib import Path, PurePosixPath

import yaml

from armload.boards.board import USUAL_FOLDERS, Board, SshReach, load_board
from armload.boards.hardware import ChosenHardware, load_hardware, recognised
from armload.boards.host import Host
from armload.boards.probe import Probe, clusters_of, probe
from armload.core.defaults import VIRTUAL
from armload.core.errors import ArmloadError, BoardError, UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.trust import trust
from armload.core.workspace import data_names, spelled_name, workspace
from armload.core.yamlfile import own_file

ANY_TARGET = "armv8-generic"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_new(name: str) -> Path:
    """Return the file of a board that there is not yet."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"A board cannot be called {name!r}.",
            "Use letters, digits, dots, dashes and underscores.",
        )
    if (taken := spelled_name("boards", name)) in data_names("boards"):
        raise UsageError(
            f"There is already a board named {taken!r}.",
            "Choose another name, or edit its file in boards/.",
        )
    return workspace() / "boards" / f"{name}.yaml"


def added_before(reach: SshReach) -> Board | None:
    """Return the workspace's board that is reached so; none where there is none."""
    for path in sorted((workspace() / "boards").glob("*.yaml")):
        with contextlib.suppress(ArmloadError):
            board = load_board(path.stem)
            if board.reach == reach:
                return board
    return None


def new_name(host: str) -> str:
    """Propose what a board is called that is reached at a host, so that ``check_new`` takes it."""
    first = host.partition(".")[0]
    is_address = ":" in host or host.replace(".", "").isdigit()
    stem = "my-board" if is_address or not _NAME.fullmatch(first) else first
    taken = data_names("boards")
    others = (f"{stem}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([stem], others) if name not in taken)


def write_virtual(comment: str, name: str) -> Path:
    """Make this folder a workspace with a virtual board of its own; return the board's file.

    Args:
        comment: its first line.
    """
    path = workspace() / "boards" / f"{name}.yaml"
    is_there = path.is_file()
    if name != VIRTUAL and not (is_there and load_board(name).reach.kind == "virtual"):
        check_new(name)
    if not is_there:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"{comment}extends: {VIRTUAL}\ndescription: virtual board of this workspace\n"
        text += f"# Everything else comes from {VIRTUAL!r}. To change it, for example:\n"
        write_whole(path, f"{text}# reach: {{memory: 1 GiB, cores: 1}}\n".encode())
    return path


def unprobed(name: str, reach: SshReach) -> Board:
    """Return a board of which nothing is known but how it is reached."""
    return Board(name=name, target=ANY_TARGET, reach=reach)


def probe_new(host: Host, board: Board, progress: Progress) -> tuple[Board, Probe]:
    """Probe a board that has no file yet, and find a work folder there."""
    home = host.run('echo "$HOME"').text.strip()
    tried = [*USUAL_FOLDERS]
    if home.startswith("/"):
        tried.append(PurePosixPath(home, "armload"))
    for folder in tried:
        there = board.model_copy(update={"workdir": folder})
        found = probe(host, there, progress)
        if found.workdir_writable and found.workdir_executable:
            return there, found
    raise BoardError(
        f"{board.name}: programs cannot be written and run in {', '.join(map(str, tried))}.",
        f"Write boards/{board.name}.yaml by hand, with a workdir where they can be.",
    )


def hardware_of(found: Probe, named: str) -> ChosenHardware | None:
    """Return what a person named, else what a board is recognised as."""
    if named:
        return load_hardware(named)
    return recognised(found.device, found.conditions.memory_total_bytes)


def write_board(
    path: Path,
    board: Board,
    found: Probe,
    hardware: ChosenHardware | None,
    target: str,
    *,
    comment: str = "",
) -> Board:
    """Write a board's file, and return what it says.

    Args:
        target: that suits the board; left out of the file where it is the hardware's.
        comment: its first line.
    """
    title = hardware.hardware.description if hardware else found.device or found.machine
    content: dict[str, object] = {"description": title}
    if hardware:
        content["hardware"] = hardware.name
    if hardware is None or target != hardware.hardware.target:
        content["target"] = target
    content["reach"] = board.reach.model_dump(mode="json", exclude_none=True)
    if board.workdir != board.reach.usual_folder:
        content["workdir"] = str(board.workdir)
    if hardware is None:
        clusters = [each.model_dump(exclude_none=True) for each in clusters_of(found)]
        content["facts"] = {"memory": found.conditions.memory_total_bytes, "clusters": clusters}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f"{comment}{text}".encode())
    # What this command wrote is trusted as it was written, whatever lies there by now.
    trust(own_file("boards", path.parent.parent, path, Board, content))
    return load_board(path.stem)
