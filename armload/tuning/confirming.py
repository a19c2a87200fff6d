"""The search's leader beside the defaults, in alternating runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from armload.analysis.statistics import FEWEST_RUNS, ratio_of_runs
from armload.core.errors import DataError, RunError
from armload.core.mistakes import explain_mistake
from armload.core.results import write_lines
from armload.core.values import Value
from armload.engines.job import Place
from armload.tuning.record import Confirmation
from armload.tuning.space import Setting
from armload.tuning.trial import Outcome

CONFIRMATION_FILE = "confirmation.jsonl"

Side = Literal["defaults", "leader"]


class Compared(Value):
    """A line of the confirmation's journal: one run of a side."""

    setting: Setting
    side: Side
    cost: float
    disturbance: str = ""
    evidence: tuple[str, ...]


class UnconfirmedError(RunError):
    """The leader did not run as it did in the search.

    Attributes:
        outcome: what became of it.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"The best setting failed when it was run again: {outcome.reason}")
        self.outcome = outcome


def confirm(
    measure: Callable[[Setting, Place], Outcome],
    leader: Setting,
    defaults: Setting,
    folder: Path,
    tuning_id: str,
    said: Callable[[Compared], None],
) -> Confirmation:
    """Run both sides in turn, each as often as an interval takes, and compare them.

    Runs that an interrupted command has made are not made again.

    Args:
        measure: a setting once, on the highest rung.
        folder: of the search.
        said: is given each run.

    Raises:
        UnconfirmedError: a run of the leader failed, or broke a constraint.
        RunError: one of the defaults did.
        ConnectError, BusyError: the board does not answer any more, or is in use.
    """
    path = folder / CONFIRMATION_FILE
    done = [
        each for each in runs_compared(folder) if each.side == "defaults" or each.setting == leader
    ]
    order: list[Side] = []
    for number in range(FEWEST_RUNS):
        # What drifts in one direction meets both sides alike: A B, B A, A B, ...
        order += ("defaults", "leader") if number % 2 == 0 else ("leader", "defaults")
    for number, side in enumerate(order):
        if sum(each.side == side for each in done) >= order[: number + 1].count(side):
            continue
        setting = leader if side == "leader" else defaults
        place = Place(sweep=tuning_id, cell=int(side == "leader"), round=number)
        outcome = measure(setting, place)
        if outcome.status != "measured" or outcome.cost is None:
            if side == "leader":
                raise UnconfirmedError(outcome)
            raise RunError(
                f"The defaults failed when they were run again: {outcome.reason}",
                "Repeat the command to run the comparison again.",
            )
        one = Compared(
            setting=setting,
            side=side,
            cost=outcome.cost,
            disturbance=outcome.disturbance,
            evidence=outcome.evidence,
        )
        done.append(one)
        write_lines(path, done)
        said(one)
    costs = {side: [each.cost for each in done if each.side == side] for side in set(order)}
    runs = {
        side: tuple(run for each in done if each.side == side for run in each.evidence)
        for side in set(order)
    }
    speed = ratio_of_runs(costs["leader"], costs["defaults"])
    return Confirmation(
        leader=leader,
        defaults_runs=runs["defaults"],
        leader_runs=runs["leader"],
        speed=speed,
        is_faster=speed.low > 1,
        disturbances=tuple(each.disturbance for each in done if each.disturbance),
    )


def runs_compared(folder: Path) -> list[Compared]:
    """Return the runs of a search's comparison so far; none where there was no comparison.

    Raises:
        DataError: the file was changed.
    """
    path = folder / CONFIRMATION_FILE
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
        return [Compared.model_validate(json.loads(line)) for line in lines]
    except ValueError as error:
        words = explain_mistake(error, Compared)
        raise DataError(
            f"{path}: this is not a valid record of a comparison: {words}.",
            "The file was modified. Delete it to run the comparison again.",
        ) from error
