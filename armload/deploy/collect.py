"""Fetching what a run left on a board, taken piece by piece as the collecting script sends it."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from armload.boards.host import Host
from armload.core.errors import BoardError, ConnectError, TransferError
from armload.core.files import sha256_of, write_whole
from armload.core.progress import Progress, ProgressStep, Silent
from armload.core.shell import render
from armload.core.values import Value, counted, format_bytes, whole_number
from armload.deploy.board_runs import check_name
from armload.deploy.launch import JOB_MARK
from armload.deploy.layout import JOB_FILE, PROGRAM_FOLDER, RUN_FILES, SCRATCH_FILES
from armload.deploy.retry import Retry, with_retries


class Arrived(Value):
    """What a board sent of a run.

    Attributes:
        sizes: lengths of the files, by their names.
        sums: their SHA-256 on the board; empty where it has no tool for that.
        left: how many files were not sent.
        examples: names of some of these.
    """

    sizes: Mapping[str, int]
    sums: Mapping[str, str]
    left: int = 0
    examples: tuple[str, ...] = ()


class Receiver:
    """Takes what the collecting script sends, piece by piece, and writes the files.

    Args:
        folder: where they grow, each beside its place.
        parts: how much of some of them is there.
        known: names that a file may have outside of the program's folder.
    """

    def __init__(
        self,
        folder: Path,
        parts: Mapping[str, int],
        board_name: str,
        step: ProgressStep,
        known: Sequence[str] = RUN_FILES,
    ) -> None:
        self.sizes: dict[str, int] = {}
        self._known = known
        self._left = 0
        self._examples: list[str] = []
        self._folder = folder
        self._parts = parts
        self._board_name = board_name
        self._step = step
        self._rest = b""
        self._in_listing = True
        self._listed: list[tuple[str, str]] = []
        self._awaited: list[tuple[str, int]] = []
        self._sums: dict[str, str] = {}
        self._complete = False
        self._done_bytes = 0

    def take(self, data: bytes) -> None:
        self._rest += data
        try:
            if self._in_listing:
                self._take_listing()
            if not self._in_listing:
                self._take_bytes()
        except ValueError as error:
            raise TransferError(
                f"{self._board_name}: the fetched run cannot be read: {error}.",
                fetch_again(self._board_name),
            ) from error

    @property
    def listed(self) -> bool:
        return bool(self._listed)

    def done(self) -> Arrived:
        self.close()
        if not self._complete:
            raise TransferError(
                f"{self._board_name}: the fetched run's files are truncated, or changed during "
                "the transfer.",
                fetch_again(self._board_name),
            )
        return Arrived(
            sizes=self.sizes, sums=self._sums, left=self._left, examples=tuple(self._examples)
        )

    def close(self) -> None:
        self._rest = b""

    def _take_listing(self) -> None:
        while self._in_listing and b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            if line == b"#bytes":
                self._in_listing = False
                self._begin_files()
                return
            word, _, rest = line.decode("utf-8", "surrogateescape").partition(" ")
            if word == "#more":
                self._left = whole_number(rest) or 0
            elif word == "#left":
                self._examples.append(rest)
            elif word != "#":
                self._listed.append((word, rest))

    def _begin_files(self) -> None:
        for length, name in self._listed:
            self._check(name)
            size = whole_number(length)
            if size is None:
                raise ValueError(f"{name[:200]!r} has no length")
            self.sizes[name] = size
        missing = sum(size - self._parts.get(name, 0) for name, size in self.sizes.items())
        if missing > shutil.disk_usage(self._folder).free:
            # Found out later, it would have filled the disk for every other run.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        for name, size in self.sizes.items():
            have = self._parts.get(name, 0)
            if have > size:
                (self._folder / part_of(name)).unlink()
                raise ValueError(f"{name} became shorter")
            self._awaited.append((name, size - have))
            if not have:
                part = self._folder / part_of(name)
                part.parent.mkdir(parents=True, exist_ok=True)
                part.write_bytes(b"")
        self._awaited.reverse()
        total = sum(self.sizes.values())
        self._done_bytes = total - sum(left for _, left in self._awaited)
        self._step.update(self._done_bytes, total=total)

    def _take_bytes(self) -> None:
        while self._awaited:
            name, left = self._awaited[-1]
            piece, self._rest = self._rest[:left], self._rest[left:]
            if piece:
                with (self._folder / part_of(name)).open("ab") as file:
                    file.write(piece)
                self._done_bytes += len(piece)
                self._step.update(self._done_bytes)
            if len(piece) < left:
                self._awaited[-1] = (name, left - len(piece))
                return
            self._awaited.pop()
        while b"\n" in self._rest and not self._complete:
            line, _, self._rest = self._rest.partition(b"\n")
            if line == b"#sums":
                continue
            if line == b"#end":
                self._complete = True
            elif len(line) > 66 and line[64:65] == b" ":
                name = line[66:].decode("utf-8", "surrogateescape")
                self._sums[name] = line[:64].decode("ascii", "replace")
            else:
                raise ValueError("the files are truncated, or changed during the transfer")

    def _check(self, name: str) -> None:
        """Refuse a file that is not for this place, such as one that only this machine writes."""
        folder, *inside = name.split("/")
        if inside and folder == PROGRAM_FOLDER:
            for part in inside:
                check_name(part)
        elif name not in self._known:
            raise ValueError(f"{name[:200]!r} is not a file of a run")


def part_of(name: str) -> PurePosixPath:
    """Return where a file grows in a run's folder here: beside its place, which is kept whole."""
    first, *rest = PurePosixPath(name).parts
    return PurePosixPath(f".{first}.part", *rest)


