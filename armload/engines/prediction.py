"""What was expected of a run before it began, as it is kept with the run."""

from __future__ import annotations

from typing import Literal

from armload.core.values import Value
from armload.engines.media import MediaNeed
from armload.engines.spread import Share, Split

FitVerdict = Literal["fits", "streams", "reads storage", "cannot run", "unknown"]
Bottleneck = Literal["storage", "memory bandwidth", "compute", "unknown"]
"""What limits decode: as forecast, and as found in a run."""


class Expected(Value):
    """A figure that is expected, and between which bounds it should lie."""

    value: float
    low: float
    high: float

    @classmethod
    def within(cls, value: float, share: float) -> Expected:
        """Expect a value within a share of it on either side."""
        return cls(value=value, low=value / (1 + share), high=value * (1 + share))

    @classmethod
    def nothing(cls) -> Expected:
        return cls(value=0.0, low=0.0, high=0.0)

    def __add__(self, other: Expected) -> Expected:
        """Add times that follow each other."""
        return Expected(
            value=self.value + other.value, low=self.low + other.low, high=self.high + other.high
        )

    def __mul__(self, factor: Expected | float) -> Expected:
        by = factor if isinstance(factor, Expected) else Expected.within(factor, 0.0)
        return Expected(
            value=self.value * by.value, low=self.low * by.low, high=self.high * by.high
        )

    def longer(self, other: Expected) -> Expected:
        """Return how long two things take that are done at the same time."""
        return Expected(
            value=max(self.value, other.value),
            low=max(self.low, other.low),
            high=max(self.high, other.high),
        )


class MemoryParts(Value):
    """Memory that a run needs, and what there is.

    Attributes:
        weights_bytes: of the model's file.
        row_table_bytes: of these, what need not stay in memory: a token reads a row of it.
        kv_bytes: of the KV cache at its full length.
        program_bytes: of the program with its buffers.
        window_bytes: for reading ahead; 0 unless weights are streamed.
        reserve_bytes: left free.
        available_bytes: before the run.
        reserved_bytes: address space of the program's buffers; ``program_bytes`` counts what is
            touched of it. None where it is unknown.
        is_exact: what the program and its context need is llama.cpp's own figure; else it is
            estimated from the model's header, and the program may need more.
        projector_bytes: of a projector with the encoder's buffers, which are released before the
            model computes.
    """

    weights_bytes: int
    row_table_bytes: int = 0
    kv_bytes: int
    program_bytes: int
    window_bytes: int
    reserve_bytes: int
    available_bytes: int
    reserved_bytes: int | None = None
    is_exact: bool = False
    projector_bytes: int = 0

    @property
    def wanted_bytes(self) -> int:
        """With which nothing is read again from storage."""
        return self.weights_bytes - self.row_table_bytes + self.kv_bytes + self.program_bytes

    @property
    def peak_bytes(self) -> int:
        """Of a program whose weights stay in memory, with a projector beside them."""
        return self.weights_bytes + self.kv_bytes + self.program_bytes + self.projector_bytes

    @property
    def least_bytes(self) -> int:
        """Without which it cannot run: everything but the weights."""
        in_turn = max(self.window_bytes, self.projector_bytes)
        return self.kv_bytes + self.program_bytes + in_turn + self.reserve_bytes

    @property
    def evicted_bytes(self) -> int:
        """Of weights that stay in memory, what an encoder displaces before the model computes."""
        free_bytes = self.available_bytes - self.reserve_bytes - self.wanted_bytes
        return max(0, min(self.weights_bytes, self.projector_bytes - free_bytes))


class Sequences(Value):
    """What shares a KV cache, each with an equal part of it.

    Attributes:
        count: how many there are.
        kind: of a service, of an evaluation, or a run by itself.
        least_tokens: that each needs, for a prompt and its output.
    """

    count: int = 1
    kind: Literal["run", "slot", "question", "text"] = "run"
    least_tokens: int = 1


PredictionNoteKind = Literal[
    "estimated from facts",
    "storage rate unknown",
    "memory rate unknown",
    "cores only",
    "operations disturbed",
    "operations failed",
    "encoder not timed",
    "memory assumed",
    "memory unknown",
    "lower bound",
    "read by row",
    "group",
    "emulated",
    "emulated, not timed",
    "group without links",
    "cluster from facts",
]


class PredictionNote(Value):
    """What a reader should know of a prediction's figures.

    Attributes:
        kind: for programs.
        subject: the board or model that it names; else empty.
        reason: in the words of the error or of the model's header; the share of memory that is
            assumed, or the size of what is read by row; else empty.
        sentence: for people.
    """

    kind: PredictionNoteKind
    subject: str = ""
    reason: str = ""
    sentence: str


