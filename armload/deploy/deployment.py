"""Files in place on a board, each verified there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe, as_programs_see_it, parse_probe, probe_script
from armload.core.progress import Progress
from armload.core.shell import render
from armload.core.values import Value
from armload.deploy.claims import need_board
from armload.deploy.compatibility import check_folder
from armload.deploy.layout import Layout
from armload.deploy.own_programs import checksum_program
from armload.deploy.payload import Payload
from armload.deploy.retry import Retry, with_retries
from armload.deploy.space import need_memory, need_space
from armload.deploy.transfer import RETRY_FOR_S, deliver
from armload.deploy.upload import UploadState, parse_stored, stored_script

_ASKED_AT_ONCE = 100


class Deployment(Value):
    """What was found and done on a board.

    Attributes:
        found: what the board reported before anything was copied, as programs see it.
        shell_machine: ``uname -m`` of its shell, which under an emulator is another one.
        sent: something had to be copied.
    """

    found: Probe
    shell_machine: str
    sent: bool


def deploy(
    host: Host,
    board: Board,
    payload: Sequence[Payload],
    progress: Progress,
    *,
    verify: bool = False,
) -> Deployment:
    """Put files on a board, each verified there.

    Everything is asked in one round trip; when all is there already that was all.

    Args:
        verify: read again what is there already, from the storage where that can be done.

    Raises:
        BusyError: meanwhile somebody else has taken the board over.
        ConnectError: the board stayed away.
    """
    layout = Layout(workdir=board.workdir)
    items = [item for each in payload for item in each.items(layout)]
    retry = Retry(RETRY_FOR_S)
    question = probe_script(board) + stored_script(items[:_ASKED_AT_ONCE])
    done = with_retries(lambda: host.run(question), retry)
    shown = parse_probe(done.stdout, board.name, done.stderr, sensors=board.sensors)
    found = with_retries(lambda: as_programs_see_it(host, shown, progress), retry)
    check_folder(board, found)
    stored = list(parse_stored(items[:_ASKED_AT_ONCE], done.stdout))
    for first in range(_ASKED_AT_ONCE, len(items), _ASKED_AT_ONCE):
        some = items[first : first + _ASKED_AT_ONCE]
        stored += parse_stored(some, with_retries(partial(host.run, stored_script(some))).stdout)
    if verify:
        stored = [
            UploadState(state="unchecked") if each.state == "present" else each for each in stored
        ]
    sent = False
    lacking = [pair for pair in zip(items, stored, strict=True) if pair[1].state != "present"]
    if lacking:
        need_memory(board, items, stored, found.conditions, progress)
        with_retries(lambda: need_space(host, layout, items, stored), retry)
        sums = checksum_program(host, layout, found, progress)
        for item, state in lacking:
            sent |= deliver(
                host,
                layout,
                item,
                state,
                progress,
                helper=sums,
                cold=verify,
                still_ours=lambda: need_board(host, board.workdir),
            )
    return Deployment(found=found, shell_machine=shown.machine, sent=sent)


def link_plainly(
    host: Host, layout: Layout, files: Sequence[PurePosixPath]
) -> dict[PurePosixPath, PurePosixPath]:
    """Give programs and models names without a checksum; return those that could be had.

    Args:
        files: in place; of two with one name, the last gets it.
    """
    names = [file.relative_to(layout.workdir) for file in files]
    script = render("files/link.sh.j2", {"workdir": layout.workdir, "files": names})
    said = host.run(script).text.split()
    return {
        file: layout.plain(file) for file, word in zip(files, said, strict=False) if word == "yes"
    }
