"""``shell``: a shell on a board, in its work folder."""

from __future__ import annotations

from typing import Annotated

from armload.cli.options import OnBoard
from armload.cli.verb import verb
from armload.core.options import Option


class ShellOptions(OnBoard):
    """A board, and what runs there."""

    command: Annotated[
        tuple[str, ...],
        Option(
            "after --: a program and its arguments, or one quoted line of the shell",
            several="repeat",
            is_argument=True,
        ),
    ] = ()


@verb(ShellOptions)
def shell(options: ShellOptions) -> None:
    """Open a shell on a board, or run a command there.

    It begins in the work folder, with the programs that deploy put there in PATH. Without a
    terminal it runs what standard input says. It ends with the command's exit status.
    Example: armload shell --board dayu200 -- llama-completion -m models/m.gguf -no-cnv -p Hello
    """
    from armload.boards.board import load_board
    from armload.boards.shell import open_shell
    from armload.cli import terminal

    status = open_shell(load_board(options.board), options.command, terminal.progress())
    if status:
        raise SystemExit(status)