class HitRate(Value):
    """Share of the experts that a token uses, in bytes, that are in memory already.

    Attributes:
        kind: ``assumed`` that all experts are used alike, so that it is the share that stays in
            memory; ``measured`` in an earlier run.
    """

    value: float
    kind: Literal["assumed", "measured"]


class PartTime(Value):
    """What a member of a group, or the connection to it, takes for each output token.

    Attributes:
        kind: of what.
        board: the member.
    """

    kind: Literal["member", "link"]
    board: str
    token_s: float

    @property
    def name(self) -> str:
        """The member's name, or what the connection to it is called."""
        return self.board if self.kind == "member" else f"the connection to {self.board}"


class GroupForecast(Value):
    """What the parts of a group take.

    Attributes:
        split: with ``layer`` their times add up; with ``tensor`` members compute at once.
        parts: members in their order, then the connections to those on which a server runs.
    """

    split: Split
    parts: tuple[PartTime, ...]

    @property
    def longest(self) -> PartTime:
        """What takes most of a token."""
        return max(self.parts, key=lambda part: part.token_s)


AlternativeKind = Literal["alone, mapped", "alone, streamed", "dllama"]


class Alternative(Value):
    """Another way to run a model on the boards of a group.

    Attributes:
        kind: on the first board alone, its weights mapped or streamed; or on all of them with
            distributed-llama.
        token_s: per output token; none where that is unknown or not possible.
        refused: why it is not possible; else empty.
    """

    kind: AlternativeKind
    token_s: Expected | None = None
    refused: str = ""


class Division(Value):
    """How a model could be divided between the members of a group.

    Attributes:
        shares: of the members, with whole layers; none where it cannot be divided.
        refused: why it cannot; else empty.
        tensor_s: per output token, with a part of every layer on each member; none where that is
            unknown or not possible.
        alternatives: other ways than these two.
    """

    shares: tuple[Share, ...] = ()
    refused: str = ""
    tensor_s: Expected | None = None
    alternatives: tuple[Alternative, ...] = ()

    def alternative(self, kind: AlternativeKind) -> Alternative | None:
        return next((each for each in self.alternatives if each.kind == kind), None)


class MediaForecast(Value):
    """What is expected of an image or a sound before the first token.

    Attributes:
        need: what it asks for.
        encoder_s: of all passes of the encoder; none where it is unknown.
        compute: how that is known: from the encoder's operations, timed on the board, or from a
            roofline of its facts.
    """

    need: MediaNeed
    encoder_s: Expected | None = None
    compute: Literal["operations", "roofline", "unknown"] = "unknown"


class TextForecast(Value):
    """What is expected of texts that are embedded, or scored.

    Attributes:
        tokens: of each.
        at_a_time: in a pass over the weights.
        text_s: per text; none where it is unknown.
    """

    tokens: int
    at_a_time: int
    text_s: Expected | None = None


class Prediction(Value):
    """What is expected of a run.

    Attributes:
        verdict: the weights stay in memory; are streamed from storage; are mapped, and read again
            for every token; or the KV cache does not fit.
        context_tokens: length of the KV cache, for all sequences together.
        sequences: that share it.
        prompt_tokens: of the prompt that ``ttft_s`` is for.
        memory: none where the board's is unknown.
        load_s: from the start of the process until the prompt is processed.
        ttft_s: to the end of the prompt, loading included.
        token_s: per output token.
        storage_bytes_per_token: that each token reads from storage.
        hit_rate: of streamed experts; none of other weights.
        bottleneck: of a token.
        compute: how the time of computing is known: from operations that were timed on the board,
            from a roofline of its facts (bounds of times are then those of an 80 % interval), or
            not.
        largest_context: of each sequence, that would fit where the KV cache does not; 0 where
            none does.
        largest_alone: likewise of one sequence, where there are several.
        group: what the members of a group and their connections take; none on one board.
        division: of a group for which no run is planned yet.
        notes: what a reader should know of these figures.
        media: an image, or a sound, before the prompt; its tokens are among ``prompt_tokens``.
        texts: of a run that embeds texts, which has no times of tokens; none of others.
    """

    verdict: FitVerdict
    context_tokens: int
    sequences: Sequences = Sequences()
    prompt_tokens: int
    memory: MemoryParts | None = None
    load_s: Expected | None = None
    ttft_s: Expected | None = None
    token_s: Expected | None = None
    storage_bytes_per_token: int = 0
    hit_rate: HitRate | None = None
    bottleneck: Bottleneck = "unknown"
    compute: Literal["operations", "roofline", "unknown"] = "unknown"
    largest_context: int | None = None
    largest_alone: int | None = None
    group: GroupForecast | None = None
    division: Division | None = None
    notes: tuple[PredictionNote, ...] = ()
    media: MediaForecast | None = None
    texts: TextForecast | None = None

    @property
    def unit_s(self) -> Expected | None:
        """Per output token, or per text that is embedded; by it models are compared."""
        return self.texts.text_s if self.texts else self.token_s
