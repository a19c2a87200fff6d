"""What ``fit`` predicts of a setting before it is tried, so that hopeless ones are not run."""

from __future__ import annotations

from collections.abc import Callable

from armload.analysis.fitted import refusal
from armload.boards.conditions import within_group
from armload.core.cpu_sets import cpu_numbers
from armload.core.values import counted, format_bytes
from armload.engines.contradictions import contradictions
from armload.engines.engine import MemoryNeed
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.models.model import Model
from armload.runs.predicting import expected, known_there
from armload.runs.session import ReachedBoard
from armload.tuning.space import Feasibility

_HELD = ("fits", "unknown")


class SettingPredictor:
    """Predictions for settings of one model on one board.

    Args:
        usual: the plan of the defaults; where its weights stay in memory, a setting whose weights
            do not is hopeless.
        most_rss_bytes: that a setting may take; none for what the board has.
    """

    def __init__(
        self, where: ReachedBoard, model: Model, usual: Plan, *, most_rss_bytes: int | None
    ) -> None:
        self._where = where
        self._model = model
        self._most_rss_bytes = most_rss_bytes
        self._resources, self._compute = known_there(where, where.found, model, usual)
        self._usual = self._predicted(usual, None)

    def feasibility(
        self,
        plan: Plan,
        need: MemoryNeed,
        *,
        cost: Callable[[Prediction], float | None] = lambda _: None,
    ) -> Feasibility:
        """Say what is predicted of a setting.

        Args:
            plan: of one continuation with it.
            need: of memory, by all that is continued at a time.
            cost: what the search minimises, from a prediction.
        """
        if reason := self._impossible(plan, need):
            return Feasibility(hopeless=reason)
        found = self._predicted(plan, need)
        if found.verdict == "cannot run":
            within = within_group(self._where.found.conditions)
            board = self._where.main_board.name
            return Feasibility(hopeless=refusal(self._model.name, board, found, within).rstrip("."))
        if self._usual.verdict in _HELD and found.verdict not in _HELD:
            return Feasibility(hopeless="the weights would be read from storage for every token")
        return Feasibility(cost=cost(found))

    def _impossible(self, plan: Plan, need: MemoryNeed) -> str:
        now = self._where.found.conditions
        chosen = {*now.usual_cores} if plan.cpus is None else {*cpu_numbers(plan.cpus)}
        if missing := chosen - {*now.cores}:
            return f"the board has no core {min(missing)}"
        if refused := chosen - {*now.allowed_cores}:
            return f"a control group on the board does not allow core {min(refused)}"
        if plan.threads is not None and plan.threads > len(chosen):
            return f"{counted(plan.threads, 'thread')} on {counted(len(chosen), 'core')}"
        for each in contradictions(plan):
            return each.reason
        most = self._most_rss_bytes
        if most is not None and need.own_bytes > most:
            return (
                f"KV cache and buffers take {format_bytes(need.own_bytes)}, more than the "
                f"{format_bytes(most)} of --max-memory"
            )
        return ""

    def _predicted(self, plan: Plan, need: MemoryNeed | None) -> Prediction:
        return expected(plan, self._model, self._resources, self._compute, need=need)
