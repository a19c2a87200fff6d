"""llama.cpp's ``llama-imatrix``: which weights matter, computed from a text."""

from __future__ import annotations

import re
from pathlib import Path

from armload.build.binary import Binary
from armload.core.files import content
from armload.core.values import Value
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDOUT_FILE, TRACE_FILE, from_program_folder
from armload.deploy.payload import Payload
from armload.engines.engine import MemoryNeed, RunContext
from armload.engines.job import Job
from armload.engines.llama_cpp import NO_REPACK, check_architecture, if_offered
from armload.engines.model_program import (
    InPlace,
    ModelTool,
    memory_of,
    payload_from_program_folder,
    peak_memory,
)
from armload.engines.output import Output
from armload.engines.trace import read_trace
from armload.models.model import Model

PROGRAM = "llama-imatrix"
RESULT = "imatrix.gguf"
"""The file of a run that holds the importance matrix."""

CHUNK_TOKENS = 512
_FLOAT_BYTES = 4
_CHUNKS = re.compile(r"computing over (\d+) chunks")


class ImportancePlan(Value):
    """How the importance of a model's weights is computed.

    Attributes:
        text_sha256: of the calibration text.
        chunk_tokens: tokens that go through the model at a time, each chunk on its own.
    """

    text_sha256: str
    chunk_tokens: int


class Importance(ModelTool[ImportancePlan]):
    """The importance of a model's weights for a text.

    Args:
        binary: of ``PROGRAM``, built for the board's target.
        text: the file that is read.
        in_place: the model is on this machine; none copies it to the board.

    Raises:
        UsageError: the program does not know the model's architecture.
    """

    name = PROGRAM
    unit = "chunks"
    results = (RESULT,)

    def __init__(
        self,
        plan: ImportancePlan,
        binary: Binary,
        model: Model,
        text: Path,
        *,
        in_place: InPlace | None = None,
    ) -> None:
        check_architecture(binary, model)
        super().__init__(plan, binary, model, in_place)
        self._text = Payload.of_file(text, sha256=plan.text_sha256, executable=False)

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program; the model, unless it is there; the text."""
        return (*super().payload, self._text)

    @property
    def result(self) -> str | None:
        return RESULT

    @property
    def memory(self) -> MemoryNeed:
        """The model's file, a KV cache, and the logits of a chunk."""
        tokens = self.plan.chunk_tokens
        logits_bytes = tokens * self.model.vocabulary * _FLOAT_BYTES
        return memory_of(
            self.model, tokens, (1.0, 1.0), batch_tokens=tokens, more_bytes=logits_bytes
        )

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-imatrix there."""
        tokens = str(self.plan.chunk_tokens)
        words = [
            "-m",
            str(self._base(context)),
            "-f",
            payload_from_program_folder(context.layout, self._text),
        ]
        words += ["-o", from_program_folder(RESULT), "-c", tokens, "-b", tokens, "-ub", tokens]
        words += if_offered(self.binary.path, "--no-ppl")
        words += if_offered(self.binary.path, NO_REPACK)
        words += if_offered(self.binary.path, "-fit", "off")
        return self._started(context, words)

    def note(self, now: ProgressUpdate) -> str:
        """Return how many chunks there are."""
        found = _CHUNKS.search(now.text)
        return f"of {found[1]} chunks" if found else ""

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read the trace, and how many chunks the text had."""
        del job
        header, steps = read_trace(folder / TRACE_FILE)
        found = _CHUNKS.search(content(folder / STDOUT_FILE).decode("utf-8", "replace"))
        return Output(
            header=header,
            steps=steps,
            memory=peak_memory(steps),
            result={"chunks": int(found[1]) if found else 0},
        )
