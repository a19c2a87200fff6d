"""``board.*``: what boards there are, what they have, and the virtual ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb

if TYPE_CHECKING:
    from armload.deploy.clean import Entry

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

    What memory and storage give is measured once per boot, if nobody uses the board.
    Example: armload board.probe --board dayu200
    """
    del c
    import json as json_format

    from armload.boards.board import load_board
    from armload.boards.connect import connect
    from armload.boards.probe import probe as probe_host
    from armload.cli import terminal
    from armload.core.workspace import data_names
    from armload.deploy.claims import claims
    from armload.deploy.deployment import misfit_of_target
    from armload.deploy.rates import measured_rates
    from armload.report.boards import probe_table

    chosen = load_board(board)
    progress = terminal.progress()
    host = connect(chosen, progress)
    try:
        found = probe_host(host, chosen, progress)
        users = [claim for claim in claims(host, chosen.workdir) if claim.left_s]
        if not users and found.workdir_executable:
            rates = measured_rates(host, chosen, found, progress)
            found = found.model_copy(update={"rates": rates})
    finally:
        host.close()
    misfit = misfit_of_target(chosen, found)
    if json:
        document = found.model_dump(mode="json")
        document["target_misfit"] = misfit
        document["in_use_by"] = [claim.model_dump(mode="json") for claim in users]
        terminal.show_json(json_format.dumps(document, indent=1))
    else:
        terminal.show(probe_table(chosen, found, in_use=", ".join(user.words for user in users)))
        if misfit:
            terminal.errors().print(
                f"{misfit} Correct 'target' in boards/{board}.yaml; "
                f"what there is: {', '.join(data_names('toolchains'))}.",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )


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


@task(
    klass=Verb,
    help=_BOARD
    | {"force": "end the lease of somebody else, too; a program that runs there goes on"}
    | _JSON,
)
def release(c: Context, board: str = "", force: bool = False, json: bool = False) -> None:
    """End the lease of a board that you, or nobody any more, uses.

    Example: armload board.release --board dayu200
    """
    del c
    import json as json_format

    from armload.boards.board import load_board
    from armload.boards.connect import connect
    from armload.cli import terminal
    from armload.core.errors import UsageError
    from armload.deploy.claims import release as end_lease

    if not board:
        raise UsageError("Which board?", "armload board.release --board BOARD")
    chosen = load_board(board)
    host = connect(chosen, terminal.progress())
    try:
        ended = end_lease(host, chosen.workdir, force=force)
    finally:
        host.close()
    if json:
        terminal.show_json(json_format.dumps([each.model_dump(mode="json") for each in ended]))
        return
    for each in ended:
        terminal.results().print(f"Released: {each.words}.", highlight=False, soft_wrap=True)
    if not ended:
        terminal.results().print(f"Nobody uses {board}.", highlight=False)


@task(
    klass=Verb,
    help=_BOARD
    | {
        "all": "runs, too, that whoever started them has not fetched",
        "older-than": "programs and models that were not run for so many days; 0: all",
        "yes": "remove without a question",
        "wait": "seconds to wait for a board that is in use",
    }
    | _JSON,
)
def clean(
    c: Context,
    board: str = "",
    all: bool = False,  # noqa: A002 - the option's name
    older_than: str = "30",
    yes: bool = False,
    wait: str = "600",
    json: bool = False,
) -> None:
    """Free a board of fetched runs, and of programs and models long unused.

    What runs or is being copied is never touched. Example: armload board.clean --board dayu200
    """
    del c
    from armload.bench.cleaning import clean as clean_board
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.numbers import amount
    from armload.core.errors import UsageError
    from armload.core.values import format_bytes
    from armload.deploy.clean import Wish
    from armload.report.boards import contents_table

    if not board:
        raise UsageError("Which board?", "armload board.clean --board BOARD")

    def agreed(entries: Sequence[Entry]) -> bool:
        if yes:
            return True
        terminal.errors().print(contents_table(entries))
        if terminal.confirm(f"Remove all this from {board}?"):
            return True
        raise UsageError("Nothing was removed.", "Say --yes to remove it without a question.")

    done = clean_board(
        load_board(board),
        Wish(uncollected=all, unused_days=amount("older-than", older_than)),
        terminal.progress(),
        agreed=agreed,
        wait_s=amount("wait", wait),
    )
    if json:
        terminal.show_json(done.model_dump_json(indent=1))
    elif done.removed:
        terminal.show(contents_table(done.removed))
        freed = format_bytes(done.freed_bytes)
        terminal.results().print(f"Removed; {freed} are free again on {board}.", highlight=False)
    else:
        terminal.results().print(f"Nothing on {board} is needed no more.", highlight=False)


collection = Collection("board", list_boards, probe, trust, up, down, release, clean)
