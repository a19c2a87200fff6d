"""Fetching what a run left on a board."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from armload.boards.host import Host
from armload.core.errors import BoardError, ConnectError, TransferError
from armload.core.files import sha256_of, write_whole
from armload.core.progress import Progress, ProgressStep, Silent
from armload.core.shell import render
from armload.core.values import counted, format_bytes
from armload.deploy.launch import JOB_MARK
from armload.deploy.layout import JOB_FILE, PROGRAM_FOLDER, RUN_FILES, SCRATCH_FILES
from armload.deploy.receiver import Arrived, Receiver, fetch_again, part_of
from armload.deploy.retry import Retry, with_retries

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
