"""llama.cpp's ``llama-speculative-simple``: several guessed tokens are verified in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.core.files import content
from armload.core.ids import fingerprint_of
from armload.deploy.layout import STDOUT_FILE
from armload.deploy.payload import Payload
from armload.engines.completion import Completion
from armload.engines.engine import MemoryNeed, RunContext
from armload.engines.job import Job, RunSpec
from armload.engines.llama_cpp import check_architecture, offers
from armload.engines.model_program import model_record, working_bytes
from armload.engines.output import Output
from armload.engines.plan import MICRO_BATCH_TOKENS, MTP, Plan
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
        needed = _MTP if plan.speculate == MTP else _NGRAM_SIZE
        if not offers(binary.path, needed):
            raise UsageError(
                f"--speculate {plan.speculate}: {binary.program} of this llama.cpp cannot do that: "
                f"it has no option {needed}, and is too old.",
                "Omit --source, or use llama.cpp of 2026.",
            )
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
        need = super().estimated_memory
        if self.draft is None:
            more_bytes = need.program_bytes + self.more_bytes
            return need.model_copy(update={"program_bytes": more_bytes})
        return need.model_copy(
            update={
                "name": f"{need.name} with {self.draft.name}",
                "weights_bytes": need.weights_bytes + self.draft.size_bytes,
                "row_table_bytes": need.row_table_bytes + self.draft.row_table_bytes,
                "kv_is_exact": need.kv_is_exact and self.draft.context_memory.is_exact,
                "program_bytes": need.program_bytes + self.more_bytes,
            }
        )

    @property
    def more_bytes(self) -> int:
        """Of cache and buffers of what drafts."""
        tokens = super().estimated_memory.context_tokens
        if self.plan.speculate == MTP:
            values = tokens * self.model.context_memory.prediction_values
            return (
                KV_BYTES_PER_VALUE * values
                + MICRO_BATCH_TOKENS * self.model.activation_bytes_per_token
            )
        if self.draft is None:
            return 0
        cache_bytes = self.draft.context_memory.size_bytes(tokens)
        return cache_bytes + working_bytes(self.draft, MICRO_BATCH_TOKENS, tokens)

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-speculative-simple there."""
        if self.draft is None:
            is_mtp = self.plan.speculate == MTP
            return self._words(context, drafting=_MTP_WORDS if is_mtp else _NGRAM_WORDS)
        return self._words(
            context,
            drafting=(
                *_DRAFT_WORDS,
                str(Payload.of_model(self.draft).items(context.layout)[0].remote),
            ),
            drafting_bytes=2 * self.draft.size_bytes,
        )

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
