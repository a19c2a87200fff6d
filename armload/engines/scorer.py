"""armload's own ``armload-score``: many items are answered by a model that is loaded once."""

from __future__ import annotations

from pathlib import Path

from armload.build import programs
from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.core.files import sha256_of
from armload.core.values import counted
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDOUT_FILE, TRACE_FILE, from_program_folder
from armload.deploy.payload import Payload
from armload.engines.answers import (
    FailedAnswer,
    GeneratedAnswer,
    LikelihoodAnswer,
    LogitsAnswer,
    read_answers,
)
from armload.engines.engine import MemoryNeed, RunContext
from armload.engines.job import Job
from armload.engines.llama_cpp import (
    if_offered,
    settings_words,
)
from armload.engines.model_program import ModelEngine, memory_of, peak_memory
from armload.engines.output import Output
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
from armload.models.model import Model

SCORER = programs.SCORER
ANSWERS, LOGITS = STDOUT_FILE, "logits.f32"
"""Files of a run: an answer on each line, and rows of logits."""

PROMPT_TOKENS = 128
"""Assumed of an item, where its time is estimated."""

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
        binary: of ``SCORER``, built for the board's target.
        items: one JSON object on each line.

    Raises:
        UsageError: the program does not know the model's architecture, or lacks an option that
            the plan asks for; or the context is longer than the model was trained for.
    """

    name = SCORER
    unit = "items"
    results = (LOGITS,)

    def __init__(self, plan: ScoringPlan, binary: Binary, model: Model, items: Path) -> None:
        super().__init__(plan, binary, model)
        if plan.context_tokens > model.context_length:
            raise UsageError(
                f"A context of {plan.context_tokens} tokens is too large: {model.name} was "
                f"trained for {model.context_length}.",
                f"Use a context of {model.context_length} tokens or fewer.",
            )
        self.items = items
        self.keeps_forecast = True

    @property
    def continuation(self) -> Plan:
        """What its time and memory are predicted for: one item."""
        return self.plan.continuation

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program, the model and the items."""
        items = Payload.of_file(self.items, sha256=self.plan.items_sha256, executable=False)
        return (*super().payload, items)

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
    def more_bytes(self) -> int:
        """Of the logits of a pass."""
        return MOST_LOGITS_BYTES

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start armload-score there."""
        plan, program = self.plan, self.binary.path
        on_board, model, *_, items = (
            str(each.items(context.layout)[0].remote) for each in self.payload
        )
        words = [on_board, "-m", model, *self._adapter_words(context), "--items", items, "--logits"]
        words += [from_program_folder(LOGITS)]
        words += ["-c", str(plan.context_tokens), "-np", str(plan.parallel)]
        words += settings_words(plan, program, context.cores, context.most_threads)
        words += self._memory_words(context)
        words += [*self._spread_words(context), *if_offered(program, "--offline")]
        return (*context.launcher, *words)

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
