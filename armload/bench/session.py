"""A board that is reached, with a program that was built for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from armload.bench.defaults import DEFAULT_WAIT_S
from armload.bench.reached import Reached
from armload.bench.setting import Wish
from armload.boards.board import Board, load_board
from armload.boards.host import Host
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import choose
from armload.build.target import load_target
from armload.buildhost.choose import workshop
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.deployment import Deployment, deploy
from armload.deploy.lease import Lease, leased
from armload.models.find import resolve
from armload.models.gguf import read_model
from armload.models.model import Model


class Request(Value):
    """What a person asks for, by name.

    Attributes:
        board: a file in ``boards/``.
        source: a file in ``toolchains/sources``, a llama.cpp folder, or the address of a git
            repository; empty for the pinned source.
        ref: a branch, tag or commit of the repository; empty for its default branch.
        compiler: the engine's: ``zig``, ``gnu`` or ``native``; empty for what is usual there.
        on: a build host that compiles the engine; empty for this machine.
        wait_s: how long to wait for a board that somebody else uses.
        new: start another run, even if an interrupted command left the same one on the board.
        state: in which state the board is to be for each run.
    """

    board: str
    source: str = ""
    ref: str = ""
    compiler: str = ""
    on: str = ""
    wait_s: float = DEFAULT_WAIT_S
    new: bool = False
    state: Wish = Wish()


class Session:
    """A board at the end of a line, and the program that runs there.

    Args:
        reached: the line.
        binary: built for the board's target.
        request: what was asked for.
    """

    def __init__(self, reached: Reached, binary: Binary, request: Request) -> None:
        self.reached = reached
        self.binary = binary
        self.request = request

    @property
    def host(self) -> Host:
        """The live connection; another one after it broke."""
        return self.reached.host

    @property
    def board(self) -> Board:
        """The board's file."""
        return self.reached.board

    @contextmanager
    def leased(self, progress: Progress) -> Iterator[Lease]:
        """Have the board for oneself within the block.

        Raises:
            BusyError, BoardError, ConnectError: as for ``deploy.lease.leased``.
        """
        with leased(
            self.host,
            self.board.workdir,
            progress,
            wait_s=self.request.wait_s,
            beside=self.reached.beside,
        ) as lease:
            yield lease

    def deployed(self, model: Model, progress: Progress, *, verify: bool = False) -> Deployment:
        """Put program and model on the board, where they are not there yet.

        With ``verify`` what is there is read again first.

        Raises:
            BoardError, ConnectError, TransferError: as for ``deploy.deployment.deploy``.
        """
        return deploy(
            self.host,
            self.board,
            binary=self.binary,
            model=model,
            progress=progress,
            verify=verify,
        )


def chosen_model(name: str, progress: Progress) -> Model:
    """Return a model's facts; make or download it when it is missing.

    Args:
        name: a GGUF file, ``hf:ORG/REPO/FILE.gguf``, ``like:SHAPE:TYPE`` or ``demo``.
        progress: where it is shown.

    Raises:
        UsageError, DataError: there is no such model, or it is not a whole one.
        ConnectError, MissingToolError: it cannot be downloaded.
    """
    return read_model(resolve(name, progress), progress)


@contextmanager
def session(request: Request, progress: Progress) -> Iterator[Session]:
    """Reach a board, start it when it is a virtual one, and build what is missing.

    Raises:
        ArmloadError: any of its kinds; whatever was done stays done.
    """
    board = load_board(request.board)
    target = load_target(board.target)
    source = choose(request.source, ref=request.ref, progress=progress)
    with closing(Reached(board, progress)) as reached:
        # Minutes of compiling are no time to learn that the board does not answer.
        reached.host.run(":")
        with workshop(on=request.on, compiler=request.compiler, progress=progress) as where:
            (binary, *_) = build(target, source=source, workshop=where, progress=progress)
        yield Session(reached, binary, request)
