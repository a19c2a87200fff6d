"""Engines as data: told by a command, and made on a gateway of what it has received."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from armload.bench.combination import Combination
from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.deploy.follow import ProgressUpdate
from armload.engines.completion import Completion
from armload.engines.model_program import ModelProgram
from armload.engines.plan import Plan
from armload.engines.scorer import Scoring, ScoringPlan
from armload.engines.speculation import Speculation
from armload.evaluation.scorer_run import TimedScoring
from armload.fleet.events import Relay
from armload.fleet.files import Files, SentFile, SentModel
from armload.models.model import Model
from armload.runs.reach import BoardEngine


class SentCompletion(Value):
    """A continuation of a prompt, whose plan is complete."""

    kind: Literal["completion"] = "completion"
    model: SentModel
    draft: SentModel | None = None
    plan: Plan

    def received(self, binaries: Mapping[str, Binary], _relay: Relay) -> ModelProgram[Plan]:
        draft = self.draft.received() if self.draft else None
        one = Combination(model=self.model.received(), draft=draft, plan=self.plan)
        return one.engine(binaries)


class SentScoring(Value):
    """A run of the scorer.

    Attributes:
        items: what is asked.
        keeps_forecast: as for ``Scoring``.
        evaluation: its id, where the command reads the answers as they come; else empty.
        max_time_s: of a run for an evaluation; none for no limit.
    """

    kind: Literal["scoring"] = "scoring"
    model: SentModel
    plan: ScoringPlan
    items: SentFile
    keeps_forecast: bool
    evaluation: str = ""
    max_time_s: float | None = None

    def received(self, binaries: Mapping[str, Binary], relay: Relay) -> Scoring:
        model, items = self.model.received(), self.items.received()
        if self.evaluation:
            return _ReadElsewhere(self, binaries[Scoring.name], model, items, relay)
        return Scoring(self.plan, binaries[Scoring.name], model, items)


class _ReadElsewhere(TimedScoring):
    """A run for an evaluation whose answers the command grades as they come."""

    def __init__(
        self, sent: SentScoring, binary: Binary, model: Model, items: Path, relay: Relay
    ) -> None:
        super().__init__(
            *(sent.plan, binary, model, items),
            evaluation=sent.evaluation,
            note=lambda _: "",
            max_time_s=sent.max_time_s,
            keeps_forecast=sent.keeps_forecast,
        )
        self._relay = relay

    def note(self, now: ProgressUpdate) -> str:
        """Tell the command of the answers; it knows what to say of them."""
        self._relay.lines(now.new_lines)
        return ""


SentEngine = Annotated[SentCompletion | SentScoring, Field(discriminator="kind")]


def sent_engine(engine: BoardEngine, files: Files) -> SentEngine:
    """Return how a gateway is told of an engine, beside its program; add the files for it."""
    if engine.unsendable is not None:
        raise UsageError(*engine.unsendable)
    if isinstance(engine, Scoring):
        timed = engine if isinstance(engine, TimedScoring) else None
        return SentScoring(
            model=files.model(engine.model),
            plan=engine.plan,
            items=files.file(engine.items, engine.plan.items_sha256),
            keeps_forecast=engine.keeps_forecast,
            evaluation=timed.evaluation if timed else "",
            max_time_s=timed.max_time_s if timed else None,
        )
    if not isinstance(engine, Completion):
        raise AssertionError(f"{engine.name} refuses to be sent")
    model = files.model(engine.model)
    draft = engine.draft if isinstance(engine, Speculation) else None
    return SentCompletion(
        model=model, draft=files.model(draft) if draft else None, plan=engine.plan
    )
