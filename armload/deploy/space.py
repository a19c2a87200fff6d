"""The room on a board, and why something could not be written there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from armload.boards.board import Board
from armload.boards.conditions import Conditions
from armload.boards.folder import TRIAL_BYTES, free_bytes, mount_of, obstacle_in, read_obstacle
from armload.boards.framing import parts_of, reason
from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.progress import Progress
from armload.core.shell import call, render
from armload.core.values import Value, counted, format_bytes
from armload.deploy.layout import Layout
from armload.deploy.upload import Upload, UploadState

SPARE_BYTES = 4 << 20
"""Left free on the board, for the run's own files."""

_LISTED_IN = 512
"""File systems without extents list a file's blocks in one of 1024, or of 256 where they are small;
f2fs lists them, and btrfs their checksums, in one of 1000."""

_WORTH_NAMING_BYTES = 1 << 20
_MOST_NAMED = 3


def _kept_bytes(wanted_bytes: int) -> int:
    return SPARE_BYTES + wanted_bytes // _LISTED_IN


class FreeSpace(Value):
    """What a board says of its storage.

    Attributes:
        free_bytes: none when it has no tool that says it.
        advice: what to do when that is too little.
    """

    free_bytes: int | None
    advice: str

    def missing_bytes(self, wanted_bytes: int) -> int:
        """Return how much more is needed for so much; 0 where the board cannot say."""
        if self.free_bytes is None:
            return 0
        return max(0, wanted_bytes + _kept_bytes(wanted_bytes) - self.free_bytes)

    def need(self, host: Host, names: str, workdir: PurePosixPath, wanted_bytes: int) -> None:
        """Make sure that so much fits, beside what a run itself writes.

        Raises:
            BoardError: it does not; the figures that it gives add up.
        """
        missing = self.missing_bytes(wanted_bytes)
        if self.free_bytes is None or not missing:
            return
        kept_bytes = _kept_bytes(wanted_bytes)
        raise BoardError(
            f"{host.name}: not enough space for {names}: {format_bytes(self.free_bytes)} free in "
            f"{workdir}; {format_bytes(wanted_bytes)} to send and {format_bytes(kept_bytes)} "
            f"reserved for the file system and the run's own files need {format_bytes(missing)} "
            "more.",
            self.advice,
        )


def _lacking(uploads: Sequence[Upload], stored: Sequence[UploadState]) -> dict[Upload, int]:
    return {
        upload: upload.size_bytes - min(state.part_bytes, upload.size_bytes)
        for upload, state in zip(uploads, stored, strict=True)
        if state.state in {"part", "absent"}
    }


def need_memory(
    board: Board,
    uploads: Sequence[Upload],
    stored: Sequence[UploadState],
    now: Conditions,
    progress: Progress,
) -> None:
    """Say that a work folder is in memory, and make sure that what is missing fits there."""
    wanted_bytes = sum(_lacking(uploads, stored).values())
    if not wanted_bytes or not now.workdir_in_memory:
        return
    where = f"{board.name}: {board.workdir} is in memory ({now.workdir_filesystem})"
    remedy = f"Set a 'workdir' on storage in boards/{board.name}.yaml."
    if wanted_bytes > now.memory_available_bytes:
        raise BoardError(
            f"{where}: {format_bytes(wanted_bytes)} to send, but only "
            f"{format_bytes(now.memory_available_bytes)} of memory are available.",
            remedy,
        )
    progress.say(
        f"{where}: the {format_bytes(wanted_bytes)} to send will occupy memory, and will be lost "
        f"when the board restarts. {remedy}"
    )


def need_space(
    host: Host, layout: Layout, uploads: Sequence[Upload], stored: Sequence[UploadState]
) -> None:
    """Make the uploads' folders, and make sure that what is missing of all of them fits."""
    lacking = _lacking(uploads, stored)
    if not lacking:
        return
    folders = list(dict.fromkeys(upload.part.parent for upload in lacking))
    space = ask_space(host, layout, folders)
    space.need(host, _named(list(lacking)), layout.workdir, sum(lacking.values()))


def ask_space(host: Host, layout: Layout, folders: Sequence[PurePosixPath]) -> FreeSpace:
    """Make folders below a work folder, and say how much room is left there."""
    workdir = layout.workdir
    done = host.run(render("files/space.sh.j2", {"folders": folders, "workdir": workdir}))
    if done.status != 0:
        complaint = f"{folders[0]} cannot be written"
        raise refusal(host, folders[0], complaint, reason(done.stderr), workdir)
    parts = parts_of(done.text)
    mount = mount_of(PurePosixPath(next(iter(parts.get("place", ())), "/")), parts["mounts"])
    return FreeSpace(
        free_bytes=free_bytes(parts["df"], mount.filesystem if mount else None),
        advice=_what_to_free(parts.get("used", ()), workdir),
    )


class Refused(Value):
    """Why something could not be written on a board.

    Attributes:
        words: the reason.
        remedy: what to do; empty where only the board's tools gave a reason.
    """

    words: str
    remedy: str


def why_refused(host: Host, folder: PurePosixPath, output: str, workdir: PurePosixPath) -> Refused:
    """Ask a board why something could not be written.

    The words of its tools vary, and may be in its own language: so it is tried.
    """
    try:
        parts = parts_of(host.run(call("tell_refusal", folder, workdir, TRIAL_BYTES)).text)
    except BoardError:  # where a way to the board needs room there for each question
        parts = {}
    mounts = parts.get("mounts", ())
    obstacle = read_obstacle(parts.get("obstacle", ()), mounts) or obstacle_in(folder, output)
    if obstacle is None:
        return Refused(words=output.rstrip("."), remedy="")
    is_full = obstacle.kind == "full"
    remedy = (
        _what_to_free(parts.get("used", ()), workdir) if is_full else obstacle.remedy(host.name)
    )
    return Refused(words=obstacle.words, remedy=remedy)


def refusal(
    host: Host, folder: PurePosixPath, complaint: str, output: str, workdir: PurePosixPath
) -> BoardError:
    """Return the error for what could not be written; arguments as for ``why_refused``."""
    why = why_refused(host, folder, output, workdir)
    return BoardError(f"{host.name}: {complaint}: {why.words}.", why.remedy)


def _named(uploads: Sequence[Upload]) -> str:
    largest = sorted(uploads, key=lambda upload: upload.size_bytes, reverse=True)[:_MOST_NAMED]
    names = [f"{upload.remote.name} ({format_bytes(upload.size_bytes)})" for upload in largest]
    more = len(uploads) - len(largest)
    return " and ".join([*names, *([counted(more, "more file")] if more else [])])


def _what_to_free(used: Sequence[str], workdir: PurePosixPath) -> str:
    sizes = []
    for line in used:
        kib, _, name = line.partition("\t")
        if kib.isdigit() and name and int(kib) * 1024 >= _WORTH_NAMING_BYTES:
            sizes.append((int(kib) * 1024, workdir / name))
    largest = sorted(sizes, reverse=True)[:3]
    if not largest:
        return "armload's own files there are small; free other space, or set another 'workdir'."
    named = ", ".join(f"{path} ({format_bytes(size)})" for size, path in largest)
    return f"armload's largest folders there, if you no longer need them: {named}."
