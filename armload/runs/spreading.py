"""How an engine's model is divided between the members of a group."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from armload.analysis.shares import MemberResources, layer_sizes, spread
from armload.boards.board import is_group
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.deploy.rates import measured_rates
from armload.engines.engine import Engine, MemberRoom
from armload.engines.plan import Plan
from armload.engines.spread import Spread
from armload.engines.weights import BoardMemory
from armload.models.whole_header import whole_header
from armload.runs.forecast_members import reached_members
from armload.runs.group_forecast import GroupForecaster
from armload.runs.links import measured_links
from armload.runs.resources import member_resources
from armload.runs.session import Session


def check_split(boards: Iterable[str], plans: Iterable[Plan]) -> None:
    """Refuse to split a model on a single board, and what a group cannot do."""
    plans = tuple(plans)
    boards = tuple(boards)
    depth = next(filter(None, (plan.depth_tokens for plan in plans)), 0)
    group = next(filter(is_group, boards), None)
    if depth and group is not None:
        raise UsageError(
            f"--depth {depth}: {group} is a group, whose context is not saved.",
            "Omit --depth, or name one of its members.",
        )
    device = next(filter(None, (plan.device for plan in plans)), None)
    if device is not None and group is not None:
        raise UsageError(
            f"--device {device}: {group} is a group, whose members compute on their CPUs.",
            "Omit --device, or name one of its members.",
        )
    split = next(filter(None, (plan.split for plan in plans)), None)
    single = next(itertools.filterfalse(is_group, boards), None)
    if split is not None and single is not None:
        raise UsageError(
            f"--split {split}: {single} is a single board.",
            "Omit --split, or name a group of boards.",
        )


def spread_over(session: Session, engine: Engine, progress: Progress) -> Spread | None:
    """Divide an engine's model between a group's members; return none for a board by itself.

    The caller has the boards to itself.

    Raises:
        UsageError, BoardError: it cannot be divided between them, or fits on none of them.
    """
    divided = engine.divided([_room(each) for each in session.members])
    if session.group is None:
        return None
    is_direct = session.group.listen is not None
    if divided is not None:
        links = measured_links(session, engine.settings.threads, progress)
        return divided.model_copy(update={"is_direct": is_direct, "links": links})
    wanted, need = engine.spreadable, engine.memory
    if wanted is None or need is None:
        raise UsageError(
            f"{session.group.name} is a group of boards, on which {engine.name} cannot run.",
            "Name one of its members.",
        )
    resources = measured_resources(session, progress)
    links = measured_links(session, engine.settings.threads, progress)
    if wanted.split == "auto":
        if wanted.plan is None:
            raise AssertionError("only what has a plan can be asked for the faster split")
        members = reached_members(session, resources, progress, whole_header(wanted.model.path))
        forecaster = GroupForecaster(session.group, wanted.model, wanted.plan, members, links)
        found = forecaster.faster(need, wanted.tensor_lacks)
        if found.chosen is not None:
            progress.say(f"{session.group.name}: {found.chosen.reason}")
        return found
    found = spread(resources, layer_sizes(wanted.model.path), need, wanted.split or "layer")
    return found.model_copy(update={"is_direct": is_direct, "links": links})


def _room(member: Session) -> MemberRoom:
    available_bytes = BoardMemory.of(member.found.conditions).available_bytes
    return MemberRoom(board=member.connection.board.name, available_bytes=available_bytes)


def measured_resources(session: Session, progress: Progress) -> list[MemberResources]:
    """Return what the members of a group give, the first of them first; rates are measured."""
    return [
        member_resources(
            each,
            measured_rates(each.connection.host, each.connection.board, each.found, progress),
        )
        for each in session.members
    ]
