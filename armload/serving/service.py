"""A model that a board serves, as programs of this machine reach it, and its trace."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel

from armload.analysis.energy import PowerLine
from armload.analysis.load.records import ClockOffset
from armload.analysis.run import Run
from armload.boards.host import Forward, Host
from armload.core.errors import DataError, RunError
from armload.core.json_lines import is_whole
from armload.core.progress import Progress, Silent
from armload.core.shell import call
from armload.core.values import Count, parse_json
from armload.core.workspace import runs_folder
from armload.deploy.follow import stop
from armload.deploy.heartbeat import ServiceState, note_port
from armload.deploy.layout import TRACE_FILE
from armload.engines.job import Job
from armload.engines.server import LOOPBACK, Serving
from armload.engines.service_plan import ServingPlan
from armload.runs.api_keys import keep_key
from armload.runs.fetch import fetch_once, mark_fetched
from armload.runs.pipeline import ActiveRun
from armload.runs.power import idle_power, power_recorded
from armload.serving.dialects.dialect import Dialect
from armload.serving.listing import service_job
from armload.serving.monitor import Heartbeat, Monitor
from armload.serving.target import LoadTarget

_LISTENS = re.compile(rf"listening on http://{re.escape(LOOPBACK)}:(\d+)")
_SILENT = Silent()
_LOOK_EVERY_S = 0.5

_TRACE_SILENCE_S = 120.0


class Service:
    """A model that is being served.

    Attributes:
        run: the id of the service's run.
        board, model: their names.
        plan: how it is served.
        api_key: what a request has to show, as ``Authorization: Bearer KEY``.
        key_file: where this machine keeps it.
        was_running: it was found, not started.
        is_detached: it goes on without a heartbeat.
        port: of the board's loopback.
    """

    def __init__(self, it: ActiveRun, engine: Serving, api_key: str, *, boot_id: str) -> None:
        self._it = it
        self._connection = it.connection
        self._boot_id = boot_id
        self._heartbeat = Heartbeat(it.connection.beside, it.folder)
        self._monitor = Monitor(it.connection.beside, it.folder)
        self._forward: Forward | None = None
        self._ended: tuple[Run, Path] | None = None
        self.run = it.folder.name
        self.board = it.job.board.name if it.job else it.connection.board.name
        self.model = engine.model.name
        self.plan: ServingPlan = engine.plan
        self.api_key = api_key
        self.key_file = keep_key(self.run, api_key)
        self.was_running = it.was_running
        self.is_detached = False
        self.port = 0

    @property
    def url(self) -> str:
        """Where this machine's programs reach it, without ``/v1``."""
        if self._forward is None:
            raise AssertionError("it is not reached yet")
        return f"http://{LOOPBACK}:{self._forward.port}"

    @cached_property
    def job(self) -> Job | None:
        """How it was started, by this command or another; none where the board cannot tell."""
        return self._it.job or service_job(self._connection.host, self._it.folder)

    def check(self, *, is_certain: bool = False) -> None:
        """Return if it goes on, or the connection to its board dropped a moment ago.

        Args:
            is_certain: the board must answer now.

        Raises:
            RunError: it has ended; says why and what to do. What it left is kept as a run.
            ArmloadError: the board has not answered for a while.
        """
        self._check(self._heartbeat.ask(is_certain=is_certain))

    def clock(self) -> ClockOffset:
        """Compare the board's monotonic clock with ours."""
        return self._monitor.clock(self._boot_id)

    def trace(self, from_board_s: float, to_board_s: float) -> Iterator[str]:
        """Yield the trace's first line and the steps of a span of the board's time.

        Raises:
            ConnectError: the connection dropped.
        """
        with closing(self._connection.beside()) as host:
            yield from trace_between(host, self._it.folder, from_board_s, to_board_s)

    def sample(self) -> dict[str, Any]:
        """Return what the board shows now; what is not known is left out.

        The keys are those of ``board-<k>.jsonl``: ``at_s`` is on the board's monotonic clock.

        Raises:
            ConnectError, BoardError: the board does not answer.
        """
        return self._monitor.sample()

    def idle_power(self, progress: Progress) -> tuple[PowerLine, ...]:
        """Return what the board's power meter shows now; nothing without a meter."""
        return idle_power(self._connection, progress)

    def power_recorded(
        self, path: Path, idle: Sequence[PowerLine], progress: Progress
    ) -> AbstractContextManager[None]:
        """Write what the meter shows within the block, after lines of the idle board."""
        return power_recorded(self._connection, path, progress, idle=idle)

    def log(self) -> str:
        """Return the lines that the server has written since the last call."""
        return self._heartbeat.new_log()

    def end(self) -> tuple[Run, Path]:
        """Stop it, and return its run with its folder; what has ended is only fetched.

        Raises:
            ArmloadError: the board does not answer, or its files cannot be had.
        """
        if self._ended is None:
            stop(self._connection.host, self._it.folder, finished=True)
            self._ended = self._fetched(None)
        return self._ended

    @property
    def kept(self) -> Path | None:
        """The folder of its run on this machine, once that is there."""
        return self._ended[1] if self._ended else None

    @contextmanager
    def reached(self, progress: Progress, *, local_port: int, detach: bool) -> Iterator[Service]:
        """Wait until it answers, and let this machine's programs reach it within the block.

        Args:
            local_port: of this machine; 0 for a free one.
            detach: it needs no heartbeat from now on.
        """
        with ExitStack() as stack:
            stack.callback(self._monitor.close)
            stack.callback(self._heartbeat.close)
            self._heartbeat.start()
            self._wait(progress)
            if detach:
                self._heartbeat.ask(detach=True)
            self.is_detached = not self._heartbeat.ask().is_attended
            host = stack.enter_context(closing(self._connection.beside()))
            self._forward = stack.enter_context(host.forwarded(self.port, local_port))
            yield self

    def _wait(self, progress: Progress) -> None:
        log = ""
        size_bytes = self._it.job.model.size_bytes if self._it.job else None
        with progress.step(f"Loading {self.model}", total=size_bytes, unit="B") as step:
            while True:
                now = self._heartbeat.ask()
                self._check(now)
                log += self._heartbeat.new_log()
                if now.port is not None:
                    self.port = now.port
                    return
                if found := _LISTENS.search(log):
                    self.port = int(found[1])
                    note_port(self._connection.host, self._it.folder, self.port)
                    return
                step.update(min(now.resident_bytes, size_bytes or now.resident_bytes))
                time.sleep(_LOOK_EVERY_S)

    def _check(self, now: ServiceState) -> None:
        if now.condition == "running":
            return
        if self._ended is None:
            self._ended = self._fetched(now)
        run, _ = self._ended
        raise RunError(
            f"{self.board} no longer serves {self.model}: {run.exit.meaning}.",
            f"{run.exit.remedy} Its messages: armload show {run.id}".strip(),
        )

    def _fetched(self, now: ServiceState | None) -> tuple[Run, Path]:
        cut = now.cut if now else None
        host, board = self._connection.host, self._connection.board
        if self._it.servers is not None:
            self._it.servers.end(runs_folder() / self.run, _SILENT)
        ended = fetch_once(host, board, self._it.folder, _SILENT, job=self._it.job, cut=cut)
        mark_fetched(host, self._it.folder)
        return ended


