"""The other members of a group: each computes its part of a model while a run lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path, PurePosixPath

from armload.analysis.members import ClockDifference
from armload.boards.forward import Proxy
from armload.boards.host import Host
from armload.boards.ports import free_port, is_listening
from armload.core.errors import ArmloadError, RunError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.shell import join
from armload.deploy.clean import delete_folders
from armload.deploy.collect import collect
from armload.deploy.exit_record import CUT_FILE
from armload.deploy.follow import stop
from armload.deploy.heartbeat import heartbeat
from armload.deploy.layout import JOB_FILE, STDERR_FILE, STDOUT_FILE, Layout
from armload.deploy.lease import Lease
from armload.deploy.retry import with_retries
from armload.engines.engine import Engine, RunContext, WorkerPlan
from armload.engines.job import Job
from armload.engines.rpc_server import RPC_SERVER, RpcServer
from armload.engines.spread import Spread
from armload.runs.assemble import new_job
from armload.runs.links import listening_address, reached, read_clocks
from armload.runs.members import LINK_FILE, Link, member_folder
from armload.runs.session import Connection, Session
from armload.runs.starting import put_ready, set_off

_BEAT_EVERY_S = 4.0
_UNREACHABLE_AFTER_S = 30.0
_LISTENS_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.2


class RpcServers:
    """The servers on the other members, as long as they run.

    Attributes:
        context: the first member, with the servers as it reaches them.
    """

    def __init__(self, context: RunContext, servers: list[Server]) -> None:
        self.context = context
        self._servers = servers

    def guard(self, connection: Connection, folder: PurePosixPath) -> None:
        """End a run on the first member as soon as a server has ended, or its board is away.

        The program may not notice by itself that the power of another board has failed.
        """

        def end() -> None:
            with suppress(ArmloadError), closing(connection.beside()) as beside:
                stop(beside, folder)

        for server in self._servers:
            server.when_lost(end)

    def end(self, local: Path, progress: Progress) -> None:
        """Stop the servers, and keep what they left in the folder of the run that they served."""
        for server in self._servers:
            server.end(local, progress)


@contextmanager
def rpc_servers(
    session: Session,
    engine: Engine,
    spread: Spread | None,
    context: RunContext,
    leases: Mapping[str, Lease],
    progress: Progress,
) -> Iterator[RpcServers]:
    """Start a server on each other member of a board's group, and stop them with the block.

    Args:
        spread: as ``spread_over`` gives it.
        context: the board itself, ready for the engine.
        leases: of all the boards, by name.
    """
    with ExitStack() as stack:
        servers: list[Server] = []
        endpoints = []
        # For a part of every layer, the board itself needs an RPC server beside its program.
        is_divided = spread is not None and spread.split == "tensor"
        own = (session,) if is_divided and not engine.is_meshed else ()
        running = (*own, *session.other_members)
        for member in running:
            lease = None if member is session else leases[member.connection.board.name]
            server = _started(session, member, engine, lease, progress)
            stack.callback(server.end, None, progress)
            servers.append(server)
            server.wait()
            plan = server.plan
            way = stack.enter_context(
                reached(session.connection, member.connection, plan.address, plan.port)
            )
            server.proxy = way.proxy
            endpoints.append(way.endpoint)
        peers = _reaching_each_other(running, servers, stack) if engine.is_meshed else ()
        if spread is not None:
            _tell(session, engine, spread, progress)
        members = {each.connection.board.name: each for each in session.members}
        if servers:
            _compare_clocks(session, members, servers, progress)
        reach = {"servers": tuple(endpoints), "peers": peers}
        yield RpcServers(context.model_copy(update={"spread": spread, **reach}), servers)


def _reaching_each_other(
    members: Sequence[Session], servers: Sequence[Server], stack: ExitStack
) -> tuple[tuple[str, ...], ...]:
    """Let each member reach those after it; return of each how it does."""
    return tuple(
        tuple(
            stack.enter_context(
                reached(*(member.connection, other.connection, other.plan.address, other.plan.port))
            ).endpoint
            for other in servers[number + 1 :]
        )
        for number, member in enumerate(members)
    )


def _started(
    session: Session, member: Session, engine: Engine, lease: Lease | None, progress: Progress
) -> Server:
    host, board = member.connection.host, member.connection.board
    listen = session.group.listen if session.group is not None and member is not session else None
    address = listening_address(host, listen)
    divisible = engine.spreadable
    asked = divisible.threads if divisible else engine.settings.threads
    threads = member.found.conditions.threads_as_asked(asked)
    plan = WorkerPlan(address=address, port=free_port(host), threads=threads)
    server = engine.worker(plan) or RpcServer(plan, member.binaries[RPC_SERVER])
    server.check(host, board, member.found, progress)
    prepared = put_ready(member, server, progress)
    layout = Layout(workdir=board.workdir)
    if isinstance(server, RpcServer):
        prepared = prepared.model_copy(update={"uses": (*prepared.uses, layout.rpc_tensors)})
    job = new_job(server, board, prepared.context)
    folder = layout.run(job.id)
    set_off(member, server, prepared, job, folder, lease)
    return Server(member.connection, plan, job, folder)


def _compare_clocks(
    session: Session, members: Mapping[str, Session], servers: Sequence[Server], progress: Progress
) -> None:
    """Note how the members' clocks differ; what they do is then known on one clock."""
    try:
        first = read_clocks(session, progress)
        for server in servers:
            theirs = read_clocks(members[server.connection.board.name], progress)
            server.clock = ClockDifference(
                ahead_s=theirs.since_boot_s - first.monotonic_s,
                error_s=theirs.error_s + first.error_s,
            )
    except ArmloadError as error:
        progress.say(f"The members' clocks were not compared: {error.message}")


