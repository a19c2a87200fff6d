"""How an error reaches a person or a program: in words, as a document, and as an exit status."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from invoke.exceptions import Exit

from armload.cli.streams import (
    STANDARD_OUTPUT,
    discard_output,
    is_document_owed,
    show_document,
)
from armload.core.errors import (
    ArmloadError,
    ConnectError,
    DiskError,
    InterruptionError,
    LocalMemoryError,
)
from armload.core.files import is_about_network, is_refusal, refusal_remedy

_NO_MORE = {errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}


def failed(error: ArmloadError) -> Exit:
    """Show an error, as the document too that is still owed, and return what ends the program."""
    _show_owed_document(error)
    # The user asked for it; nothing is wrong.
    show_error(error.message, error.remedy, label=not isinstance(error, InterruptionError))
    return Exit(code=error.exit_status)


def end_if_failed(boards: Mapping[str, ArmloadError | None]) -> None:
    """Show why work failed on some of several boards, where it did.

    Raises:
        Exit: it did; with the status of the first of them.
    """
    errors = {name: error for name, error in boards.items() if error is not None}
    if not errors:
        return
    first = next(iter(errors.values()))
    _show_owed_document(first)
    for name, error in errors.items():
        begins = "" if error.message.startswith(name) else f"{name}: "
        show_error(f"{begins}{error.message}", error.remedy)
    show_error(f"{len(errors)} of {len(boards)} boards failed: {', '.join(errors)}.")
    raise Exit(code=first.exit_status)


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
    if error.filename is None:
        full = "Free disk space, then repeat the command."
        return DiskError(f"this machine: {reason}.", full if is_refusal(error) else "")
    where = Path(os.fsdecode(error.filename))
    remedy = "Check that location, or use another one."
    if is_refusal(error):
        remedy = refusal_remedy(error, where)
    return DiskError(f"{where}: {reason}.", remedy)


def internal_error(error: Exception) -> ArmloadError:
    """Print where a defect of ours shows, and say what it is."""
    traceback.print_exception(error)
    what = " ".join(traceback.format_exception_only(error)[-1].split())
    return ArmloadError(f"Internal error: {what}", "Please report it with the lines above.")
