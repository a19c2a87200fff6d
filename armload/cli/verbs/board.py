"""``board.*``: what boards there are, what they have, and the virtual ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from armload.cli.new_board import (
    HOST,
    NewBoardOptions,
    add_board,
    pin_host_key,
)
from armload.cli.options import OnBoard, OnNamedBoard, OnVirtualBoard, OutputOptions
from armload.cli.verb import verb
from armload.core.defaults import VIRTUAL
from armload.core.options import MOST, Option, Seconds

if TYPE_CHECKING:
    from armload.boards.board import Board
    from armload.deploy.clean import BoardItem
    from armload.report.result import Result


@verb(OutputOptions, name="list")
def list_boards(_options: OutputOptions) -> Result:
    """List the boards: how each is reached, the default, and virtual ones that run.

    Example: armload board.list
    """
    from armload.boards.board import is_group, load_board
    from armload.boards.connect import is_running
    from armload.boards.group import load_group
    from armload.cli import terminal
    from armload.cli.configuration import defaults_of
    from armload.core.errors import ArmloadError
    from armload.core.places import shipped_folders
    from armload.core.trust import describing
    from armload.core.values import ValueList
    from armload.core.workspace import data_file, data_names, no_files
    from armload.report.boards import ListedBoard, boards_view
    from armload.report.result import as_result

    default = defaults_of("bench").get("board")
    used = default.typed.split(",") if default else [VIRTUAL]
    boards = []
    for name in data_names("boards"):
        try:
            if is_group(name):
                with describing():
                    members = ", ".join(load_group(name).members)
                terminal.progress().say(f"{name} is a group: {members}.")
            else:
                with describing():
                    board = load_board(name)
                boards.append(
                    ListedBoard(
                        **dict(board),
                        is_running=is_running(board),
                        is_default=name in used,
                        is_shipped=data_file("boards", name).parent in shipped_folders("boards"),
                    )
                )
        except ArmloadError as error:
            terminal.progress().say(f"Skipped the board {name}: {error}")
    for path, what in no_files("boards").items():
        terminal.progress().say(f"Skipped the board {path.stem}: {path} is {what}.")
    return as_result(ValueList[ListedBoard](tuple(boards)), boards_view(boards))


class BoardOptions(OnBoard, OutputOptions):
    """A board."""


@verb(BoardOptions)
def probe(options: BoardOptions) -> Result:
    """Show a board's CPU, memory, storage, tools and init system.

    Memory and storage bandwidth are measured once per boot, while the board is not in use. The
    first time, small benchmark programs are compiled for that, which can take a minute.
    Example: armload board.probe --board dayu200
    """
    from armload.boards.board import load_board
    from armload.boards.boot import boot_facts
    from armload.boards.connect import connect
    from armload.boards.contradictions import contradictions
    from armload.boards.power import try_read_power
    from armload.boards.probe import probe as probe_host
    from armload.boards.vulkan import with_devices
    from armload.cli import terminal
    from armload.deploy.claims import claims
    from armload.deploy.compatibility import target_mismatch
    from armload.deploy.rates import Missing, measure
    from armload.report.boards import ProbedBoard, probe_view
    from armload.report.result import as_result

    chosen = load_board(options.board)
    progress = terminal.progress()
    host = connect(chosen, progress)
    try:
        found = probe_host(host, chosen, progress)
        found = found.model_copy(update={"vulkan": with_devices(host, found.vulkan)})
        boot = boot_facts(host, chosen)
        power = None if chosen.power is None else try_read_power(chosen.power, host)
        users = [claim for claim in claims(host, chosen.workdir) if claim.left_s]
        if not users and found.workdir_executable:
            rates, missing = measure(host, chosen, found, progress)
            found = found.model_copy(update={"rates": rates})
        else:
            why = (
                "the board is in use"
                if users
                else "programs cannot be written to its work folder or run there"
            )
            missing = Missing.of(found.rates, f"not measured, because {why}")
    finally:
        host.close()
    probed = ProbedBoard(
        **dict(found),
        target_misfit=target_mismatch(chosen, found),
        rates_missing=missing,
        in_use_by=tuple(users),
        contradictions=contradictions(chosen, found),
        power=power,
        boot=boot,
    )
    return as_result(probed, *probe_view(chosen, found, probed))


class TrustOptions(OnNamedBoard, OnVirtualBoard, OutputOptions):
    """A board whose key is pinned."""

    yes: Annotated[bool, Option("pin it without asking")] = False


@verb(TrustOptions)
def trust(options: TrustOptions) -> Result:
    """Show a board's SSH host key, and pin it after confirmation.

    Example: armload board.trust --board dayu200
    """
    from armload.boards.board import load_board
    from armload.boards.trust import PinnedKey
    from armload.cli import terminal
    from armload.report.result import as_result

    path, key, replaced = pin_host_key(load_board(options.board), yes=options.yes)
    terminal.say(f"Pinned in {path}{f', in place of {replaced}' if replaced else ''}.")
    return as_result(PinnedKey(**dict(key), replaced_fingerprint=replaced))


class AddOptions(NewBoardOptions, OutputOptions):
    """A board that is added, and how it is reached."""

    name: Annotated[str, Option("what to call the board", is_argument=True)]
    host: Annotated[str, HOST]


@verb(AddOptions)
def add(options: AddOptions) -> Result:
    """Probe a board and write its file to boards/.

    The file refers to the hardware in the catalogue, or else records what the probe found.
    Example: armload board.add kitchen --host 192.168.1.50 --user pi
    """
    from armload.cli import terminal
    from armload.report.boards import added_view
    from armload.report.result import as_result

    added = add_board(options.name, options, terminal.progress())
    return as_result(added, *added_view(added))


@verb(OutputOptions)
def hardware(_options: OutputOptions) -> Result:
    """List the hardware catalogue: names for fit --hardware and for board files.

    Where several sizes of memory are listed, add one to the name, as in raspberry-pi-5-8gb. --json
    also gives the source of each figure.
    Example: armload board.hardware
    """
    from armload.boards.hardware import Hardware, catalogue
    from armload.core.values import ValueList
    from armload.report.boards import hardware_table
    from armload.report.result import as_result

    entries = catalogue()
    return as_result(ValueList[Hardware](entries), hardware_table(entries))


class UpOptions(OnVirtualBoard, OutputOptions):
    """A virtual board that is started."""


@verb(UpOptions, keeps=True)
def up(options: UpOptions) -> Result:
    """Start a virtual board and wait until it answers.

    Example: armload board.up --board virtual-dayu200
    """
    from armload.boards.board import load_board
    from armload.boards.connect import start
    from armload.cli import terminal
    from armload.report.boards import running_line
    from armload.report.result import as_result

    address = start(load_board(options.board), terminal.progress())
    return as_result(address, running_line(options.board, address))


class DownOptions(OnVirtualBoard, OutputOptions):
    """A virtual board that is stopped."""

    yes: Annotated[bool, Option("stop it without asking, even while it is in use")] = False


@verb(DownOptions)
def down(options: DownOptions) -> Result:
    """Stop a virtual board; its disk is kept.

    Asks for confirmation if a run or another command is using the board.
    Example: armload board.down --board virtual
    """
    from armload.boards.board import load_board
    from armload.boards.connect import stop
    from armload.report.boards import StoppedBoard
    from armload.report.result import as_result

    chosen = load_board(options.board)
    if not options.yes:
        _confirm_end(chosen)
    was_up = stop(chosen)
    stopped = StoppedBoard(was_up=was_up)
    return as_result(stopped, stopped.sentence(options.board))


def _confirm_end(board: Board) -> None:
    """Ask whether to stop a board that is in use; one that does not answer can only be stopped.

    Raises:
        UsageError: a person does not agree, or cannot be asked.
    """
    from contextlib import closing, suppress

    from armload.boards.connect import running_hosts
    from armload.cli import terminal
    from armload.core.errors import ConnectError, TransferError, UsageError
    from armload.deploy.claims import users

    found: list[str] = []
    for each in running_hosts(board):
        with closing(each) as host, suppress(ConnectError, TransferError):
            found += users(host, board.workdir)
    if not found:
        return
    in_use = f"in use by {', '.join(found)}."
    if terminal.can_ask():
        terminal.say(f"{board.name} is {in_use}")
        if terminal.confirm("Stop the board anyway, and end what runs there?"):
            return
        raise UsageError(f"{board.name} was not stopped.")
    raise UsageError(
        f"{board.name} was not stopped: it is {in_use}",
        "To stop it anyway, and end what runs there, use --yes.",
    )


class ReleaseOptions(OnNamedBoard, OnVirtualBoard, OutputOptions):
    """A board whose lease ends."""

    force: Annotated[
        bool, Option("also end another user's lease; a running program is not stopped")
    ] = False


@verb(ReleaseOptions)
def release(options: ReleaseOptions) -> Result:
    """End a lease on a board: your own, or an abandoned one.

    Example: armload board.release --board dayu200
    """
    from contextlib import closing

    from armload.boards.board import load_board
    from armload.boards.connect import connect, is_off
    from armload.cli import terminal
    from armload.core.values import ValueList
    from armload.deploy.claims import Claim
    from armload.deploy.claims import release as end_lease
    from armload.report.boards import released_lines
    from armload.report.result import as_result

    chosen = load_board(options.board)
    ended: tuple[Claim, ...] = ()
    if not is_off(chosen):
        with closing(connect(chosen, terminal.progress())) as host:
            ended = end_lease(host, chosen.workdir, force=options.force)
    return as_result(ValueList[Claim](ended), *released_lines(options.board, ended))


class CleanOptions(OnNamedBoard, OnVirtualBoard, OutputOptions):
    """What is removed from a board."""

    all_: Annotated[bool, Option("also remove runs that have not been fetched")] = False
    older_than: Annotated[
        Annotated[float, Field(ge=0, le=MOST)],
        Option("remove programs and models unused for this many days; 0: all", "DAYS"),
    ] = 30.0
    yes: Annotated[bool, Option("remove without asking")] = False
    wait_s: Annotated[
        Seconds, Option("seconds to wait while the board is in use", "SECONDS", name="wait")
    ] = 600.0


@verb(CleanOptions)
def clean(options: CleanOptions) -> Result:
    """Remove fetched runs and unused programs and models from a board.

    Files that are in use or being copied are never removed.
    Example: armload board.clean --board dayu200
    """
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.core.errors import UsageError
    from armload.deploy.clean import Selection
    from armload.deploy.clean import clean as clean_board
    from armload.report.boards import cleaned_view, contents_table
    from armload.report.result import as_result

    def agreed(entries: Sequence[BoardItem]) -> bool:
        if options.yes:
            return True
        terminal.say(contents_table(entries))
        if terminal.confirm(f"Remove these from {options.board}?"):
            return True
        if terminal.can_ask():  # and the answer was no
            raise UsageError("Nothing was removed.")
        raise UsageError(
            "Nothing was removed: confirmation is needed, and there is no terminal to ask on.",
            "To remove these, repeat the command with --yes.",
        )

    done = clean_board(
        load_board(options.board),
        Selection(uncollected=options.all_, unused_days=options.older_than),
        terminal.progress(),
        agreed=agreed,
        wait_s=options.wait_s,
    )
    return as_result(done, *cleaned_view(options.board, done))
