"""How an error reaches a person or a program: in words, as a document, and as an exit status."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from pathlib import Path

from armload.cli.streams import (
    STANDARD_OUTPUT,
    discard_output,
    is_document_owed,
    show_document,
)
from armload.core.errors import (
    ArmloadError,
    CombinedError,
    ConnectError,
    DiskError,
    InterruptionError,
    LocalMemoryError,
    NoSuchResultError,
)
from armload.core.files import is_about_network, is_full, is_refusal, refusal_remedy
from armload.core.places import cache_folder

_NO_MORE = {errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}


def failed(error: ArmloadError) -> SystemExit:
    """Show an error, as the document too that is still owed, and return what ends the program."""
    if isinstance(error, NoSuchResultError):
        from armload.report.kinds import told_by_kind

        error = told_by_kind(error)
    first: ArmloadError = error
    every: tuple[ArmloadError, ...] = (error,)
    if isinstance(error, CombinedError):
        first, every = error.first, error.every
    _show_owed_document(first)
    for each in every:
        remedy = f"{each.remedy}{_full_disk_of_virtual_boards(each)}".strip()
        # The user asked for an interruption; nothing is wrong.
        show_error(each.message, remedy, label=not isinstance(each, InterruptionError))
    return SystemExit(first.exit_status)


def show_error(message: str, remedy: str = "", *, label: bool = True) -> None:
    """Tell a person what is wrong, and what to do now.

    Args:
        label: say that it is an error.
    """
    from rich.text import Text

    from armload.cli.terminal import say
    from armload.report.layout import Prose

    begin = (("error:", "bold red"), " ") if label else ()
    say(Prose(Text.assemble(*begin, message)))
    if remedy:
        say(remedy)


def _show_owed_document(error: ArmloadError) -> None:
    if not is_document_owed():
        return
    from armload.report.failure import FailedDocument, Failure

    try:
        show_document(FailedDocument(error=Failure.of(error)))
        sys.stdout.flush()
    except OSError:  # standard error and the exit status still tell it
        discard_output()


def system_error(error: OSError) -> ArmloadError:
    """Say what the operating system refused: a file, the network, or a further process."""
    if is_about_network(error):
        return ConnectError(
            f"The network connection failed: {error.strerror or error}.",
            "Check the address and the network, then repeat the command.",
        )
    if error.errno in _NO_MORE:
        return LocalMemoryError(
            f"This machine has run out of memory, processes or open files: {error.strerror}.",
            "Close other programs, or raise the limit (ulimit -a shows them).",
        )
    return disk_error(error)


def disk_error(error: OSError) -> DiskError:
    """Say what this machine could not read or write; a faulty standard output is given up."""
    reason = error.strerror or error
    if error.filename == STANDARD_OUTPUT:
        discard_output()  # the interpreter must not try to write the rest of it there
        return DiskError(
            f"Cannot write to {STANDARD_OUTPUT}: {reason}.", "Redirect it to another location."
        )
    if str(reason).startswith("No usable temporary directory"):
        return _no_temporary_files()
    if error.filename is None:
        is_full_disk = error.errno in {errno.ENOSPC, errno.EDQUOT}
        full = "Free disk space, then repeat the command."
        return DiskError(f"this machine: {reason}.", full if is_full_disk else "")
    where = Path(os.fsdecode(error.filename))
    remedy = "Check that location, or use another one."
    if is_refusal(error):
        remedy = refusal_remedy(error, where)
    return DiskError(f"{where}: {reason}.", remedy)


def _no_temporary_files() -> DiskError:
    """Say why Python finds no folder for temporary files; it gives no reason."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    folders = dict.fromkeys(Path(each) for each in (*named, "/tmp", "/var/tmp") if each)  # noqa: S108
    there = [each for each in folders if each.is_dir()]
    full = [str(each) for each in there if is_full(each)]
    if full:
        return DiskError(
            "No temporary file can be written on this machine: no space left in "
            f"{', '.join(full)}.",
            "Free disk space there, or set TMPDIR to a folder on another disk, then repeat the "
            "command.",
        )
    return DiskError(
        "No temporary file can be written on this machine: none of "
        f"{', '.join(map(str, folders))} is a folder that you may write to.",
        "Set TMPDIR to a folder of your own, then repeat the command.",
    )


_STORAGE_WORDS = re.compile(r"Input/output error|I/O error|Read-only file system|read-only")


def _full_disk_of_virtual_boards(error: ArmloadError) -> str:
    """Say that the disk with virtual boards' storage is full, where that may be what went wrong.

    A virtual board sees a failed write to its image as a fault of its storage.
    """
    machines = cache_folder() / "machines"
    if not _STORAGE_WORDS.search(error.message) or not machines.is_dir() or not is_full(machines):
        return ""
    return (
        f" The disk of this machine that holds {machines}, the storage of virtual boards, is full, "
        "which a board sees as a storage error: free space there, then restart the board "
        "(armload board.down) and repeat the command."
    )


def internal_error(error: Exception) -> ArmloadError:
    """Print where a defect of ours shows, and say what it is."""
    traceback.print_exception(error)
    what = " ".join(traceback.format_exception_only(error)[-1].split())
    return ArmloadError(f"Internal error: {what}", "Please report it with the lines above.")
