"""Engines as data: told by a command, and made on a gateway of what it has received."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from armload.bench.combination import Combination
from armload.build.binary import Binary
from armload.build.programs import SCORER, SEEING_SCORER
from armload.core.errors import UsageError
from armload.core.pictures import Picture
from armload.core.progress import Silent
from armload.core.sounds import Sound
from armload.core.values import Value
from armload.deploy.follow import ProgressUpdate
from armload.engines.completion import Completion
from armload.engines.model_program import ModelProgram
from armload.engines.perception import Perception
from armload.engines.plan import Plan
from armload.engines.scorer import Scoring, ScoringPlan, SeenImages
from armload.engines.speculation import Speculation
from armload.evaluation.scorer_run import TimedScoring
from armload.fleet.events import Relay
from armload.fleet.files import Files, SentFile, SentModel
from armload.models.model import Model
from armload.models.projector import read_whole_projector
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


class SentMedia(Value):
    """An image or a sound; the path within ``medium`` is of no meaning."""

    medium: Picture | Sound
    file: SentFile

    def received(self) -> Picture | Sound:
        """Return it on this gateway; TransferError as for a file."""
        return self.medium.model_copy(update={"path": self.file.received()})


def _sent_media(medium: Picture | Sound, files: Files) -> SentMedia:
    named = medium.model_copy(update={"path": Path(medium.path.name)})
    return SentMedia(medium=named, file=files.file(medium.path, medium.sha256))


class SentPerception(Value):
    """A prompt after images or a sound."""

    kind: Literal["perception"] = "perception"
    model: SentModel
    plan: Plan
    projector: SentFile
    media: tuple[SentMedia, ...]

    def received(self, binaries: Mapping[str, Binary], _relay: Relay) -> BoardEngine:
        return Perception(
            *(self.plan, binaries[Perception.name], self.model.received()),
            projector=read_whole_projector(self.projector.received(), Silent()),
            media=[each.received() for each in self.media],
        )


class SentImages(Value):
    """What items of the scorer show.

    Attributes:
        images: by their checksums.
    """

    projector: SentFile
    images: Mapping[str, SentMedia]
    most_tokens: int | None

    def received(self) -> SeenImages:
        """Return it on this gateway; TransferError as for a file."""
        found = {name: each.received() for name, each in self.images.items()}
        return SeenImages(
            projector=read_whole_projector(self.projector.received(), Silent()),
            images={name: each for name, each in found.items() if isinstance(each, Picture)},
            most_tokens=self.most_tokens,
        )


def _sent_images(seen: SeenImages, files: Files) -> SentImages:
    return SentImages(
        projector=files.file(seen.projector.path, seen.projector.sha256),
        images={name: _sent_media(each, files) for name, each in seen.images.items()},
        most_tokens=seen.most_tokens,
    )


class SentScoring(Value):
    """A run of the scorer.

    Attributes:
        items: what is asked.
        seen: the images that items name; none where they name none.
        keeps_forecast: as for ``Scoring``.
        evaluation: its id, where the command reads the answers as they come; else empty.
        max_time_s: of a run for an evaluation; none for no limit.
    """

    kind: Literal["scoring"] = "scoring"
    model: SentModel
    plan: ScoringPlan
    items: SentFile
    seen: SentImages | None = None
    keeps_forecast: bool
    evaluation: str = ""
    max_time_s: float | None = None

    def received(self, binaries: Mapping[str, Binary], relay: Relay) -> Scoring:
        model, items = self.model.received(), self.items.received()
        seen = self.seen.received() if self.seen else None
        binary = binaries[SEEING_SCORER if seen else SCORER]
        if self.evaluation:
            return _ReadElsewhere(self, binary, model, items, seen, relay)
        return Scoring(self.plan, binary, model, items, seen)


class _ReadElsewhere(TimedScoring):
    """A run for an evaluation whose answers the command grades as they come."""

    def __init__(
        self,
        sent: SentScoring,
        binary: Binary,
        model: Model,
        items: Path,
        seen: SeenImages | None,
        relay: Relay,
    ) -> None:
        super().__init__(
            *(sent.plan, binary, model, items),
            seen=seen,
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


SentEngine = Annotated[SentCompletion | SentPerception | SentScoring, Field(discriminator="kind")]


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
            seen=_sent_images(engine.seen, files) if engine.seen else None,
            keeps_forecast=engine.keeps_forecast,
            evaluation=timed.evaluation if timed else "",
            max_time_s=timed.max_time_s if timed else None,
        )
    if isinstance(engine, Perception):
        return SentPerception(
            model=files.model(engine.model),
            plan=engine.plan,
            projector=files.file(engine.projector.path, engine.projector.sha256),
            media=tuple(_sent_media(each, files) for each in engine.media),
        )
    if not isinstance(engine, Completion):
        raise AssertionError(f"{engine.name} refuses to be sent")
    model = files.model(engine.model)
    draft = engine.draft if isinstance(engine, Speculation) else None
    return SentCompletion(
        model=model, draft=files.model(draft) if draft else None, plan=engine.plan
    )
