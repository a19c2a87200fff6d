"""What a model computes, and how long that takes: llama.cpp's programs say it of any architecture.

They list the operations of a token and of a part of a prompt, or those of a projector's encoder,
from the file's header alone, and time each on the CPU that they run on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from armload.core.values import Count, Value

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

OPERATIONS_VARIABLE = "ARMLOAD_OPERATIONS"
LIST = "list"
_TIMED = "ARMLOAD_TIMED"
_ENOUGH_ATTEMPTS, _MOST_ATTEMPTS = 2, 6
_ALIKE = 1.3


class Operation(Value):
    """An operation of the graph, on data of certain types and sizes.

    Attributes:
        key: it with the types and sizes of its result and its sources; ``@`` and the kind of
            buffer follow those that are weights, ``@cache`` what a context keeps.
        weights_bytes: that it reads.
        moved_bytes: of its other sources.
    """

    key: str
    weights_bytes: Count
    moved_bytes: Count


class Graph(Value):
    """What is computed in one pass.

    Attributes:
        tokens: that go through the model.
        depth: tokens that the KV cache holds.
        counts: number of an operation, and how often it is computed.
        compute_bytes: of its buffers and of the threads' scratch memory; 0 of a model's graphs.
    """

    tokens: Annotated[int, Field(ge=1)]
    depth: Annotated[int, Field(ge=1)]
    compute_bytes: Count = 0
    counts: tuple[tuple[Count, Count], ...]


class Operations(Value):
    """What a model computes.

    Attributes:
        load_s: of setting it up without its weights: header and vocabulary.
        timed_bytes: of weights that are computed with in turn: more than the CPU's caches hold, or
            all of a smaller model.
        graphs: of one token and of several, with an almost empty KV cache and with a full one.
        operations: of all graphs.
    """

    load_s: Seconds
    timed_bytes: Count
    graphs: Annotated[tuple[Graph, ...], Field(min_length=1)]
    operations: tuple[Operation, ...]

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        if any(number >= len(self.operations) for each in self.graphs for number, _ in each.counts):
            raise ValueError("a graph has an operation that is not in the list")
        return self


class Timed(Value):
    """What an operation takes.

    Attributes:
        number: in the list.
        time_s: of one; none where the CPU could not compute it.
        range_s: of the times that ``time_s`` is the mean of; none for a single one.
        load_s: of giving its weights the layout that the kernels want.
        is_settled: other programs did not keep the cores busy meanwhile.
        attempts: how often it was timed.
        signal: that ended it.
    """

    number: Count
    time_s: Seconds | None = None
    range_s: tuple[Seconds, Seconds] | None = None
    load_s: Seconds = 0.0
    is_settled: bool = True
    attempts: Count = 1
    signal: int | None = None

    @property
    def times_s(self) -> tuple[float, ...]:
        """The shortest and the longest time; empty where the CPU could not compute it."""
        return self.range_s or (() if self.time_s is None else (self.time_s,))

    @property
    def may_improve(self) -> bool:
        """Whether timing it again is worth it: once, and more often while its times differ."""
        times_s = self.times_s or (0.0,)
        is_steady = self.is_settled and times_s[-1] <= _ALIKE * times_s[0]
        return self.attempts < (_ENOUGH_ATTEMPTS if is_steady else _MOST_ATTEMPTS)

    def is_like(self, other: Timed) -> bool:
        """Return whether the board computed it about as fast as the other time."""
        if not (self.time_s and other.time_s):
            return self.time_s == other.time_s
        return 1 / _ALIKE <= self.time_s / other.time_s <= _ALIKE

    def after(self, earlier: Timed | None) -> Timed:
        """Return what counts of this and what was timed earlier.

        That is the mean of what no other program disturbed; the shortest where all was disturbed.
        """
        if earlier is None or earlier.time_s is None or self.time_s is None:
            return self
        counts = min(self, earlier, key=lambda one: (not one.is_settled, one.time_s))
        if self.is_settled and earlier.is_settled:
            # A board that has become slower, or faster, for good is known after some attempts.
            weight = 1 / min(earlier.attempts + 1, _MOST_ATTEMPTS)
            times_s = (*self.times_s, *earlier.times_s)
            counts = self.model_copy(
                update={
                    "time_s": weight * self.time_s + (1 - weight) * earlier.time_s,
                    "range_s": (min(times_s), max(times_s)),
                }
            )
        return counts.model_copy(update={"attempts": earlier.attempts + 1})


def read_operations(output: str) -> Operations | None:
    """Find the list in what a program has printed; none where there is none."""
    for document in _documents(OPERATIONS_VARIABLE, output):
        try:
            return Operations.model_validate_json(document)
        except ValidationError:
            return None
    return None


def read_timed(output: str) -> Iterator[Timed]:
    """Find what was timed, up to where the program may have been ended."""
    for document in _documents(_TIMED, output):
        try:
            yield Timed.model_validate_json(document)
        except ValidationError:
            return


def _documents(wanted: str, output: str) -> Iterator[str]:
    for line in output.splitlines():
        name, _, document = line.partition(" ")
        if name == wanted:
            yield document
