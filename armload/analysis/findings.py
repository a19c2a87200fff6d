"""Reasons to doubt a run, each a kind with its numbers; the wording package makes the sentences."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from armload.analysis.background import BackgroundProcess
from armload.analysis.clocks import MeasuredClock
from armload.analysis.sanity import Departure, TextFault
from armload.analysis.throttling import ThrottleEvent
from armload.core.values import Value
from armload.engines.job import Workstation

FindingName = Literal[
    "failed",
    "no trace",
    "token count",
    "degenerate text",
    "output missing",
    "text differs",
    "throttled",
    "under-voltage",
    "contended",
    "imprecise",
    "unsteady",
    "not cold",
    "storage full",
    "swapped",
    "streaming",
    "lease lost",
]
"""Every reason to doubt a run, as tables, documents and the pages of the docs call it."""


class Failed(Value):
    """The program failed: its exit status, none when it was never known."""

    name: ClassVar[FindingName] = "failed"
    kind: Literal["failed"] = "failed"
    status: int | None
    meaning: str


class NoTrace(Value):
    """The program never began to decode."""

    name: ClassVar[FindingName] = "no trace"
    kind: Literal["no trace"] = "no trace"


class OutputCount(Value):
    """Another number of output tokens than requested."""

    name: ClassVar[FindingName] = "token count"
    kind: Literal["output count"] = "output count"
    requested_tokens: int
    traced_tokens: int


class PromptCount(Value):
    """Another number of prompt tokens than requested."""

    name: ClassVar[FindingName] = "token count"
    kind: Literal["prompt count"] = "prompt count"
    requested_tokens: int
    processed_tokens: int


class DegenerateText(Value):
    """The text is no language.

    Attributes:
        has_prompt: armload's own engine ran, whose prompt can be changed.
        ignores_end: the model had to go on where it would have ended its answer.
    """

    name: ClassVar[FindingName] = "degenerate text"
    kind: Literal["degenerate text"] = "degenerate text"
    fault: TextFault
    has_prompt: bool = False
    ignores_end: bool = False


class OutputMissing(Value):
    """The engine lacks something in its output, in the engine's words."""

    name: ClassVar[FindingName] = "output missing"
    kind: Literal["output missing"] = "output missing"
    missing: str


class TextDiffers(Value):
    """The text departs from the reference's."""

    name: ClassVar[FindingName] = "text differs"
    kind: Literal["text differs"] = "text differs"
    departure: Departure


class StorageFull(Value):
    """The board's storage was full; of ``steps``, ``missing_steps`` are not in the trace."""

    name: ClassVar[FindingName] = "storage full"
    kind: Literal["storage full"] = "storage full"
    board: str
    steps: int
    missing_steps: int


class NotCold(Value):
    """The page cache could not be dropped."""

    name: ClassVar[FindingName] = "not cold"
    kind: Literal["not cold"] = "not cold"


class LeaseLost(Value):
    """Another user may have used the board."""

    name: ClassVar[FindingName] = "lease lost"
    kind: Literal["lease lost"] = "lease lost"


class Swapping(Value):
    """The board swapped during the run.

    Attributes:
        out_bytes, in_bytes: moved meanwhile; ``in_bytes`` is none where only the use is known.
        used_before_bytes, used_after_bytes: of swap; after is none where it is not known.
        total_bytes: of swap; 0 where it is not known.
        zram: what was moved stayed in compressed memory.
    """

    name: ClassVar[FindingName] = "swapped"
    kind: Literal["swapped"] = "swapped"
    out_bytes: int
    in_bytes: int | None
    used_before_bytes: int
    used_after_bytes: int | None
    total_bytes: int
    zram: bool = False


class MoreTokens(Value):
    """How more tokens can be timed.

    Attributes:
        wanted_tokens: to be generated.
        answer_tokens: after which the model ended its answer; none if it did not.
        has_plan: armload's own engine ran, which need not stop at the answer's end.
        has_count: the number of tokens can be set.
    """

    wanted_tokens: int
    answer_tokens: int | None
    has_plan: bool
    has_count: bool


class TooFewTokens(Value):
    """Too few tokens to estimate their spread."""

    name: ClassVar[FindingName] = "imprecise"
    kind: Literal["too few tokens"] = "too few tokens"
    timed_tokens: int
    needed_tokens: int
    more: MoreTokens


class WideSpread(Value):
    """The median of the tokens' times is not known well enough.

    Attributes:
        within: share of the median that its interval reaches from it.
        more: what would narrow it; none where more tokens would not.
        adds_repeats: the run is repeated until the time for repeats is used up.
    """

    name: ClassVar[FindingName] = "imprecise"
    kind: Literal["wide spread"] = "wide spread"
    within: float
    more: MoreTokens | None
    adds_repeats: bool = False
    workstation: Workstation | None


