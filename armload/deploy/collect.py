"""Fetching what runs left on a board."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from armload.boards.host import Host
from armload.core.errors import BoardError, TransferError
from armload.core.files import write_whole
from armload.core.shell import render
from armload.core.values import Value
from armload.deploy.launch import JOB_MARK
from armload.deploy.layout import Layout

COLLECT_TIMEOUT_S = 600.0
_SCRIPT = "run.sh"


class StoredRun(Value):
    """A run that lies on a board.

    Attributes:
        id: its name.
        folder: where it lies.
        state: ``interrupted`` when it neither ended nor goes on, as after a restart.
        status: exit status of an ended one.
    """

    id: str
    folder: PurePosixPath
    state: Literal["ended", "running", "interrupted"]
    status: int | None = None


def list_runs(host: Host, workdir: PurePosixPath) -> tuple[StoredRun, ...]:
    """List the runs that lie on a board, by name.

    Raises:
        ConnectError: the board does not answer.
        TransferError: its answer makes no sense.
    """
    runs = Layout(workdir=workdir).runs
    lines = host.run(render("runs.sh.j2", {"runs": runs})).text.splitlines()
    return parse_runs(lines, runs, host.name)


def parse_runs(lines: Iterable[str], runs: PurePosixPath, board_name: str) -> tuple[StoredRun, ...]:
    """Read the list that a board gives of the runs in its folder ``runs``.

    Raises:
        TransferError: a line makes no sense, or names something outside of that folder.
    """
    found = []
    for line in lines:
        try:
            state, status, name = line.split(" ", 2)
            _check_name(name)
            values = {
                "id": name,
                "folder": runs / name,
                "state": state,
                "status": None if status in ("-", "") else int(status),
            }
            found.append(StoredRun.model_validate(values))
        except ValueError as error:
            raise TransferError(
                f"{board_name}: the list of runs in {runs} makes no sense: {line[:200]!r}.",
                "See what lies there on the board, and remove what is no run of armload's.",
            ) from error
    return tuple(found)


def collect(host: Host, run_folder: PurePosixPath, local_folder: Path) -> tuple[str, ...]:
    """Copy a run's files into ``local_folder`` and return their names; can be repeated.

    Files are compared with their checksums on the board where it has a tool for that, else
    by their lengths. What the run's starter gave as its job becomes ``job.json``.

    Raises:
        BoardError: there is no such run.
        TransferError: a file did not arrive as it is there, or the run still goes on.
    """
    done = host.run(render("collect.sh.j2", {"folder": run_folder}), timeout_s=COLLECT_TIMEOUT_S)
    if done.status != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise BoardError(f"{host.name}: there is no run to collect in {run_folder}: {reason}.")
    files, sums = unpacked(done.stdout, host.name)
    for name, content in files.items():
        if name in sums and hashlib.sha256(content).hexdigest() != sums[name]:
            raise TransferError(
                f"{host.name}: {run_folder / name} did not arrive as it is there.",
                _again(host.name),
            )
    for name, content in files.items():
        path = local_folder / name
        if not path.is_file() or path.read_bytes() != content:
            write_whole(path, content)
    return tuple(files)


def peak_memory_bytes(folder: Path) -> tuple[int, int] | None:
    """Read the peak resident and virtual memory that the board saw; none when it saw nothing.

    The board looks once a second, so growth in the last second may be missing.
    """
    try:
        virtual_kib, resident_kib = (folder / "memory").read_text(encoding="ascii").split()
        return int(resident_kib) * 1024, int(virtual_kib) * 1024
    except (OSError, ValueError):
        return None


def unpacked(output: bytes, board_name: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """Read what the collecting script sent: the files by their names, and their checksums.

    Raises:
        TransferError: it was cut short, makes no sense, or names a file outside of its folder.
    """
    try:
        return _unpacked(output)
    except ValueError as error:
        raise TransferError(
            f"{board_name}: the run's files cannot be taken over: {error}.", _again(board_name)
        ) from error


def _again(board_name: str) -> str:
    return f"When the run has ended: armload pull --board {board_name}"


def _check_name(name: str) -> None:
    """Refuse a name that a board could use to write elsewhere."""
    if name != PurePosixPath(name).name or name in ("", ".", "..") or "\0" in name:
        raise ValueError(f"{name[:200]!r} is no name of a file")


def _unpacked(output: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    listing, _, rest = output.partition(b"#bytes\n")
    files: dict[str, bytes] = {}
    lines = listing.decode("utf-8", "surrogateescape").splitlines()
    # After several files, wc adds a line with their sum.
    for line in lines[:-1] if len(lines) > 1 else lines:
        size, _, name = line.strip().partition(" ")
        _check_name(name)
        if not size.isdecimal():
            raise ValueError(f"{line[:200]!r} gives no length")
        files[name], rest = rest[: int(size)], rest[int(size) :]
    if not rest.startswith(b"#sums\n"):
        raise ValueError("they were cut short, or grew meanwhile")
    if _SCRIPT in files:
        _, _, job = files[_SCRIPT].rpartition(b"\n" + JOB_MARK)
        files["job.json"] = job
    return files, dict(_sums(rest.removeprefix(b"#sums\n")))


def _sums(lines: bytes) -> Iterator[tuple[str, str]]:
    for line in lines.decode("utf-8", "surrogateescape").splitlines():
        sha256, _, name = line.partition("  ")
        yield name, sha256