def _tell(session: Session, engine: Engine, spread: Spread, progress: Progress) -> None:
    parts = ", ".join(f"{share.board} {share.layers}" for share in spread.shares)
    progress.say(
        f"{session.board.name}: layers are divided by memory and speed: {parts}."
        if spread.split == "layer"
        else f"{session.board.name}: every layer is computed by all members."
    )
    if spread.is_direct:
        risk = (
            "can read what they exchange, which is not encrypted."
            if engine.is_meshed
            else "can use ggml's RPC servers, which have no authentication."
        )
        progress.say(
            "The members reach each other directly. Until the run ends, anyone in their network "
            f"{risk}"
        )
    else:
        progress.say(
            "This machine forwards between the members: the run fails if it loses one of them."
        )


class Server:
    """What computes on another board, which ends when this does not ask for it any more.

    Attributes:
        connection: to its board.
        plan: how it listens.
        proxy: what its clients' bytes pass through; none where they do not pass this machine.
        clock: of its board, beside that of the first member; none where that is not known.
    """

    def __init__(
        self, connection: Connection, plan: WorkerPlan, job: Job, folder: PurePosixPath
    ) -> None:
        self.connection = connection
        self.plan = plan
        self.proxy: Proxy | None = None
        self.clock: ClockDifference | None = None
        self._job = job
        self._folder = folder
        self._lost: Callable[[], None] | None = None
        self._is_lost = False
        self._is_away = False
        self._ended = threading.Event()
        self._changing = threading.Lock()
        self._heartbeat = threading.Thread(target=self._beat, daemon=True)
        self._heartbeat.start()

    def wait(self) -> None:
        """Wait until it listens.

        Raises:
            RunError: it ended first, or does not.
            ConnectError: its board does not answer.
        """
        host, name = self.connection.host, self.connection.board.name
        until_s = time.monotonic() + _LISTENS_WITHIN_S
        while time.monotonic() < until_s:
            if with_retries(lambda: is_listening(host, self.plan.port)):
                return
            now = with_retries(lambda: heartbeat(host, self._folder))
            if now.condition != "running":
                last = host.run(
                    f"cat {join([self._folder / STDERR_FILE, self._folder / STDOUT_FILE])}"
                ).text
                said = last.strip().splitlines()[-1:] or ["it gave no reason"]
                program = self._job.binary.program
                raise RunError(f"{name}: {program} exited before it was ready: {said[0]}")
            time.sleep(_LOOK_EVERY_S)
        raise RunError(
            f"{name}: {self._job.binary.program} is not listening on "
            f"{self.plan.address}:{self.plan.port}."
        )

    def when_lost(self, lost: Callable[[], None]) -> None:
        """Call a function as soon as it has ended by itself, or its board is away."""
        with self._changing:
            self._lost = lost
            if not self._is_lost:
                return
        lost()

    def end(self, local: Path | None, progress: Progress) -> None:
        """Stop it, and keep what it left; what was ended before is left alone.

        Args:
            local: the folder of the run that it served; none keeps nothing.
        """
        if self._ended.is_set():
            return
        self._ended.set()
        self._heartbeat.join()
        host, name = self.connection.host, self.connection.board.name
        folder = member_folder(local, name) if local else None
        try:
            if folder is not None:
                self._note(folder)
            if self._is_away:
                now = heartbeat(host, self._folder, look_only=True)
            else:
                now = with_retries(lambda: heartbeat(host, self._folder, look_only=True))
            if now.condition == "running":
                stop(host, self._folder, finished=True)
            if folder is not None:
                collect(host, self._folder, folder)
                if now.cut is not None:
                    write_whole(folder / CUT_FILE, now.cut.encode())
            delete_folders(host, [self._folder])
        except (ArmloadError, OSError) as error:
            program = self._job.binary.program
            progress.say(f"{error} If {program} still runs on {name}, it ends within a minute.")

    def _note(self, folder: Path) -> None:
        write_whole(folder / JOB_FILE, self._job.model_dump_json(indent=1).encode())
        proxy = self.proxy
        link = Link(
            sent_bytes=proxy.sent_bytes if proxy else None,
            received_bytes=proxy.received_bytes if proxy else None,
            clock=self.clock,
        )
        write_whole(folder / LINK_FILE, link.model_dump_json().encode())

    def _beat(self) -> None:
        heard_s = time.monotonic()
        host: Host | None = None
        try:
            while not self._ended.wait(_BEAT_EVERY_S):
                try:
                    host = host or self.connection.beside()
                    now = heartbeat(host, self._folder)
                except ArmloadError:
                    if time.monotonic() - heard_s < _UNREACHABLE_AFTER_S:
                        continue
                    self._is_away = True
                else:
                    heard_s = time.monotonic()
                    if now.condition == "running":
                        continue
                with self._changing:
                    self._is_lost = True
                    lost = self._lost
                if lost is not None:
                    lost()
                return
        finally:
            if host is not None:
                host.close()