class TooFewRepeats(Value):
    """Too few repeats for an interval of their median."""

    name: ClassVar[FindingName] = "imprecise"
    kind: Literal["too few repeats"] = "too few repeats"
    runs: int
    needed_runs: int


MOST_MORE_RUNS = 100
"""Where more than so many would be needed, the runs differ too much, and that is what to mend."""


class WideSpreadOfRepeats(Value):
    """The median over the repeats is not known well enough; ``within`` is a share of it.

    Attributes:
        more_runs: that would be needed.
        adds_repeats: armload repeats until the time for that is used up; otherwise their number
            was fixed.
        workstation: that a virtual board shares its CPU with.
    """

    name: ClassVar[FindingName] = "imprecise"
    kind: Literal["wide spread of repeats"] = "wide spread of repeats"
    runs: int
    within: float
    more_runs: int
    adds_repeats: bool = True
    workstation: Workstation | None


class ThrottledFromStart(Value):
    """The fastest cores never came near their maximum frequency."""

    name: ClassVar[FindingName] = "throttled"
    kind: Literal["throttled from the start"] = "throttled from the start"
    highest_khz: int
    maximum_khz: int
    governor: str | None
    celsius: float | None


class Throttled(Value):
    """For a share of the time no core exceeded ``below_khz``; the highest was ``peak_khz``."""

    name: ClassVar[FindingName] = "throttled"
    kind: Literal["throttled"] = "throttled"
    time_share: float
    below_khz: float
    lowest_khz: int
    peak_khz: int
    celsius: float | None


class UnderVoltage(Value):
    """The board's supply was too low for a time.

    Attributes:
        device: the board's own name for itself; empty where it has none.
    """

    name: ClassVar[FindingName] = "under-voltage"
    kind: Literal["under-voltage"] = "under-voltage"
    event: ThrottleEvent
    device: str


class ThrottledByHardware(Value):
    """Hardware, firmware or the kernel lowered the clock, and say why."""

    name: ClassVar[FindingName] = "throttled"
    kind: Literal["throttled by hardware"] = "throttled by hardware"
    event: ThrottleEvent
    celsius: float | None


class SlowerThanShown(Value):
    """The kernel showed a frequency that a core did not have; at its worst moment."""

    name: ClassVar[FindingName] = "throttled"
    kind: Literal["slower than shown"] = "slower than shown"
    clock: MeasuredClock


class SlowedFromOutside(Value):
    """What may have slowed a run down.

    Attributes:
        process: the busiest background process, if it was busy enough to be named.
        workstation: that a virtual board shares its CPU with.
    """

    process: BackgroundProcess | None
    workstation: Workstation | None


class Contended(SlowedFromOutside):
    """The engine's threads were preempted.

    Attributes:
        busy_share: of the time in which they had the CPU.
        switches: involuntary ones, per token or while the prompt was read.
    """

    name: ClassVar[FindingName] = "contended"
    kind: Literal["contended"] = "contended"
    threads: int
    busy_share: float
    switches: int
    per: Literal["token", "prompt"]


class EmulatorDelayed(Value):
    """The workstation that emulates a virtual board was busy with other programs.

    Attributes:
        cpu_share: that the emulator had of the CPU time it wanted.
        cores, load: of the workstation; the load is the highest during the run.
        board_cores: how many the board has.
    """

    name: ClassVar[FindingName] = "contended"
    kind: Literal["emulator delayed"] = "emulator delayed"
    cpu_share: float
    cores: int
    load: float
    board_cores: int


class Unsteady(SlowedFromOutside):
    """The 90th percentile of the time per token is ``times_median`` medians."""

    name: ClassVar[FindingName] = "unsteady"
    kind: Literal["unsteady"] = "unsteady"
    times_median: float


class StreamedBytes(Value):
    """A pass read another number of bytes than the weights that are streamed."""

    name: ClassVar[FindingName] = "streaming"
    kind: Literal["streamed bytes"] = "streamed bytes"
    read_bytes: float
    streamed_bytes: int
    weights_bytes: int
    held_bytes: int
    released_bytes: int
    reads: str


class LockedBytes(Value):
    """The kernel counts less locked memory than the program says that it locked."""

    name: ClassVar[FindingName] = "streaming"
    kind: Literal["locked bytes"] = "locked bytes"
    said_bytes: int
    counted_bytes: int


Figures = Annotated[
    Failed
    | NoTrace
    | OutputCount
    | PromptCount
    | DegenerateText
    | OutputMissing
    | TextDiffers
    | StorageFull
    | NotCold
    | LeaseLost
    | Swapping
    | TooFewTokens
    | WideSpread
    | TooFewRepeats
    | WideSpreadOfRepeats
    | ThrottledFromStart
    | Throttled
    | UnderVoltage
    | ThrottledByHardware
    | SlowerThanShown
    | Contended
    | EmulatorDelayed
    | Unsteady
    | StreamedBytes
    | LockedBytes,
    Field(discriminator="kind"),
]
"""What was found, before it has its sentence."""
