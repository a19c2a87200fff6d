"""Predicting a run on a group, and choosing how its model is split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from armload.analysis.compute import Compute
from armload.analysis.group_forecast import group_times, load_time
from armload.analysis.shares import MemberGives, layer_sizes, spread
from armload.analysis.wording.prediction_notes import note
from armload.analysis.wording.splits import chosen_between
from armload.boards.board import Board
from armload.boards.group import Group
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM, memory_need
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import NO_REPACK, if_offered
from armload.engines.plan import Plan
from armload.engines.prediction import MemoryParts, Prediction, PredictionNote
from armload.engines.spread import ChosenSplit, LinkRates, Split, Spread
from armload.engines.weights import BoardMemory
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs import store
from armload.runs.giving import (
    ASSUMED_AVAILABLE,
    declared_by,
    facts_of,
    given_by,
    prompt_tokens,
    rate_of,
    roofline,
)
from armload.runs.operations import compute_or_note, known_compute, mid_depth
from armload.runs.session import Session

_MOST_READ = 30


class ForecastMember(Protocol):
    """What a forecast asks of one member of a group."""

    @property
    def gives(self) -> MemberGives:
        """Its memory and its rates."""

    @property
    def memory(self) -> BoardMemory:
        """The memory of which ``gives`` is what a program may take."""

    def compute(
        self, model: Model, plan: Plan, *, is_server: bool
    ) -> tuple[Compute | None, Sequence[PredictionNote]]:
        """Return what it would take to compute all of the model, and what to say of that.

        Args:
            is_server: it computes with the weights as they are in the file.

        Raises:
            ConnectError, BusyError: it does not answer any more, or is in use.
        """


@dataclass(frozen=True, kw_only=True)
class ReachedMember:
    """A member that answers.

    Attributes:
        where: the caller has it to itself where something is timed.
        is_first: it runs the program, with the plan's own threads and cores.
        header: of the model, whose operations are timed there; none uses what was timed there
            before, or what the member's file says.
    """

    where: Session
    gives: MemberGives
    is_first: bool
    progress: Progress
    header: WholeHeader | None = None

    @property
    def memory(self) -> BoardMemory:
        return BoardMemory.of(self.where.found.conditions)

    def compute(
        self, model: Model, plan: Plan, *, is_server: bool
    ) -> tuple[Compute | None, Sequence[PredictionNote]]:
        where = self.where
        board, found = where.connection.board, where.found
        if is_server and PROGRAM in where.binaries:
            words = if_offered(where.binaries[PROGRAM].path, NO_REPACK)
            plan = plan.model_copy(update={"extra": (*plan.extra, *words)})
        if not self.is_first:
            threads = plan.threads if (plan.threads or 0) <= found.cores else None
            plan = plan.model_copy(update={"cpus": None, "threads": threads})
        notes: tuple[PredictionNote, ...] = ()
        if self.header is not None:
            timed = compute_or_note(where, model, self.header, plan, self.progress)
            if not isinstance(timed, PredictionNote):
                return timed[0], ()
            notes = (timed,)
        known = known_compute(where, model, plan)
        if known is not None:
            return known[0], notes
        gives = given_by(board, found.conditions, found.rates)
        rate = rate_of(self.gives.memory_bytes_per_s, None)
        gives = gives.model_copy(update={"memory_rate": rate})
        return roofline(facts_of(board, found), model, gives, plan), notes


def reached_members(
    where: Session,
    gives: Sequence[MemberGives],
    progress: Progress,
    header: WholeHeader | None = None,
) -> list[ReachedMember]:
    """Return the members of a group that answers.

    Args:
        gives: of each.
        header: as for ``ReachedMember``.
    """
    both = zip(where.members, gives, strict=True)
    return [
        ReachedMember(
            where=each, gives=given, is_first=each is where, progress=progress, header=header
        )
        for each, given in both
    ]


@dataclass(frozen=True, kw_only=True)
class DeclaredMember:
    """A member that does not answer: what its file says."""

    board: Board

    @property
    def memory(self) -> BoardMemory:
        memory = declared_by(self.board.facts).memory
        if memory is None:
            raise BoardError(
                f"boards/{self.board.name}.yaml does not say how much memory the board has, so a "
                "model cannot be divided.",
                "Set facts.memory there, or connect the board.",
            )
        return memory

    @property
    def gives(self) -> MemberGives:
        return MemberGives(
            board=self.board.name,
            free_bytes=self.memory.free_bytes,
            memory_bytes_per_s=self.board.facts.memory_bytes_per_s,
            storage=declared_by(self.board.facts).storage,
        )

    def compute(
        self, model: Model, plan: Plan, *, is_server: bool
    ) -> tuple[Compute | None, Sequence[PredictionNote]]:
        del is_server  # rearranged weights are not known of a board that does not answer
        facts = self.board.facts
        assumed = note("memory assumed", reason=f"{ASSUMED_AVAILABLE:.0%}")
        return roofline(facts, model, declared_by(facts), plan), (assumed,)


class GroupForecaster:
    """Predicts runs of one model on a group.

    Args:
        group: by whose name its runs are kept, and whether its members reach each other.
        model: with its header on this machine.
        plan: of one continuation.
        members: the first one runs the program.
        links: what their connections give; none where they were not measured.
    """

    def __init__(
        self,
        group: Group,
        model: Model,
        plan: Plan,
        members: Sequence[ForecastMember],
        links: Sequence[LinkRates],
    ) -> None:
        self._group = group
        self._model = model
        self._plan = plan
        self._members = members
        self._gives = [each.gives for each in members]
        self._links = tuple(links)
        self._sizes = layer_sizes(model.path)
        self._computes: dict[tuple[int, bool], Compute | None] = {}
        self._notes: dict[str, PredictionNote] = {}

    def divided(self, split: Split, need: MemoryNeed | None = None) -> Spread:
        """Divide the model.

        Raises:
            UsageError, BoardError: as for ``spread``.
        """
        found = spread(
            self._gives, self._sizes, need or memory_need(self._plan, self._model), split
        )
        is_direct = self._group.listen is not None
        return found.model_copy(update={"is_direct": is_direct, "links": self._links})

    def predict(self, spread: Spread | None) -> Prediction:
        """Predict a run.

        Args:
            spread: over the members; none where the model does not fit.

        Raises:
            ConnectError, BusyError: a member does not answer any more, or is in use.
        """
        model, plan = self._model, self._plan
        need = memory_need(plan, model)
        memory = [each.memory for each in self._members]
        taken_bytes = sum(share.memory_bytes for share in spread.shares) if spread else 0
        beside_bytes = taken_bytes - need.weights_bytes - need.kv_bytes
        tokens = prompt_tokens(plan)
        base = Prediction(
            verdict="fits" if spread else "cannot run",
            context_tokens=need.context_tokens,
            prompt_tokens=tokens,
            memory=MemoryParts(
                weights_bytes=need.weights_bytes,
                kv_bytes=need.kv_bytes,
                program_bytes=beside_bytes if spread else len(memory) * need.program_bytes,
                window_bytes=0,
                reserve_bytes=sum(each.reserve_bytes for each in memory),
                available_bytes=sum(each.available_bytes for each in memory),
            ),
        )
        computes = self._each_compute(spread.split) if spread else None
        if spread is None or computes is None:
            return base.model_copy(update={"notes": tuple(self._notes.values())})
        times = group_times(
            spread,
            self._sizes,
            computes,
            prompt_tokens=tokens,
            depth=mid_depth(model, plan),
            micro_batch_tokens=plan.micro_batch_tokens,
        )
        is_kept = _was_kept(self._group.name, model, spread)
        load = load_time(
            *(
                spread,
                self._sizes,
                computes[0],
                [each.storage for each in self._gives],
                need.weights_bytes,
            ),
            is_kept=is_kept,
        )
        is_timed = all(each.source == "operations" for each in computes)
        has_links = len(spread.links) == len(spread.shares) - 1
        return base.model_copy(
            update={
                "load_s": load,
                "ttft_s": load + times.prompt_s,
                "token_s": times.token_s,
                "compute": "operations" if is_timed else "roofline",
                "group": times.forecast,
                "notes": (
                    *self._notes.values(),
                    *map(note, dict.fromkeys(kind for each in computes for kind in each.notes)),
                    *(() if is_kept else (note("group"),)),
                    *(() if has_links else (note("group without links"),)),
                ),
            }
        )

    def faster(self, need: MemoryNeed, tensor_lacks: str) -> Spread:
        """Divide the model in the way that is expected to be faster; it is noted which and why.

        Args:
            tensor_lacks: why parts of layers cannot be had; empty where they can.

        Raises:
            UsageError, BoardError: it cannot be divided into whole layers either.
            ConnectError, BusyError: as for ``predict``.
        """
        found: dict[Split, Spread] = {}
        times_s: dict[Split, float] = {}
        lacking: dict[Split, str] = {"tensor": tensor_lacks} if tensor_lacks else {}
        refused: UsageError | BoardError | None = None
        for split in _SPLITS:
            if split in lacking:
                continue
            try:
                found[split] = self.divided(split, need)
            except (UsageError, BoardError) as error:
                lacking[split] = error.message
                refused = refused or error
                continue
            token_s = self.predict(found[split]).token_s
            if token_s is not None:
                times_s[split] = token_s.value
        if not found:
            raise refused or AssertionError("the way of layers is always tried")
        best = min(found, key=lambda split: times_s.get(split, float("inf")))
        chosen = ChosenSplit(
            layer_s=times_s.get("layer"),
            tensor_s=times_s.get("tensor"),
            reason=chosen_between(best, times_s, lacking),
        )
        return found[best].model_copy(update={"chosen": chosen})

    def _each_compute(self, split: Split) -> list[Compute] | None:
        found = [
            self._compute(number, is_server=bool(number) or split == "tensor")
            for number in range(len(self._members))
        ]
        return None if None in found else [each for each in found if each is not None]

    def _compute(self, number: int, *, is_server: bool) -> Compute | None:
        key = number, is_server
        if key not in self._computes:
            found, notes = self._members[number].compute(
                self._model, self._plan, is_server=is_server
            )
            self._computes[key] = found
            self._notes |= {each.sentence: each for each in notes}
        return self._computes[key]


_SPLITS: tuple[Split, ...] = ("layer", "tensor")


def _was_kept(group: str, model: Model, spread: Spread) -> bool:
    """Tell whether an earlier run has given the members the same parts of the same model."""
    layers = [share.layers for share in spread.shares]
    return any(
        run.spread is not None
        and run.spread.split == spread.split
        and [share.layers for share in run.spread.shares] == layers
        and (run.model.name, run.model.size_bytes) == (model.name, model.size_bytes)
        and run.steps
        for run in store.latest_on(group, most=_MOST_READ)
    )