def fetch_again(board_name: str) -> str:
    """Return what to do when a run did not arrive whole."""
    return f"Fetch it again after the run has ended: armload pull --board {board_name}"


MOST_FILES = 250
MOST_BYTES = 1_000_000_000
"""Of what a program leaves in its own folder; the script counts them in 32 bits."""

_MOST_EXAMPLES = 3

_SILENCE_S = 300.0  # a slow board makes checksums of large files in silence
_SCRIPT = "run.sh"
_RESUMED_FROM_BYTES = 1 << 20
"""Shorter files are sent again in full after a dropped connection."""


def collect(
    host: Host,
    run_folder: PurePosixPath,
    local_folder: Path,
    progress: Progress | None = None,
    *,
    results: Sequence[str] = (),
) -> None:
    """Copy a run's files into ``local_folder``; can be repeated.

    What a run is known to leave is fetched whole. Of the files in its program's own folder,
    ``MOST_FILES`` and ``MOST_BYTES`` at most; what is left is said.

    Bytes go to the disk as they come. A dropped connection is renewed, and what has arrived is not
    sent again. Files are compared with their checksums on the board; where it has no tool for
    that, they are sent a second time and compared with the first. What the run's starter gave
    as its job becomes ``job.json``.

    Args:
        results: further files that the run may be known to leave.

    Raises:
        ConnectError: the board stayed away.
        TransferError: a file was damaged in transit, or the run is still running.
        OSError: this machine's disk has no room for them; none is begun then.
    """
    progress = progress or Silent()
    local_folder.mkdir(parents=True, exist_ok=True)
    with progress.step(f"Fetching from {host.name}", unit="B") as step:
        arrived = _fetched(host, run_folder, local_folder, step, (*RUN_FILES, *results))
        sums = arrived.sums
        if not sums:
            step.update(0, note="again, to compare checksums")
            sums = {
                name: with_retries(partial(_sum_of, host, run_folder / name))
                for name in arrived.sizes
            }
    for name in arrived.sizes:
        part = local_folder / part_of(name)
        if sums.get(name) != sha256_of(part):
            part.unlink()
            raise TransferError(
                f"{host.name}: {run_folder / name} differs from its copy on the board: the "
                "transfer is damaged.",
                fetch_again(host.name),
            )
    for name in arrived.sizes:
        part = local_folder / part_of(name)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        (local_folder / name).parent.mkdir(parents=True, exist_ok=True)
        part.replace(local_folder / name)
    shutil.rmtree(local_folder / part_of(PROGRAM_FOLDER), ignore_errors=True)
    if _SCRIPT in arrived.sizes:
        _, _, job = (local_folder / _SCRIPT).read_bytes().rpartition(b"\n" + JOB_MARK)
        write_whole(local_folder / JOB_FILE, job)
    if arrived.left:
        dots = ", …" if arrived.left > len(arrived.examples) else ""
        progress.say(
            f"Not fetched: {counted(arrived.left, 'file')} of {run_folder.name} on {host.name}, in "
            f"{run_folder}: {', '.join(arrived.examples)}{dots}. armload fetches up to "
            f"{MOST_FILES} files and {format_bytes(MOST_BYTES)} from the program's working folder "
            f"({PROGRAM_FOLDER}), besides its own files."
        )


def _fetched(
    host: Host, run_folder: PurePosixPath, local: Path, step: ProgressStep, known: Sequence[str]
) -> Arrived:
    retry = Retry()

    def attempt() -> Arrived:
        # The job is made from the script; a file that grew since is checked like any other.
        parts = _parts_in(local)
        values = {
            "folder": run_folder,
            "program_folder": PROGRAM_FOLDER,
            "known": list(known),
            "own_lines": "\n".join(["", *known, *SCRATCH_FILES, ""]),
            "most_bytes": MOST_BYTES,
            "most_examples": _MOST_EXAMPLES,
            "most_files": MOST_FILES,
            "parts": [(name, n + 1) for name, n in parts.items()],
        }
        receiver = Receiver(local, parts, host.name, step, known)
        stderr = bytearray()
        try:
            for stream, data in host.stream(
                render("run/collect.sh.j2", values), silence_s=_SILENCE_S
            ):
                retry.heard()
                if stream == "stdout":
                    receiver.take(data)
                else:
                    stderr += data
        except ConnectError:
            receiver.close()
            raise
        if not receiver.listed:
            reason = stderr.decode("utf-8", "replace").strip()
            raise BoardError(f"{host.name}: no run to fetch in {run_folder}: {reason}.")
        return receiver.done()

    return with_retries(attempt, retry)


def _parts_in(local: Path) -> dict[str, int]:
    """Return how much has arrived of the files that are not sent again from the beginning."""
    found = {}
    for part in local.glob(".*.part"):
        name = part.name.removeprefix(".").removesuffix(".part")
        for path in [part, *part.rglob("*")]:
            if path.is_file() and (size := path.stat().st_size) >= _RESUMED_FROM_BYTES:
                found[str(PurePosixPath(name, *path.relative_to(part).parts))] = size
    return found


def _sum_of(host: Host, path: PurePosixPath) -> str:
    digest = hashlib.sha256()
    for chunk in host.read(path):
        digest.update(chunk)
    return digest.hexdigest()
