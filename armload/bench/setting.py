"""How a plan's run is set up on a board beyond the program's own arguments."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.bench.cpu_set import cpu_mask
from armload.bench.job import check_cores
from armload.bench.plan import Plan
from armload.boards.board import Board
from armload.boards.cooling import cool_down
from armload.boards.host import Host
from armload.boards.probe import Probe, probe
from armload.build.helper import PIN, RATES
from armload.core.errors import ArmloadError, BoardError, ConnectError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.governor import check_governor
from armload.deploy.launch import Beforehand
from armload.deploy.layout import Layout
from armload.deploy.own import own_program
from armload.deploy.rates import measured_rates


class Wish(Value):
    """In which state a board is to be for each run.

    Attributes:
        cool_to_celsius: its hottest sensor shows no more when the run begins; none to not wait.
        governor: of the CPU's frequency while it runs; none for what the board has.
    """

    cool_to_celsius: float | None = None
    governor: str | None = None


class Setting(Value):
    """A board that is ready for a run.

    Attributes:
        found: what it is and how it is now, with its rates.
        before_program: words that go before the program's own, the host's launcher among them.
        beforehand: what the run's script does first.
    """

    found: Probe
    before_program: tuple[str, ...]
    beforehand: Beforehand


def set_up(
    host: Host,
    board: Board,
    plan: Plan,
    wish: Wish,
    *,
    found: Probe,
    model: PurePosixPath,
    progress: Progress,
) -> Setting:
    """Make a board ready for a run: measure its rates once per boot, and let it cool.

    Args:
        host: the board.
        board: what its file says.
        plan: what will run.
        wish: in which state the board is to be.
        found: what it said of itself a moment ago.
        model: where the model lies on it.
        progress: where it is shown.

    Raises:
        BoardError: it cannot be had as wished.
        UsageError: the plan asks for cores that it does not have.
        ConnectError: it does not answer.
        BuildError, MissingToolError, TransferError: a program of ours that it needs cannot be had.
    """
    check_cores(plan, board, found)
    if wish.governor is not None:
        check_governor(host, wish.governor)
    rates = measured_rates(host, board, found, progress, file=model)
    before_program = (*_pinning(host, board, plan, found, progress), *host.launcher)
    beforehand = Beforehand(
        cold=plan.cold,
        evict=_evicting(host, board, found, model, progress) if plan.cold else (),
        governor=wish.governor,
    )
    if wish.cool_to_celsius is not None:
        cool_down(host, wish.cool_to_celsius, progress)
    if wish.cool_to_celsius is not None or rates != found.rates:
        # The board is another after minutes of waiting, or a second at full load.
        now = probe(host, board).conditions
        found = found.model_copy(update={"conditions": now, "rates": rates})
    return Setting(found=found, before_program=before_program, beforehand=beforehand)


def _pinning(
    host: Host, board: Board, plan: Plan, found: Probe, progress: Progress
) -> tuple[str, ...]:
    if plan.cpus is None:
        return ()
    mask = cpu_mask(plan.cpus)
    if "taskset" in found.tools:
        return ("taskset", mask)
    program = (
        None
        if host.launcher
        else own_program(host, Layout(workdir=board.workdir), PIN, found, progress)
    )
    if program is None:
        raise BoardError(
            f"{board.name}: it has no taskset, which --cpus needs there.",
            "Leave --cpus out, or install taskset there.",
        )
    return (*program, mask)


def _evicting(
    host: Host, board: Board, found: Probe, model: PurePosixPath, progress: Progress
) -> tuple[str, ...]:
    try:
        program = own_program(host, Layout(workdir=board.workdir), RATES, found, progress)
    except ConnectError:
        raise
    except ArmloadError as error:
        progress.say(f"{board.name}: the model alone cannot be evicted there: {error.message}")
        return ()
    return () if program is None else (*program, "evict", str(model))
