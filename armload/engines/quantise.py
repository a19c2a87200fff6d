"""llama.cpp's ``llama-quantize``: a model is written again, in a smaller type."""

from __future__ import annotations

import re
from pathlib import Path

from armload.build.binary import Binary
from armload.core.files import content
from armload.core.values import Value
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDOUT_FILE, from_program_folder
from armload.deploy.payload import Payload
from armload.engines.engine import RunContext
from armload.engines.job import Job
from armload.engines.llama_cpp import if_offered
from armload.engines.model_program import InPlace, ModelTool, payload_from_program_folder
from armload.engines.output import Output
from armload.models.model import Model

PROGRAM = "llama-quantize"
RESULT = "model.part"
"""The file of a run that holds the quantised model once the program has ended well."""

LEAST_BUFFER_BYTES = 256 << 20
MOST_BUFFER_BYTES = 2 << 30
_SHARE_OF_MEMORY = 0.25

_TENSOR = re.compile(r"^\[ *(\d+)/ *(\d+)\] +(\S+)", re.MULTILINE)
_FALLBACK = re.compile(
    r"^warning: (\S+) +- ncols +(\d+) not divisible by +(\d+) \(required for type +(\w+)\)"
    r".*-> falling back to +(\w+)",
    re.MULTILINE,
)


class Fallback(Value):
    """A tensor whose rows do not fit the type that was meant for it.

    Attributes:
        tensor: its name.
        columns: length of its rows.
        block: that the rows' length would have to be a multiple of.
        wanted, type: the type that was meant, and the one that it has instead.
    """

    tensor: str
    columns: int
    block: int
    wanted: str
    type: str


class QuantisingPlan(Value):
    """How a model is quantised.

    Attributes:
        type: of the file, in llama.cpp's words.
        importance_sha256: of the importance matrix; empty without one.
        allow_requantize: the model is quantised already.
    """

    type: str
    importance_sha256: str = ""
    allow_requantize: bool = False


class Quantising(ModelTool[QuantisingPlan]):
    """A model, quantised by one program.

    Args:
        binary: of ``PROGRAM``, built for the board's target.
        tensors: that the model has.
        importance: the importance matrix; none without one.
        in_place: on this machine; none copies the model to the board, and the result from there.
    """

    name = PROGRAM
    unit = "tensors"
    results = (RESULT,)

    def __init__(
        self,
        plan: QuantisingPlan,
        binary: Binary,
        model: Model,
        *,
        tensors: int,
        importance: Path | None = None,
        in_place: InPlace | None = None,
    ) -> None:
        super().__init__(plan, binary, model, in_place)
        self._tensors = tensors
        self._importance = (
            None
            if importance is None
            else Payload.of_file(importance, sha256=plan.importance_sha256, executable=False)
        )

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program; the model, unless it is there; the importance matrix."""
        return (*super().payload, *([self._importance] if self._importance else []))

    @property
    def result(self) -> str | None:
        return None if self.in_place else RESULT

    @property
    def total(self) -> int | None:
        return self._tensors

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-quantize there, within a share of the free memory."""
        words = ["--allow-requantize"] if self.plan.allow_requantize else []
        if self._importance is not None:
            words += ["--imatrix", payload_from_program_folder(context.layout, self._importance)]
        free_bytes = context.found.conditions.memory_available_bytes
        buffer_bytes = max(round(_SHARE_OF_MEMORY * free_bytes), LEAST_BUFFER_BYTES)
        buffer_mib = min(buffer_bytes, MOST_BUFFER_BYTES) >> 20
        words += if_offered(self.binary.path, "--max-buffer-size", str(buffer_mib))
        result = str(self.in_place.result) if self.in_place else from_program_folder(RESULT)
        return self._started(context, [*words, str(self._base(context)), result, self.plan.type])

    def progress(self, now: ProgressUpdate) -> int:
        """Return the number of the tensor that is being written."""
        found = _TENSOR.findall(now.text)
        return int(found[-1][0]) - 1 if found else 0

    def note(self, now: ProgressUpdate) -> str:
        """Return the name of the tensor that is being written."""
        found = _TENSOR.findall(now.text)
        return str(found[-1][2]) if found else ""

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read which tensors were written, and which of them fell back to another type."""
        del job
        log = content(folder / STDOUT_FILE).decode("utf-8", "replace")
        tensors = _TENSOR.findall(log)
        fallbacks = [each.model_dump(mode="json") for each in fallbacks_in(log)]
        return Output(
            result={
                "tensors": int(tensors[-1][0]) if tensors else 0,
                "fallbacks": list(fallbacks),
            }
        )


def fallbacks_in(log: str) -> tuple[Fallback, ...]:
    """Return the tensors that llama-quantize says it gave another type than was meant."""
    return tuple(
        Fallback(
            tensor=tensor, columns=int(columns), block=int(block), wanted=wanted.upper(), type=kind
        )
        for tensor, columns, block, wanted, kind in (
            (*found[:4], found[4].upper()) for found in _FALLBACK.findall(log)
        )
    )
