"""What llama.cpp itself would allocate for a run, which its programs say without loading anything.

The answer is exact for every architecture that the program knows, and for the CPU that it runs on.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import ValidationError

from armload.core.values import Value

FOOTPRINT_VARIABLE = "ARMLOAD_FOOTPRINT"

RUNNING_BYTES = 12_000_000
"""Of code, stacks and samplers that a program first touches when it computes: 2.4 to 5 MB; 12 to
22 MB where the kernel has huge pages for all memory, of which buffers touch many a little."""


class Buffers(Value):
    """What is allocated in buffers of one type.

    Attributes:
        type: as llama.cpp calls it, such as ``CPU_REPACK``.
        weights_bytes: of the model.
        context_bytes: of the KV cache and of recurrent states.
        compute_bytes: for what a graph computes; most of it is address space only.
    """

    type: str
    weights_bytes: int
    context_bytes: int
    compute_bytes: int


class Footprint(Value):
    """Memory of one program with one model and one context.

    Attributes:
        buffers: all that llama.cpp allocates for model and context.
        touched_compute_bytes: of the compute buffers, by micro-batches of which every sequence
            needs the logits of one token.
        work_bytes: scratch memory of the threads.
        output_bytes: of the logits.
        own_bytes: of the program with the model's vocabulary and list of tensors.
        context_tokens: length of the KV cache, for all sequences together.
        sequences: that share it.
    """

    buffers: tuple[Buffers, ...]
    touched_compute_bytes: int
    work_bytes: int
    output_bytes: int
    own_bytes: int
    context_tokens: int
    sequences: int

    @property
    def context_bytes(self) -> int:
        """Of the KV cache and of recurrent states."""
        return sum(each.context_bytes for each in self.buffers)

    @property
    def reserved_bytes(self) -> int:
        """Address space of the compute buffers."""
        return sum(each.compute_bytes for each in self.buffers)

    @property
    def repacked_bytes(self) -> int:
        """Of weights that are kept in another layout, beside the mapped file."""
        return sum(each.weights_bytes for each in self.buffers if each.type != "CPU")

    @property
    def program_bytes(self) -> int:
        """What is touched beside the model's file and the context."""
        buffers_bytes = self.touched_compute_bytes + self.work_bytes + self.output_bytes
        return self.own_bytes + RUNNING_BYTES + buffers_bytes + self.repacked_bytes


class EngineRefusal(Value):
    """Why llama.cpp would not load a file, or not run it.

    Attributes:
        kind: what it refuses: the file, or the options.
        reason: in its own words.
    """

    kind: Literal["file", "options"]
    reason: str


_OF_HEADER = re.compile(r"\bgguf_\w+: (?!failed)(.+)")
_OF_FILE = re.compile(r"error loading model: (?:error loading model \w+: )?(.+)")
_ASSERTED = re.compile(r"llama-model[\w-]*\.cpp:\d+: (GGML_ASSERT\(.+\) failed)")
"""Where a model is loaded; what a graph asserts may lie with the simulation."""
_OF_PROJECTOR = re.compile(
    r"(?:clip_init: failed to load model '.*?': (?:\S+: )?|armload: (?=the encoder's graph))(.+)"
)
_OF_OPTIONS = re.compile(
    r"llama_init_from_model: (?:failed to initialize the context: )?"
    r"(.*(?:requires|require|divide|support|different).*)"
)
_OF_THIS_MACHINE = re.compile(r"/proc/self/fd|alloc", re.IGNORECASE)
_LONGEST_REASON = 300


def read_refusal(output: str) -> EngineRefusal | None:
    """Find in what a program has written why it would not take a file; none where it does not say.

    What lies with the machine that it ran on, such as too little memory, is no refusal.
    """
    for kind, pattern in (
        ("file", _OF_HEADER),
        ("file", _OF_FILE),
        ("file", _ASSERTED),
        ("file", _OF_PROJECTOR),
        ("options", _OF_OPTIONS),
    ):
        for line in output.splitlines():
            match = pattern.search(line)
            if match and not _OF_THIS_MACHINE.search(match[1]):
                reason = "".join(each if each.isprintable() else "?" for each in match[1])
                return EngineRefusal.model_validate(
                    {"kind": kind, "reason": reason.strip().rstrip(".")[:_LONGEST_REASON]}
                )
    return None


def read_footprint(output: str) -> Footprint | None:
    """Find the answer in what a program has printed; none where it has not answered."""
    for line in reversed(output.splitlines()):
        name, _, document = line.partition(" ")
        if name == FOOTPRINT_VARIABLE:
            try:
                return Footprint.model_validate_json(document)
            except ValidationError:
                return None
    return None
