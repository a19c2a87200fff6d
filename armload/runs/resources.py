"""What a board gives, and what computing takes there as far as its file tells."""

from __future__ import annotations

import math

from armload.analysis.board_resources import BoardResources, Rate
from armload.analysis.compute import Compute
from armload.analysis.roofline import from_facts
from armload.analysis.shares import MemberResources
from armload.boards.board import Board, VirtualReach
from armload.boards.conditions import Conditions
from armload.boards.probe import Probe, clusters_of
from armload.boards.rates import Rates
from armload.boards.specs import CpuCluster, DeclaredSpecs
from armload.engines.completion import memory_need
from armload.engines.plan import Plan
from armload.engines.weights import BoardMemory
from armload.models.model import Model
from armload.runs.operations import mid_depth
from armload.runs.session import ReachedBoard

ASSUMED_AVAILABLE = 0.8
"""Share of the installed memory, where the board cannot be asked."""


def resources_of_board(
    board: Board, now: Conditions, rates: Rates, before: Rates | None = None
) -> BoardResources:
    """Return what a board gives: as measured in this boot, before, or as declared.

    Args:
        before: measured when the model's operations were timed there.
    """
    storage, memory = rates.storage_read_bytes_per_s, rates.memory_bytes_per_s
    if before is not None:
        storage = storage or before.storage_read_bytes_per_s
        memory = memory or before.memory_bytes_per_s
    return BoardResources(
        memory=BoardMemory.of(now),
        storage=Rate.known(storage, board.facts.storage_read_bytes_per_s),
        memory_rate=Rate.known(memory, board.facts.memory_bytes_per_s),
    )


def declared_resources(facts: DeclaredSpecs) -> BoardResources:
    """Return what a board gives that does not answer, or that nobody has."""
    memory = facts.memory and BoardMemory(
        total_bytes=facts.memory, available_bytes=round(ASSUMED_AVAILABLE * facts.memory)
    )
    return BoardResources(
        memory=memory or None,
        storage=Rate.known(None, facts.storage_read_bytes_per_s),
        memory_rate=Rate.known(None, facts.memory_bytes_per_s),
    )


def member_resources(member: ReachedBoard, rates: Rates) -> MemberResources:
    """Return what a member of a group gives; a rate that others disturbed counts for nothing."""
    board, now = member.main_board, member.found.conditions
    measured = rates.memory_bytes_per_s if rates.memory_is_settled else None
    return MemberResources(
        board=board.name,
        free_bytes=BoardMemory.of(now).free_bytes,
        memory_bytes_per_s=measured or board.facts.memory_bytes_per_s,
        storage=resources_of_board(board, now, rates).storage,
    )


def facts_of(board: Board, found: Probe) -> DeclaredSpecs:
    """Return a board's facts; its cores as it shows them where they are not declared."""
    facts = board.facts
    if found.is_limited and facts.clusters:
        facts = facts.model_copy(update={"clusters": _usual_clusters(facts, found)})
    # Emulated cores are as fast as this machine lets them be.
    if isinstance(board.reach, VirtualReach):
        return facts.model_copy(update={"clusters": ()})
    if facts.clusters or found.machine != "aarch64" or board.launcher:
        return facts
    facts = facts.model_copy(update={"clusters": clusters_of(found)})
    if found.is_limited:
        facts = facts.model_copy(update={"clusters": _usual_clusters(facts, found)})
    return facts


def _usual_clusters(facts: DeclaredSpecs, found: Probe) -> tuple[CpuCluster, ...]:
    """Return the cores that a program may use; a quota of CPU time leaves the fast ones first."""
    declared = {each.name.lower(): each for each in (*clusters_of(found), *facts.clusters)}
    left, clusters = found.conditions.usual_threads, []
    for each in sorted(found.usual_clusters, key=lambda each: each.is_little):
        cores = min(each.cores, left)
        left -= cores
        if cores:
            known = declared[each.name.lower()]
            clusters.append(known.model_copy(update={"cores": cores}))
    return tuple(clusters)


def roofline(
    facts: DeclaredSpecs, model: Model, resources: BoardResources, plan: Plan
) -> Compute | None:
    """Estimate what computing takes from a board's facts; none where they do not tell."""
    if resources.memory_rate is not None:
        facts = facts.model_copy(update={"memory_bytes_per_s": resources.memory_rate.bytes_per_s})
    cache_bytes = memory_need(plan, model).kv_cache.size_bytes(math.ceil(mid_depth(model, plan)), 1)
    return from_facts(model, facts, threads=plan.threads, cache_bytes=cache_bytes)
