"""What a forecast for a group takes from each member: one that answers, and one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from armload.analysis.board_resources import BoardResources, Rate
from armload.analysis.compute import Compute
from armload.analysis.prediction_notes import note
from armload.analysis.shares import MemberResources
from armload.boards.board import Board
from armload.build.binary import Binary
from armload.core.errors import BoardError
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM
from armload.engines.llama_cpp import NO_REPACK, if_offered
from armload.engines.plan import Plan
from armload.engines.prediction import Expected, PredictionNote
from armload.engines.weights import BoardMemory
from armload.models.distributed_llama import DistributedModel
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs.node_times import NodePart, known_node, timed_or_none
from armload.runs.operations import found_or_note, known_compute, measured_compute
from armload.runs.resources import (
    ASSUMED_AVAILABLE,
    declared_resources,
    facts_of,
    resources_of_board,
    roofline,
)
from armload.runs.session import Session


class ForecastMember(Protocol):
    """What a forecast asks of one member of a group."""

    @property
    def resources(self) -> MemberResources:
        """Its memory and its rates."""

    @property
    def memory(self) -> BoardMemory:
        """Memory, of which ``resources.free_bytes`` is the part that a program may use."""

    @property
    def by_itself(self) -> BoardResources:
        """What it has for a model of its own."""

    def compute(
        self, model: Model, plan: Plan, *, is_server: bool
    ) -> tuple[Compute | None, Sequence[PredictionNote]]:
        """Return what it would take to compute all of the model, and what to say of that.

        Args:
            is_server: it computes with the weights as they are in the file.
        """

    def node_s(
        self, shared: DistributedModel, nodes: int, plan: Plan, depth: float
    ) -> Expected | None:
        """Return what distributed-llama computes there for a token; none where it was not timed.

        Args:
            nodes: that share the model.
            depth: tokens that the KV cache holds.
        """


@dataclass(frozen=True, kw_only=True)
class ReachedMember:
    """A member that answers.

    Attributes:
        where: the caller has it to itself where something is timed.
        is_first: it runs the program, with the plan's own threads and cores.
        header: of the model, whose operations are timed there; none uses what was timed there
            before, or what the member's file says.
        node_program: of distributed-llama; none where its nodes are not asked for.
    """

    where: Session
    resources: MemberResources
    is_first: bool
    progress: Progress
    header: WholeHeader | None = None
    node_program: Binary | None = None

    @property
    def memory(self) -> BoardMemory:
        return BoardMemory.of(self.where.found.conditions)

    @property
    def by_itself(self) -> BoardResources:
        found = self.where.found
        given = resources_of_board(self.where.connection.board, found.conditions, found.rates)
        rate = Rate.known(self.resources.memory_bytes_per_s, None)
        return given.model_copy(update={"memory_rate": rate})

    def compute(
        self, model: Model, plan: Plan, *, is_server: bool
    ) -> tuple[Compute | None, Sequence[PredictionNote]]:
        where = self.where
        board, found = where.connection.board, where.found
        if is_server and PROGRAM in where.binaries:
            words = if_offered(where.binaries[PROGRAM].path, NO_REPACK)
            plan = plan.model_copy(update={"extra": (*plan.extra, *words)})
        if not self.is_first:
            threads = found.conditions.threads_as_asked(plan.threads)
            plan = plan.model_copy(update={"cpus": None, "threads": threads})
        notes: tuple[PredictionNote, ...] = ()
        if self.header is not None:
            header = self.header
            timed = found_or_note(
                lambda: measured_compute(where, model, header, plan, self.progress), where
            )
            if not isinstance(timed, PredictionNote):
                return timed[0], ()
            notes = (timed,)
        known = known_compute(where, model, plan)
        if known is not None:
            return known[0], notes
        return roofline(facts_of(board, found), model, self.by_itself, plan), notes

    def node_s(
        self, shared: DistributedModel, nodes: int, plan: Plan, depth: float
    ) -> Expected | None:
        if self.node_program is None:
            return None
        part = NodePart(model=shared, nodes=nodes, plan=plan, depth=depth, is_first=self.is_first)
        if self.header is None:
            return known_node(self.where, self.node_program, part)
        return timed_or_none(self.where, self.node_program, part, self.progress)


def reached_members(
    where: Session,
    resources: Sequence[MemberResources],
    progress: Progress,
    header: WholeHeader | None = None,
    node_program: Binary | None = None,
) -> list[ReachedMember]:
    """Return the members of a group that answers.

    Args:
        resources: of each.
        header, node_program: as for ``ReachedMember``.
    """
    both = zip(where.members, resources, strict=True)
    return [
        ReachedMember(
            where=each,
            resources=given,
            is_first=each is where,
            progress=progress,
            header=header,
            node_program=node_program,
        )
        for each, given in both
    ]


@dataclass(frozen=True, kw_only=True)
class DeclaredMember:
    """A member that does not answer: what its file says."""

    board: Board

    @property
    def memory(self) -> BoardMemory:
        memory = declared_resources(self.board.facts).memory
        if memory is None:
            raise BoardError(
                f"boards/{self.board.name}.yaml does not say how much memory the board has, so a "
                "model cannot be divided.",
                "Set facts.memory there, or connect the board.",
            )
        return memory

    @property
    def resources(self) -> MemberResources:
        return MemberResources(
            board=self.board.name,
            free_bytes=self.memory.free_bytes,
            memory_bytes_per_s=self.board.facts.memory_bytes_per_s,
            storage=declared_resources(self.board.facts).storage,
        )

    @property
    def by_itself(self) -> BoardResources:
        return declared_resources(self.board.facts)

    def compute(
        self, model: Model, plan: Plan, *, is_server: bool
    ) -> tuple[Compute | None, Sequence[PredictionNote]]:
        del is_server  # rearranged weights are not known of a board that does not answer
        facts = self.board.facts
        assumed = note("memory assumed", reason=f"{ASSUMED_AVAILABLE:.0%}")
        return roofline(facts, model, declared_resources(facts), plan), (assumed,)

    def node_s(
        self, shared: DistributedModel, nodes: int, plan: Plan, depth: float
    ) -> Expected | None:
        del shared, nodes, plan, depth
        return None
