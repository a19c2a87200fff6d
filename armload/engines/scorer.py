"""armload's own ``armload-score``: many items are answered by a model that is loaded once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from armload.build import programs
from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.core.files import sha256_of
from armload.core.ids import fingerprint_of
from armload.core.pictures import Picture
from armload.core.values import Value, counted
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDOUT_FILE, TRACE_FILE, from_program_folder
from armload.deploy.payload import Payload, PayloadFile
from armload.engines.answers import (
    FailedAnswer,
    GeneratedAnswer,
    LikelihoodAnswer,
    LogitsAnswer,
    read_answers,
)
from armload.engines.engine import Forecastable, MemoryNeed, RunContext, Simulation, Spreadable
from armload.engines.job import Job, MediaRecord, RunSpec
from armload.engines.llama_cpp import (
    if_offered,
    settings_words,
)
from armload.engines.model_program import ModelEngine, memory_of, peak_memory
from armload.engines.output import Output
from armload.engines.perception import (
    IMAGE_TOKENS,
    media_words,
    projector_payload,
    projector_record,
)
from armload.engines.plan import (
    DEFAULT_TIME_LIMIT_S,
    MICRO_BATCH_TOKENS,
    Plan,
    Seconds,
    TokenCount,
    kv_shares,
)
from armload.engines.prediction import Sequences
from armload.engines.service_plan import ScorerOptions
from armload.engines.trace import read_trace
from armload.models.image_tokens import ImageSize, image_tokens
from armload.models.model import Model
from armload.models.projector import Projector

SCORER, SEEING_SCORER = programs.SCORER, programs.SEEING_SCORER
ANSWERS, LOGITS = STDOUT_FILE, "logits.f32"
"""Files of a run: an answer on each line, and rows of logits."""

PROMPT_TOKENS = 128
"""Assumed of an item, where its time is estimated."""

_IMAGES = "images"

MOST_LOGITS_BYTES = 64 << 20
"""As in ``toolchains/native/scorer/engine.cpp``: logits of one pass over the weights."""


class ScoringPlan(ScorerOptions):
    """How items are scored.

    Attributes:
        items_sha256, items_count: of the file with the items, as ``look_at_items`` finds them.
        context_tokens: length of the KV cache for each item.
        time_limit_s: as in ``Plan``.
    """

    items_sha256: str
    items_count: int
    context_tokens: TokenCount
    time_limit_s: Seconds = DEFAULT_TIME_LIMIT_S

    @property
    def continuation(self) -> Plan:
        """The plan of a single item, as predictions take it."""
        return Plan(
            prompt_tokens=min(PROMPT_TOKENS, self.context_tokens - 1),
            n_predict=1,
            context_tokens=self.context_tokens,
            threads=self.threads,
            cpus=self.cpus,
            kv_type=self.kv_type,
            weights=self.weights,
            resident_bytes=self.resident_bytes,
        )


class SeenImages(Value):
    """What items show a model, and by which projector it sees it.

    Attributes:
        images: by the checksums of their files, as which items name them.
        most_tokens: of one image; none for the projector's own limit.
    """

    projector: Projector
    images: Mapping[str, Picture]
    most_tokens: int | None = None

    @property
    def payload(self) -> Payload:
        """All images, in one folder."""
        files = tuple(
            PayloadFile(
                name=PurePosixPath(_IMAGES, sha256),
                local=each.path,
                sha256=sha256,
                size_bytes=each.size_bytes,
                executable=False,
            )
            for sha256, each in sorted(self.images.items())
        )
        sha256 = hashlib.sha256("\n".join(sorted(self.images)).encode()).hexdigest()
        return Payload(name=_IMAGES, local=Path(_IMAGES), sha256=sha256, files=files)

    def tokens(self, sha256: str) -> int:
        """Return with how many tokens an image stands in the context, at most."""
        image = self.images[sha256]
        found = image_tokens(self.projector, ImageSize(image.width, image.height))
        if found is None:
            return self.most_tokens or IMAGE_TOKENS
        limit = found.tokens if self.most_tokens is None else self.most_tokens + found.markers
        return min(found.tokens, limit)


def look_at_items(path: Path) -> tuple[str, int]:
    """Return the SHA-256 and the number of the items in a file."""
    with path.open("rb") as file:
        return sha256_of(path), sum(bool(line.strip()) for line in file)


class Scoring(ModelEngine[ScoringPlan]):
    """A file of items, answered by one program with one model.

    Attributes:
        plan, model, items: as given.
        keeps_forecast: a run's times are like those of the one item that is predicted.

    Args:
        binary: of ``SCORER``, or of ``SEEING_SCORER`` for images, built for the board's target.
        items: one JSON object on each line.
        seen: the images that items name; none where they name none.

    Raises:
        UsageError: the program does not know the model's architecture, or lacks an option that
            the plan asks for; or the context is longer than the model was trained for.
    """

    name = SCORER
    unit = "items"
    results = (LOGITS,)

    def __init__(
        self,
        plan: ScoringPlan,
        binary: Binary,
        model: Model,
        items: Path,
        seen: SeenImages | None = None,
    ) -> None:
        super().__init__(plan, binary, model)
        if plan.context_tokens > model.context_length:
            raise UsageError(
                f"A context of {plan.context_tokens} tokens is too large: {model.name} was "
                f"trained for {model.context_length}.",
                f"Use a context of {model.context_length} tokens or fewer.",
            )
        self.items = items
        self.seen = seen
        self.keeps_forecast = True

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program and model, and the projector by which it sees."""
        if self.seen is None:
            return super().fingerprint
        seen = (self.seen.projector.sha256, str(self.seen.most_tokens), *sorted(self.seen.images))
        return fingerprint_of((super().fingerprint, *seen))

    @property
    def subject(self) -> RunSpec:
        """The plan, and what is known of program, model, projector and images."""
        if self.seen is None:
            return super().subject
        images = tuple(
            MediaRecord(**each.model_dump(exclude={"path"})) for each in self.seen.images.values()
        )
        update = {"projector": projector_record(self.seen.projector), "images": images}
        return super().subject.model_copy(update=update)

    @property
    def spreadable(self) -> Spreadable | None:
        """Nothing where it sees: the encoder runs on one board."""
        return super().spreadable if self.seen is None else None

    @property
    def continuation(self) -> Plan:
        """What its time and memory are predicted for: one item."""
        return self.plan.continuation

    @property
    def forecastable(self) -> Forecastable:
        """One item, by llama.cpp's operations."""
        return Forecastable(model=self.model, plan=self.continuation, is_kept=self.keeps_forecast)

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program, the model, the items, and what these show."""
        items = Payload.of_file(self.items, sha256=self.plan.items_sha256, executable=False)
        seen = self.seen
        shown = (projector_payload(seen.projector), seen.payload) if seen else ()
        return (*super().payload, items, *shown)

    @property
    def time_limit_s(self) -> float:
        return self.plan.time_limit_s

    @property
    def total(self) -> int | None:
        return self.plan.items_count

    @property
    def estimated_memory(self) -> MemoryNeed:
        """The model's file, and the KV cache of all items at a time with the engine's buffers."""
        plan, model = self.plan, self.model
        return memory_of(
            model,
            plan.context_tokens,
            kv_shares(plan.kv_type),
            batch_tokens=self.batch_tokens,
            micro_batch_tokens=plan.micro_batch_tokens,
            sequences=Sequences(count=plan.parallel, kind="question"),
            is_shared=True,
            flash_attention=plan.flash_attention,
            more_bytes=self.more_bytes,
        )

    @property
    def batch_tokens(self) -> int:
        """Of a micro-batch, as planned."""
        return self.plan.micro_batch_tokens or MICRO_BATCH_TOKENS

    @property
    def projector_file(self) -> Path | None:
        return self.seen.projector.path if self.seen else None

    @property
    def more_bytes(self) -> int:
        """Of the logits of a pass, and of the projector."""
        return MOST_LOGITS_BYTES + (self.seen.projector.size_bytes if self.seen else 0)

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start armload-score there."""
        plan, program = self.plan, self.binary.path
        on_board, model = (
            str(each.items(context.layout)[0].remote) for each in super().payload[:2]
        )
        items = Payload.of_file(self.items, sha256=plan.items_sha256, executable=False)
        (on_its,) = items.items(context.layout)
        words = [on_board, "-m", model, *self._adapter_words(context)]
        words += ["--items", str(on_its.remote), "--logits"]
        words += [from_program_folder(LOGITS)]
        words += ["-c", str(plan.context_tokens), "-np", str(plan.parallel)]
        words += settings_words(plan, program, context.cores, context.most_threads)
        words += self._memory_words(context)
        if self.seen is not None:
            projector = projector_payload(self.seen.projector)
            words += media_words(projector, self.seen.most_tokens, context)
            words += ["--images", str(self.seen.payload.folder(context.layout) / _IMAGES)]
        words += [*self._spread_words(context), *if_offered(program, "--offline")]
        return (*context.launcher, *words)

    def simulation(self, context: RunContext) -> Simulation | None:
        """Return how the program is asked, before projector and images are on the board."""
        asked = super().simulation(context)
        if asked is None or self.seen is None:
            return asked
        return asked.without("--mmproj", "--images")

    def progress(self, now: ProgressUpdate) -> int:
        """Return the number of answers."""
        return now.lines

    def note(self, now: ProgressUpdate) -> str:
        """Return how many passes over the weights it took."""
        return f"{now.steps} passes over the weights"

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read the trace, and count the answers, which stay in the run's folder."""
        header, steps = read_trace(folder / TRACE_FILE)
        answers = read_answers(folder / ANSWERS)
        wanted = (job.arguments or {}).get("items_count")
        if not isinstance(wanted, int) or len(answers) >= wanted:
            missing = ""
        else:
            missing = f"{wanted - len(answers)} of {counted(wanted, 'item')} have no answer."
        generated = [each for each in answers if isinstance(each, GeneratedAnswer)]
        scored = [each for each in answers if isinstance(each, LikelihoodAnswer)]
        prompts = [each for each in answers if isinstance(each, LogitsAnswer)]
        return Output(
            header=header,
            steps=steps,
            memory=peak_memory(steps),
            result={
                "answers": len(answers),
                "errors": sum(isinstance(each, FailedAnswer) for each in answers),
                "prompt_tokens": sum(each.prompt_tokens for each in generated)
                + sum(each.context_tokens for each in scored)
                + sum(len(each.tokens) for each in prompts),
                "generated_tokens": sum(len(each.tokens) for each in generated),
                "scored_tokens": sum(
                    len(one.tokens) for each in scored for one in each.continuations
                ),
            },
            missing=missing,
        )
