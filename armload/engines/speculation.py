"""llama.cpp's ``llama-speculative-simple``: several guessed tokens are verified in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.core.files import content
from armload.core.ids import fingerprint_of
from armload.deploy.layout import STDOUT_FILE, Layout
from armload.deploy.payload import Payload
from armload.engines.completion import Completion
from armload.engines.engine import MemoryNeed, RunContext
from armload.engines.job import Job, RunSpec
from armload.engines.llama_cpp import check_architecture, offers
from armload.engines.model_program import model_record, working_bytes
from armload.engines.output import Output
from armload.engines.plan import MICRO_BATCH_TOKENS, MTP, NGRAM, Plan
from armload.models.metadata import KV_BYTES_PER_VALUE
from armload.models.model import Model

SPECULATING_PROGRAM = "llama-speculative-simple"

_NGRAM_SIZE = "--spec-ngram-simple-size-n"
_NGRAM_WORDS = (
    *("--spec-type", "ngram-simple"),
    # llama.cpp's own 12 and 48 find little outside of long quotations.
    *(_NGRAM_SIZE, "3", "--spec-ngram-simple-size-m", "8"),
)
_DRAFT_WORDS = ("--spec-type", "draft-simple", "-md")
_MTP = "--mtp"
"""An option that came with it, though another program takes it: the compiler stores the name of the
type, which is shorter, in instructions."""
_MTP_WORDS = ("--spec-type", "draft-mtp")


def check_predicts(model: Model) -> None:
    """Check that a model has layers that predict further tokens."""
    if not model.prediction_layers:
        raise UsageError(
            f"--speculate mtp: {model.name} has no layers that predict further tokens (MTP).",
            "Use a file of the model that keeps them, or --speculate ngram, which needs none.",
        )


def check_offered(binary: Binary, speculate: str) -> None:
    """Check that a program can guess tokens in that way.

    Raises:
        UsageError: it is too old for that.
    """
    needed = _MTP if speculate == MTP else _NGRAM_SIZE
    if not offers(binary.path, needed):
        raise UsageError(
            f"--speculate {speculate}: {binary.program} of this llama.cpp cannot do that: "
            f"it has no option {needed}, and is too old.",
            "Omit --source, or use llama.cpp of 2026.",
        )


def drafting_words(speculate: str, layout: Layout, draft: Model | None) -> tuple[str, ...]:
    """Return the options that say how tokens are guessed.

    Args:
        draft: the second model; none without.
    """
    if draft is None:
        return _MTP_WORDS if speculate == MTP else _NGRAM_WORDS
    return (*_DRAFT_WORDS, str(Payload.of_model(draft).items(layout)[0].remote))


def drafting_bytes(speculate: str, model: Model, draft: Model | None, tokens: int) -> int:
    """Return the size of cache and buffers of what drafts.

    Args:
        tokens: of the KV cache, for all sequences together.
    """
    if speculate == MTP:
        values = tokens * model.context_memory.prediction_values
        return KV_BYTES_PER_VALUE * values + MICRO_BATCH_TOKENS * model.activation_bytes_per_token
    if draft is None:
        return 0
    return draft.context_memory.size_bytes(tokens) + working_bytes(
        draft, MICRO_BATCH_TOKENS, tokens
    )


def with_drafting(need: MemoryNeed, draft: Model | None, more_bytes: int) -> MemoryNeed:
    """Return what a model and what drafts for it take of a board's memory.

    Args:
        need: of the model alone.
        more_bytes: as ``drafting_bytes`` tells.
    """
    program_bytes = need.program_bytes + more_bytes
    if draft is None:
        return need.model_copy(update={"program_bytes": program_bytes})
    return need.model_copy(
        update={
            "name": f"{need.name} with {draft.name}",
            "weights_bytes": need.weights_bytes + draft.size_bytes,
            "row_table_bytes": need.row_table_bytes + draft.row_table_bytes,
            "kv_is_exact": need.kv_is_exact and draft.context_memory.is_exact,
            "program_bytes": program_bytes,
        }
    )


class Speculation(Completion):
    """A plan in which tokens are guessed: by another model, by own layers, or from the text.

    Args:
        draft: the second model; none without.

    Raises:
        UsageError: the program is too old for that, or as for ``Completion``.
    """

    name: ClassVar[str] = SPECULATING_PROGRAM
    unit: ClassVar[str] = "steps"

    def __init__(self, plan: Plan, binary: Binary, model: Model, draft: Model | None) -> None:
        super().__init__(plan, binary, model)
        check_offered(binary, plan.speculate or NGRAM)
        if draft is not None:
            check_architecture(binary, draft)
        self.draft = draft

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program and both models."""
        draft = self.draft.sha256 if self.draft else ""
        return fingerprint_of((super().fingerprint, draft))

    @property
    def subject(self) -> RunSpec:
        """The plan, and what is known of the program and of both models."""
        draft = model_record(self.draft) if self.draft else None
        return super().subject.model_copy(update={"draft": draft})

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program and the models, each once."""
        if self.draft is None:
            return super().payload
        return tuple(dict.fromkeys((*super().payload, Payload.of_model(self.draft))))

    @property
    def spreadable(self) -> None:
        """Nothing: guesses are made and verified on one board."""
        return

    @property
    def total(self) -> None:
        """Nobody knows how many steps it takes."""
        return

    @property
    def estimated_memory(self) -> MemoryNeed:
        """What the model and what drafts for it take."""
        return with_drafting(super().estimated_memory, self.draft, self.more_bytes)

    @property
    def more_bytes(self) -> int:
        """Of cache and buffers of what drafts."""
        tokens = super().estimated_memory.context_tokens
        return drafting_bytes(self.plan.speculate or NGRAM, self.model, self.draft, tokens)

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-speculative-simple there."""
        words = drafting_words(self.plan.speculate or NGRAM, context.layout, self.draft)
        draft_bytes = 2 * self.draft.size_bytes if self.draft else 0
        return self._words(context, drafting=words, more_bytes=draft_bytes)

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read what it left; its text begins after the prompt, which it writes as well."""
        output = Completion.read(job, folder)
        written = content(folder / STDOUT_FILE).decode("utf-8", "replace")
        prompt = job.plan.prompt if job.plan else ""
        _, found, text = written.partition(prompt)
        return output.model_copy(
            update={
                "text": text.removesuffix("\n\n\n\n") if found else "",
                "times": None,
                "missing": "" if found else "The program did not write the prompt.",
            }
        )
