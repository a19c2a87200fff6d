"""``board.*``: what boards there are, what they have, and the virtual ones."""

from __future__ import annotations

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb

_BOARD = {"board": "a file in boards/, such as virtual or dayu200"}
_JSON = {"json": "print one JSON document"}


@task(name="list", klass=Verb, help=_JSON)
def list_boards(c: Context, json: bool = False) -> None:
    """List the boards, and how each is reached.

    Example: armload board.list
    """
    del c
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.core.errors import DataError
    from armload.core.workspace import data_names
    from armload.report.boards import boards_table

    boards = []
    for name in data_names("boards"):
        try:
            boards.append(load_board(name))
        except DataError as error:
            terminal.progress().say(f"left out: {error}")
    if json:
        terminal.show_json("[" + ",".join(board.model_dump_json() for board in boards) + "]")
    else:
        terminal.show(boards_table(boards))


@task(klass=Verb, help=_BOARD | _JSON)
def probe(c: Context, board: str = "virtual", json: bool = False) -> None:
    """Ask a board what it is: CPU features, memory, storage, tools.

    Example: armload board.probe --board dayu200
    """
    del c
    from armload.boards.board import load_board
    from armload.boards.connect import connect
    from armload.boards.probe import probe as probe_host
    from armload.cli import terminal
    from armload.report.boards import probe_table

    chosen = load_board(board)
    progress = terminal.progress()
    host = connect(chosen, progress)
    try:
        found = probe_host(host, chosen, progress)
    finally:
        host.close()
    if json:
        terminal.show_json(found.model_dump_json(indent=1))
    else:
        terminal.show(probe_table(chosen, found))


@task(klass=Verb, help=_BOARD | {"yes": "pin it without a question"} | _JSON)
def trust(c: Context, board: str = "", yes: bool = False, json: bool = False) -> None:
    """Show a board's SSH host key, and pin it after a question.

    Example: armload board.trust --board dayu200
    """
    del c
    from armload.boards.board import load_board
    from armload.boards.trust import fetch_host_key, pin
    from armload.cli import terminal
    from armload.core.errors import UsageError

    if not board:
        raise UsageError("Which board?", "armload board.trust --board BOARD")
    chosen = load_board(board)
    key = fetch_host_key(chosen)
    terminal.errors().print(f"{board} shows {key.kind} {key.fingerprint}", highlight=False)
    if not yes and not terminal.confirm("Is that the board's own key? Pin it?"):
        raise UsageError("Nothing was pinned.", "Say --yes to pin it without a question.")
    path = pin(key)
    if json:
        terminal.show_json(key.model_dump_json())
    terminal.errors().print(f"Pinned in {path}.", highlight=False)


@task(klass=Verb, help=_BOARD | _JSON)
def up(c: Context, board: str = "virtual", json: bool = False) -> None:
    """Start a virtual board and wait until it answers.

    Example: armload board.up --board virtual-dayu200
    """
    del c
    from armload.boards.board import load_board
    from armload.boards.connect import start
    from armload.cli import terminal

    address = start(load_board(board), terminal.progress())
    if json:
        terminal.show_json(address.model_dump_json())
    else:
        terminal.results().print(
            f"{board} is up: ssh -p {address.port} -i {address.key} {address.user}@{address.host}",
            highlight=False,
            soft_wrap=True,
        )


@task(klass=Verb, help=_BOARD | _JSON)
def down(c: Context, board: str = "virtual", json: bool = False) -> None:
    """Stop a virtual board; its disk is kept.

    Example: armload board.down --board virtual
    """
    del c
    from armload.boards.board import load_board
    from armload.boards.connect import stop
    from armload.cli import terminal

    was_up = stop(load_board(board))
    if json:
        terminal.show_json('{"was_up": true}' if was_up else '{"was_up": false}')
        return
    terminal.results().print(f"{board} {'is down.' if was_up else 'was not up.'}")


collection = Collection("board", list_boards, probe, trust, up, down)
