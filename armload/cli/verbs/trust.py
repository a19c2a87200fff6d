"""``trust``: what a folder's files would decide, and the user's agreement to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from armload.core.trust import TrustedFile
    from armload.report.result import Result


class WorkspaceTrustOptions(OutputOptions):
    """A folder, and what becomes of the trust in it."""

    folder: Annotated[
        str,
        Option(
            "the workspace, or a plan or task file outside one",
            usual="the workspace that you are in",
            is_argument=True,
        ),
    ] = ""
    list_: Annotated[bool, Option("list all files that you trust")] = False
    remove: Annotated[bool, Option("trust this folder or file no longer")] = False
    yes: Annotated[bool, Option("trust what is shown without asking")] = False


@verb(WorkspaceTrustOptions, has_defaults=False)
def trust(options: WorkspaceTrustOptions) -> Result:
    """Show what a folder's files would decide to run, and trust them.

    Files that you did not make with armload describe boards, targets and tasks, but start no
    program, choose no source, open no connection and read no file until you have trusted them; and
    again when those keys change.
    Example: armload trust ~/downloads/lab
    """
    from armload.cli import terminal
    from armload.cli.deciding_files import deciding_files, file_lines
    from armload.core import trust as trusting
    from armload.core.values import ValueList
    from armload.core.workspace import workspace
    from armload.report.result import as_result

    if options.list_:
        options.refuse(("folder", "remove", "yes"), "--list", "Remove them.")
        found: Sequence[TrustedFile] = trusting.trusted_files()
        missing = "No file is trusted."
    elif options.remove:
        place = _real(Path(options.folder).expanduser() if options.folder else workspace())
        found = trusting.forget(place)
        missing = f"{place} was not trusted."
    else:
        place = _existing(Path(options.folder).expanduser() if options.folder else workspace())
        found = list(deciding_files(place, terminal.progress()))
        missing = f"Nothing in {place} decides what runs: it needs no trust."
        new = [each for each in found if not trusting.is_trusted(each)]
        if new:
            _agree(new, place, yes=options.yes)
    lines = [missing]
    if found:
        lines = ["No longer trusted:" if options.remove else "Trusted:", *file_lines(found)]
    return as_result(ValueList[trusting.TrustedFile](tuple(found)), "\n".join(lines))


def _agree(new: Sequence[TrustedFile], place: Path, *, yes: bool) -> None:
    from armload.cli import terminal
    from armload.cli.deciding_files import is_agreed, show_files
    from armload.core import trust as trusting
    from armload.core.errors import UsageError
    from armload.core.shell import join

    if yes:
        show_files(new)
    elif not terminal.can_ask():
        show_files(new)
        raise UsageError(
            "Nothing was trusted: confirmation is needed, and there is no terminal to ask on.",
            f"To trust all of this: {join(['armload', 'trust', place, '--yes'])}",
        )
    elif not is_agreed(new):
        raise UsageError("Nothing was trusted.")
    trusting.trust(*new)


def _real(place: Path) -> Path:
    """Return a folder's path without links; a file's, in its folder without links."""
    return place.resolve() if place.is_dir() else place.parent.resolve() / place.name


def _existing(place: Path) -> Path:
    from armload.core.errors import UsageError

    if not place.exists():
        raise UsageError(f"{place}: no such file or folder.", "Correct the path.")
    return _real(place)
