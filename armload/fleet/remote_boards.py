"""Boards behind gateways: orders for them are built here, and their runs come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal
from uuid import uuid4

from armload.analysis.run import Run
from armload.bench.board import BenchBoard
from armload.bench.combination import Combination, combination, programs_of
from armload.boards.board import load_board
from armload.core.errors import ConnectError
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.engines.completion import Completion
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.fleet import gateway
from armload.fleet.gateways import FIRST_OFFER_S, Gateways, GoneError
from armload.fleet.orders import Begun, GatewayTask, order_of
from armload.fleet.remote_tasks import RemoteTasks
from armload.models.model import Model
from armload.runs import store
from armload.runs.fetch import Pulled, judge_fetched
from armload.runs.pipeline import Heard
from armload.runs.placing import Deployed
from armload.runs.request import EngineSource, Request
from armload.runs.selection import RunSelection
from armload.runs.session import built
from armload.runs.swept import SweptRuns


class ThroughGateways:
    """Through the gateways of a scheduler."""

    def __init__(self, gateways: Gateways, progress: Progress) -> None:
        self._gateways = gateways
        self._progress = progress
        self._tasks = RemoteTasks(gateways)

    def begun(self, sweep: str, boards: Sequence[str]) -> Mapping[SweepPoint, str]:
        found: dict[SweepPoint, str] = {}
        for board in boards:
            with suppress(GoneError, ConnectError):  # the board's own task waits for it
                where = self._gateways.of(board, self._progress, within_s=FIRST_OFFER_S)
                reply = self._gateways.call(where.address, gateway.begun_points, board, sweep)
                found |= dict.fromkeys(Begun.model_validate_json(reply).points, board)
        return found

    @contextmanager
    def open(
        self,
        request: Request,
        cells: Sequence[Combination],
        progress: Progress,
        *,
        reference: Run | None,
    ) -> Iterator[BenchBoard]:
        board = RemoteBoard(self._tasks, request, cells, progress, reference)
        board.open()
        yield board

    def pull(self, board: str, progress: Progress) -> Pulled:
        kept = store.run_folders(RunSelection(boards=[board]))
        task = GatewayTask(
            board=board,
            key=f"pull-{uuid4().hex}",
            topic=self._gateways.topic,
            store=store.store_id(),
            work="pull",
            known=frozenset(folder.name for folder in kept),
        )
        outcome = self._tasks.do(task, {}, progress)
        return Pulled(
            runs=tuple(store.load(runs_folder() / run) for run in outcome.runs),
            lost={run: each.error for run, each in outcome.lost.items()},
        )

    def deploy(
        self, request: Request, model: Model, progress: Progress, *, verify: bool
    ) -> Deployed:
        cell = combination(model, Plan(), progress)
        board = RemoteBoard(self._tasks, request, [cell], progress, None)
        return board.deploy(verify=verify)


class RemoteBoard:
    """A board behind a gateway."""

    def __init__(
        self,
        tasks: RemoteTasks,
        request: Request,
        cells: Sequence[Combination],
        progress: Progress,
        reference: Run | None,
    ) -> None:
        self.name = request.board
        binaries = built(request, programs_of(cells), progress)
        self.engines: Sequence[Completion] = [cell.engine(binaries) for cell in cells]
        self._tasks = tasks
        self._progress = progress
        self._reference = reference
        # Whatever is to be compiled has been compiled here.
        there = request.model_copy(update=dict(EngineSource()) | {"new": False})
        target = load_board(request.board).target
        self._order, self._files = order_of(there, target, cells, binaries)
        self._request = request
        self._here = SweptRuns(request.board)
        self._is_first = True

    def open(self) -> None:
        """Have the board made ready.

        Raises:
            ArmloadError: it cannot be.
        """
        self._tasks.do(self._task("open"), self._files, self._progress)

    def deploy(self, *, verify: bool) -> Deployed:
        """Put the files of the one combination there."""
        task = self._task("deploy").model_copy(update={"verify": verify})
        deployed = self._tasks.do(task, self._files, self._progress).deployed
        assert deployed is not None  # noqa: S101 - it did not fail
        return deployed

    def run(
        self,
        place: SweepPoint | None = None,
        *,
        plain: Sequence[Run] = (),
        heard: Heard | None = None,
    ) -> Run:
        del heard
        # An earlier command may have been killed before it noted the run in its journal.
        run = self._here.find(place) if place else ""
        if not run:
            task = self._task("run", self._key(place)).model_copy(update={"place": place})
            self._is_first = False
            run = self._tasks.do(task, self._files, self._progress).run
        return judge_fetched(run, reference=self._reference, plain=plain)

    def _key(self, place: SweepPoint | None) -> str:
        if place is not None:
            return f"{place.sweep}-{place.cell}-{place.round}"
        return f"single-{uuid4().hex if self._request.new else self._order.id}"

    def _task(self, work: Literal["open", "run", "deploy"], key: str = "") -> GatewayTask:
        return GatewayTask(
            board=self.name,
            key=key or f"{work}-{uuid4().hex}",
            topic=self._tasks.gateways.topic,
            store=store.store_id(),
            work=work,
            order=self._order,
            new=self._request.new and self._is_first,
        )
