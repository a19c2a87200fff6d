"""The way of every run, from an engine and a board to a run that is kept.

build, reach: ``session.session``, once for all runs of a command. A board is reached before
anything is built, so that what is wrong with it is said at once; a virtual one boots meanwhile.

lease, deploy, prepare, launch: ``underway``, the last three with the functions of ``starting``. The
other members of a group are brought under way between prepare and launch (``rpc_servers``).

follow, collect, assemble, keep: ``execute``. The last three are ``fetch``, by which runs that
others have followed, or nobody, are fetched as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from armload.analysis.emulation import FILE_NAME as EMULATOR_FILE
from armload.analysis.energy import FILE_NAME as POWER_FILE
from armload.analysis.energy import PowerLine
from armload.analysis.run import Run
from armload.boards.failures import PoweredOffError
from armload.boards.probe import probe
from armload.core.errors import RunError
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.deploy.compatibility import check_folder
from armload.deploy.exit_record import Cut
from armload.deploy.follow import CutShortError, ProgressUpdate, follow, stop
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries
from armload.engines.engine import Engine
from armload.engines.job import Job, SweepPoint
from armload.runs.assemble import new_job
from armload.runs.board_services import mention_services
from armload.runs.emulator import emulator_recorded
from armload.runs.fetch import fetch, mark_fetched
from armload.runs.footprint import checked_memory
from armload.runs.group_forecast import note_parts
from armload.runs.interruption import find_left, stoppable
from armload.runs.power import idle_power, power_recorded
from armload.runs.rpc_servers import RpcServers, rpc_servers
from armload.runs.session import Connection, Predictor, Session, leased_boards
from armload.runs.spreading import spread_over
from armload.runs.starting import put_ready, set_off

_PREDICTED_FROM_S = 2.0
"""How long the first token must take for that to be said before it comes."""

_END_OF_TEXT = 40
"""Characters that are shown of what a program writes, beside the progress."""


class Heard(Protocol):
    """Hears what a program writes."""

    def __call__(self, text: str, *, is_whole: bool) -> None:
        """Take what it has written up to now; at its end, while the step is open, all of it."""


@dataclass(frozen=True, kw_only=True)
class ActiveRun:
    """A run that has been started on a board, or found there.

    Attributes:
        connection: to the board.
        folder: of the run there.
        job: the run's, where this command started it.
        idle: what the board's power meter showed before it.
        servers: on the other members of a group; none where it was found.
        servers_block: ends them with the block, unless it is taken over.
    """

    connection: Connection
    folder: PurePosixPath
    job: Job | None = None
    idle: tuple[PowerLine, ...] = ()
    servers: RpcServers | None = None
    servers_block: ExitStack = field(default_factory=ExitStack)

    @property
    def was_running(self) -> bool:
        """Whether it was left there by an earlier command."""
        return self.job is None

    def follow(self, engine: Engine, progress: Progress, heard: Heard | None = None) -> Cut | None:
        """Wait for its end, and stop it where its engine says that its work is done.

        Args:
            heard: is called with what the program has written, whenever that has grown.

        Returns:
            What cut it short; none where it left its exit status.

        Raises:
            ConnectError: the board stayed away; the run may still go on there.
            RunError: there is no such run.
        """
        connection, seen, stopped = self.connection, runs_folder() / self.folder.name, False
        written = ""
        label = f"Running on {connection.board.name}"
        with progress.step(label, total=engine.total, unit=engine.unit) as step:

            def grown(now: ProgressUpdate) -> None:
                nonlocal stopped, written
                note = engine.note(now)
                # Where lines cannot be redrawn, parts of a text between them could not be read.
                text = "" if note else " ".join(now.text.split())[-_END_OF_TEXT:]
                rows = [("text", text)] if text else []
                note = note or self._phase(engine, now)
                step.update(engine.progress(now), note=note, rows=rows)
                written = now.text
                if heard is not None:
                    heard(written, is_whole=False)
                if not stopped and engine.is_done(now):
                    with closing(connection.beside()) as beside:
                        stop(beside, self.folder, finished=True)
                    stopped = True

            while True:
                try:
                    follow(connection.host, self.folder, grown, keep=seen)
                    if heard is not None:
                        heard(written, is_whole=True)
                    return None
                except CutShortError as error:
                    progress.say(error.message)
                    return error.cut
                except RunError:
                    # A power cut may have taken the folder with it.
                    if self.job is None or self._is_same_boot(self.job):
                        raise
                    return "restart"
                except PoweredOffError:
                    connection.again()

    def _phase(self, engine: Engine, now: ProgressUpdate) -> str:
        phase = engine.phase(now)
        ttft_s = self.job.prediction.ttft_s if self.job and self.job.prediction else None
        if not phase or now.steps or ttft_s is None or ttft_s.value < _PREDICTED_FROM_S:
            return phase
        return f"{phase} (predicted: {ttft_s.value:.0f} s)"

    def _is_same_boot(self, job: Job) -> bool:
        while True:
            try:
                return self.connection.boot_id() == job.before.boot_id
            except PoweredOffError:
                self.connection.again()


@contextmanager
def underway(
    session: Session,
    engine: Engine,
    progress: Progress,
    *,
    new: bool,
    place: SweepPoint | None = None,
    predictor: Predictor | None = None,
) -> Iterator[ActiveRun]:
    """Start an engine on a board; the run goes on there, within the block and after it.

    The same run, left there by an interrupted command of this machine, is taken up instead.
    Ctrl-C within the block ends the program on the board; what it left is fetched before the
    interruption continues.

    Args:
        new: start another run, even if the same one was left there.
        place: of the run in a sweep.
        predictor: predicts a new run before anything is copied, and refuses one that cannot be.
    """
    connection = session.connection
    host, board = connection.host, connection.board
    layout = Layout(workdir=board.workdir)
    found = session.found
    # What a group computes ends with the command that forwards between its members.
    new = new or session.group is not None
    with ExitStack() as block:
        with progress.step(f"Checking {board.name}"):
            left = None if new else find_left(connection, engine, progress)
            if left is None:
                mention_services(host, layout, progress)
                check_folder(board, found)
                with_retries(lambda: engine.check(host, board, found, progress))
        if left is None:
            leases = block.enter_context(leased_boards(session, progress))
            lease = leases[board.name]
            if lease.waited:
                left = None if new else find_left(connection, engine, progress)
                found = found if left else probe(host, board)
        if left is not None:
            block.enter_context(stoppable(connection, left.folder, None, None, progress))
            yield ActiveRun(connection=connection, folder=left.folder)
            return
        preparing = block.enter_context(ExitStack())
        preparing.enter_context(progress.step(f"Preparing the run on {board.name}"))
        prediction = None
        spread = spread_over(session, engine, progress)
        decides = predictor is not None and spread is None
        engine = checked_memory(session, engine, found, progress, decides=decides)
        if predictor is not None:
            prediction = predictor(found, engine.memory, spread)
        prepared = put_ready(session, engine, progress)
        servers_block = block.enter_context(ExitStack())
        servers = servers_block.enter_context(
            rpc_servers(session, engine, spread, prepared.context, leases, progress)
        )
        # A service waits for requests; a load on it has an idle board of its own.
        idle = () if engine.is_service else idle_power(connection, progress)
        job = new_job(
            *(engine, session.board, servers.context, place),
            prediction=prediction,
            subtracts_idle=session.request.subtract_idle,
        )
        folder = layout.run(job.id)
        block.enter_context(stoppable(connection, folder, job, lease, progress, servers.end))
        set_off(session, engine, prepared, job, folder, lease)
        servers.guard(connection, folder)
        preparing.close()
        yield ActiveRun(
            connection=connection,
            folder=folder,
            job=job,
            idle=idle,
            servers=servers,
            servers_block=servers_block,
        )


def execute(
    session: Session,
    engine: Engine,
    progress: Progress,
    *,
    new: bool,
    place: SweepPoint | None = None,
    reference: Run | None = None,
    baseline: Sequence[Run] = (),
    predictor: Predictor | None = None,
    heard: Heard | None = None,
) -> tuple[Run, Path]:
    """Run an engine on a board to its end and keep what comes back; return it with its folder.

    A program that fails is a result too: the run says so.

    Args:
        new, place, predictor: as for ``underway``.
        reference: a run with the expected output.
        baseline: runs of the same without speculation, where it speculates.
        heard: as for ``ActiveRun.follow``.

    Raises:
        ArmloadError: the run could not be started, or its results not be fetched.
        KeyboardInterrupt: after what is there was kept.
    """
    with underway(session, engine, progress, new=new, place=place, predictor=predictor) as it:
        local = runs_folder() / it.folder.name
        with (
            power_recorded(it.connection, local / POWER_FILE, progress, idle=it.idle),
            emulator_recorded(it.connection.board, local / EMULATOR_FILE),
        ):
            cut = it.follow(engine, progress, heard)
        if it.servers is not None:
            it.servers.end(local, progress)
        run, folder = fetch(
            *(it.connection.host, it.connection.board, it.folder, progress),
            job=it.job,
            cut=cut,
            reference=reference,
            baseline=baseline,
        )
        mark_fetched(it.connection.host, it.folder)
    note_parts(run)
    return run, folder