def target_of_service(service: Service, dialect: Dialect) -> LoadTarget:
    """Describe a service as what is put under load."""
    return LoadTarget(
        url=service.url,
        api_key=service.api_key,
        model=service.model,
        dialect=dialect,
        service=service,
        board=service.board,
        run=service.run,
        settings=service.plan.model_dump(mode="json"),
        job=service.job,
    )


class _StepSpan(BaseModel):
    """What of a step says whether it is wanted; all of it is read with the load."""

    step: Count
    start_ns: Count
    end_ns: Count


def trace_between(
    host: Host, run_folder: PurePosixPath, from_board_s: float, to_board_s: float
) -> Iterator[str]:
    """Yield the trace's first line, and those of steps that touch a span of the board's time.

    Lines are as the board wrote them, with their newline. How the weights are held is said by the
    last such line before the span, and by those within. Steps that the board does not keep any
    more are missing from the beginning, which shows in their numbers.

    Args:
        run_folder: of the service on the board.
        from_board_s, to_board_s: on the board's ``CLOCK_MONOTONIC``.
    """
    from_ns, to_ns = from_board_s * 1e9, to_board_s * 1e9
    header = held = ""
    last_step = -1
    for line in _trace_lines(host, run_folder):
        try:
            content = parse_json(line)
            step = _StepSpan.model_validate(content) if "step" in content else None
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{host.name}: {run_folder / TRACE_FILE} contains a line that no engine writes.",
                "The board's storage may be damaged.",
            ) from error
        if "format" in content:
            if not header:
                header = line
                yield line
        elif "weights" in content:
            held = line
        elif step is not None and step.step > last_step:
            last_step = step.step
            if step.start_ns > to_ns:
                return
            if step.end_ns >= from_ns:
                if held:
                    yield held
                    held = ""
                yield line


def _trace_lines(host: Host, run_folder: PurePosixPath) -> Iterator[str]:
    rest = b""
    command = call("send_trace", run_folder)
    for stream, data in host.stream(command, silence_s=_TRACE_SILENCE_S):
        if stream == "stdout":
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") + "\n" for line in lines if is_whole(line))
