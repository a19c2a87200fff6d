"""Predicting a run on a group, and choosing how its model is split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.analysis.compute import Compute
from armload.analysis.distributed_forecast import group_token_s, shared_token_s
from armload.analysis.group_forecast import chosen_between, group_times, load_time
from armload.analysis.prediction_notes import note
from armload.analysis.run import Run
from armload.analysis.shares import layer_sizes, spread
from armload.boards.group import Group
from armload.core.errors import BoardError, UsageError
from armload.core.values import format_bytes
from armload.engines.completion import memory_need
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import WHOLE_LAYERS_ONLY, context_tokens, likely_prompt_tokens
from armload.engines.plan import Plan
from armload.engines.prediction import (
    Division,
    Expected,
    MemoryParts,
    Prediction,
    PredictionNote,
)
from armload.engines.spread import ChosenSplit, LinkRates, Split, Spread
from armload.models.distributed_llama import BATCH_TOKENS, DistributedModel
from armload.models.model import Model
from armload.runs.cached_answers import cached_path, write_cached
from armload.runs.forecast_members import ForecastMember
from armload.runs.operations import mid_depth


class GroupForecaster:
    """Predicts runs of one model on a group.

    Args:
        group: whose name its runs have, and whether its members reach each other.
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
        self._resources = [each.resources for each in members]
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
            self._resources, self._sizes, need or memory_need(self._plan, self._model), split
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
        tokens = likely_prompt_tokens(plan)
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
        known = (model.name, model.size_bytes)
        is_kept = _parts_path(self._group.name, known, spread).is_file()
        load = load_time(
            *(
                spread,
                self._sizes,
                computes[0],
                [each.storage for each in self._resources],
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

    def predict_division(self) -> Prediction:
        """Predict a run with whole layers, or say why the model cannot be divided so."""
        try:
            found = self.divided("layer")
        except (BoardError, UsageError) as error:
            division = Division(refused=f"{error.message} {error.remedy}")
            return self.predict(None).model_copy(update={"division": division})
        if self._model.architecture in WHOLE_LAYERS_ONLY:
            tensor_s = None
        else:
            try:
                tensor_s = self.predict(self.divided("tensor")).token_s
            except (BoardError, UsageError):
                tensor_s = None
        division = Division(shares=found.shares, tensor_s=tensor_s)
        return self.predict(found).model_copy(update={"division": division})

    def distributed_s(self, shared: DistributedModel) -> Expected | None:
        """Return a token's time with distributed-llama; none where computing is unknown.

        Raises:
            UsageError: so many boards cannot share the model.
            BoardError: one has too little memory.
        """
        shared.check_nodes(len(self._members))
        context = memory_need(self._plan, self._model).context_tokens
        batch_tokens = self._plan.micro_batch_tokens or BATCH_TOKENS
        needs = shared.memory(len(self._members), context, batch_tokens)
        # The board with most memory becomes the root.
        most = sorted(self._resources, key=lambda each: -each.free_bytes)
        for need, each in zip(needs, most, strict=True):
            if need.total_bytes > each.free_bytes:
                raise BoardError(
                    f"{each.board}: its part takes {format_bytes(need.total_bytes)} of memory, and "
                    f"{format_bytes(each.free_bytes)} are free."
                )
        depth = mid_depth(self._model, self._plan)
        if timed := self.nodes_s(shared):
            return timed
        computes = self._each_compute("tensor")
        if computes is None:
            return None
        alone = [each.token_s for each in computes]
        return group_token_s(shared, alone, self._links, depth=depth)

    def predict_nodes(self, shared: DistributedModel) -> Prediction | None:
        """Predict a run by times of the nodes' own kernels; none where one was not timed."""
        token_s = self.nodes_s(shared)
        if token_s is None:
            return None
        return Prediction(
            verdict="fits",
            context_tokens=context_tokens(self._plan, self._model),
            prompt_tokens=likely_prompt_tokens(self._plan),
            token_s=token_s,
            compute="operations",
        )

    def nodes_s(self, shared: DistributedModel) -> Expected | None:
        """Return the same from times of the nodes' own kernels; none where one was not timed."""
        nodes, depth = len(self._members), mid_depth(self._model, self._plan)
        parts: list[Expected] = []
        for each in self._members:
            part = each.node_s(shared, nodes, self._plan, depth)
            if part is None:
                return None
            parts.append(part)
        return shared_token_s(shared, parts, self._links)

    def faster(self, need: MemoryNeed, tensor_lacks: str) -> Spread:
        """Divide the model in the way that is expected to be faster; it is noted which and why.

        Args:
            tensor_lacks: why parts of layers cannot be had; empty where they can.
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


def note_parts(run: Run) -> None:
    """Note that a run has given its group's members their parts of the model, which they keep."""
    if run.spread is not None and run.steps:
        model = (run.model.name, run.model.size_bytes)
        write_cached(_parts_path(run.board.name, model, run.spread), run.spread)


def _parts_path(group: str, model: tuple[str, int | None], spread: Spread) -> Path:
    parts = [(share.board, share.layers) for share in spread.shares]
    return cached_path("operations/parts", [group, *model, spread.split, parts])
