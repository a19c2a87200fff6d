"""Examples of findings on a run and of limits, one for each case that their words distinguish."""

from __future__ import annotations

from armload.analysis.background import BackgroundProcess
from armload.analysis.clocks import MeasuredClock
from armload.analysis.contention import Contended, Unsteady
from armload.analysis.device_clocks import SlowMemory
from armload.analysis.emulation import EmulatorDelayed
from armload.analysis.finding import RunFinding
from armload.analysis.limit_findings import (
    BandwidthLimit,
    ComputedOnGpu,
    ComputeLimit,
    GroupLimit,
    IdleThreads,
    LimitFinding,
    NothingDecoded,
    OtherProgram,
    SharedLimit,
    StorageLimit,
    StorageReads,
    UnknownBandwidth,
)
from armload.analysis.output_doubts import (
    ContextDepth,
    DegenerateText,
    Failed,
    NoTrace,
    OutputCount,
    OutputMissing,
    PromptCount,
    TextDiffers,
)
from armload.analysis.precision import (
    MoreTokens,
    TooFewRepeats,
    TooFewTokens,
    WideSpread,
    WideSpreadOfRepeats,
)
from armload.analysis.sanity import Departure, TextFault
from armload.analysis.streaming import LockedBytes, StreamedBytes
from armload.analysis.throttling import (
    SlowerThanShown,
    Throttled,
    ThrottledByHardware,
    ThrottledFromStart,
    ThrottleEvent,
    UnderVoltage,
)
from armload.analysis.verdict import KeptFinding, LeaseLost, NotCold, StorageFull, Swapping, Verdict
from armload.engines.job import Workstation
from armload.engines.prediction import PartTime

CC1 = BackgroundProcess(name="cc1", processes=1, cpu_s=9.3, share=0.93)
KSWAPD = BackgroundProcess(name="kswapd0", processes=1, cpu_s=4, share=0.4, kernel=True)
SHARED = Workstation(cores=2, load=8.13)

USE_MORE = MoreTokens(wanted_tokens=9, answer_tokens=None, has_plan=True, has_count=True)
ENDED = MoreTokens(wanted_tokens=9, answer_tokens=8, has_plan=True, has_count=True)
OTHER_ENDED = MoreTokens(wanted_tokens=9, answer_tokens=1, has_plan=False, has_count=True)
UNCOUNTED = MoreTokens(wanted_tokens=9, answer_tokens=None, has_plan=False, has_count=False)

LOW = ThrottleEvent(cause="under-voltage", source="get_throttled", from_s=31.2, active_s=12)
HOT = ThrottleEvent(cause="heat", source="thermal-cpufreq-0", from_s=5, active_s=0.4)

EXAMPLES: tuple[RunFinding, ...] = (
    Failed(status=132, meaning="ended by SIGILL"),
    NoTrace(),
    OutputCount(requested_tokens=9, traced_tokens=8),
    PromptCount(requested_tokens=128, processed_tokens=64),
    ContextDepth(requested_tokens=4096, restored_tokens=0),
    DegenerateText(fault=TextFault(kind="only white space")),
    DegenerateText(fault=TextFault(kind="not UTF-8")),
    DegenerateText(fault=TextFault(kind="white space", share=0.99)),
    DegenerateText(fault=TextFault(kind="noise")),
    DegenerateText(fault=TextFault(kind="repeated character", repeated=",", times=60)),
    DegenerateText(
        fault=TextFault(kind="loop", repeated=" of the", times=15),
        has_prompt=True,
        ignores_end=True,
    ),
    DegenerateText(fault=TextFault(kind="loop", repeated=" of the", times=15), has_prompt=True),
    OutputMissing(missing="The program reported no times."),
    TextDiffers(
        departure=Departure(
            reference="20260101-r",
            kind="differs",
            at_character=12,
            at_word=3,
            here="on the mat",
            there="by the door",
        )
    ),
    StorageFull(board="b", steps=9, missing_steps=3),
    StorageFull(board="b", steps=9, missing_steps=0),
    StorageFull(board="b", steps=0, missing_steps=0, is_other_member=True),
    NotCold(),
    LeaseLost(),
    Swapping(
        out_bytes=163_000_000,
        in_bytes=43_000_000,
        used_before_bytes=10_000_000,
        used_after_bytes=130_000_000,
        total_bytes=10**9,
    ),
    Swapping(
        out_bytes=50_000_000,
        in_bytes=None,
        used_before_bytes=0,
        used_after_bytes=None,
        total_bytes=0,
    ),
    Swapping(
        out_bytes=163_000_000,
        in_bytes=43_000_000,
        used_before_bytes=10_000_000,
        used_after_bytes=None,
        total_bytes=0,
        zram=True,
    ),
    TooFewTokens(timed_tokens=7, needed_tokens=8, more=USE_MORE),
    TooFewTokens(timed_tokens=1, needed_tokens=8, more=ENDED),
    TooFewTokens(timed_tokens=7, needed_tokens=8, more=OTHER_ENDED),
    TooFewTokens(timed_tokens=7, needed_tokens=8, more=UNCOUNTED),
    WideSpread(within=0.131, more=USE_MORE, adds_repeats=True, workstation=None),
    WideSpread(within=0.131, more=USE_MORE, workstation=None),
    WideSpread(within=0.131, more=None, workstation=None),
    TooFewRepeats(runs=3, needed_runs=6),
    WideSpreadOfRepeats(runs=7, within=0.12, more_runs=33, workstation=None),
    WideSpreadOfRepeats(runs=4, within=0.12, more_runs=3, adds_repeats=False, workstation=None),
    WideSpreadOfRepeats(runs=7, within=0.8, more_runs=1785, workstation=None),
    WideSpreadOfRepeats(runs=7, within=0.8, more_runs=1785, workstation=SHARED),
    ThrottledFromStart(
        highest_khz=1_416_000, maximum_khz=2_400_000, governor="powersave", celsius=85
    ),
    ThrottledFromStart(
        highest_khz=1_416_000, maximum_khz=2_400_000, governor="performance", celsius=None
    ),
    Throttled(
        time_share=0.48,
        below_khz=1_892_400,
        lowest_khz=1_416_000,
        peak_khz=1_992_000,
        celsius=86,
    ),
    UnderVoltage(event=LOW, device="Raspberry Pi 5 Model B Rev 1.0"),
    UnderVoltage(event=LOW.model_copy(update={"from_s": 0, "active_s": 0}), device=""),
    ThrottledByHardware(event=HOT, celsius=84.4),
    ThrottledByHardware(
        event=HOT.model_copy(update={"cause": "over-current", "source": "oc1_event_cnt"}),
        celsius=None,
    ),
    SlowerThanShown(
        clock=MeasuredClock(
            moment="after",
            core=2,
            cycles=2_097_152,
            ns=3_495_253,
            by="loop",
            shown_khz=1_400_000,
        )
    ),
    SlowMemory(
        lowest_hz=528_000_000,
        most_hz=528_000_000,
        allowed_hz=2_112_000_000,
        time_share=0.61,
        phase="decode",
        governor="dmc_ondemand",
    ),
    SlowMemory(
        lowest_hz=204_000_000,
        most_hz=2_133_000_000,
        allowed_hz=3_199_000_000,
        time_share=1,
        phase="run",
        governor=None,
    ),
    Contended(threads=2, busy_share=0.47, switches=40, per="token", process=CC1, workstation=None),
    Contended(
        threads=2, busy_share=0.47, switches=40, per="prompt", process=KSWAPD, workstation=None
    ),
    EmulatorDelayed(cpu_share=0.05, cores=2, load=40.12, board_cores=2),
    EmulatorDelayed(cpu_share=0.05, cores=2, load=40.12, board_cores=4),
    Unsteady(times_median=10, process=None, workstation=SHARED),
    Unsteady(times_median=10, process=CC1, workstation=None),
    StreamedBytes(
        read_bytes=9e8,
        streamed_bytes=6 * 10**8,
        weights_bytes=10**9,
        held_bytes=4 * 10**8,
        released_bytes=10**8,
        reads="direct",
    ),
    StreamedBytes(
        read_bytes=1e8,
        streamed_bytes=6 * 10**8,
        weights_bytes=10**9,
        held_bytes=4 * 10**8,
        released_bytes=0,
        reads="buffered",
    ),
    LockedBytes(said_bytes=4 * 10**8, counted_bytes=10**8),
)

STORAGE = StorageLimit(
    has_single_tokens=True,
    pass_s=18.18,
    read_bytes_per_pass=2.9e9,
    faults_per_pass=0,
    storage_bytes_per_s=165_000_000,
    storage_rate=None,
    free_bytes=1_700_000_000,
    memory_limit_bytes=None,
    held_bytes=None,
    weights_bytes=None,
    model_bytes=3_000_000_000,
)
COMPUTE = ComputeLimit(
    threads=2,
    cores=2,
    busy_share=1.01,
    reads=StorageReads(),
    weights_bytes_per_s=4e8,
    memory_bytes_per_s=None,
    memory_rate=None,
    cpus=None,
    cpus_cores=2,
    quantisation="Q4_K",
)
IDLE = IdleThreads(
    threads=2,
    busy_share=0.6,
    reads=StorageReads(time_share=0.08, bytes_per_token=3e6),
    switches_per_token=40,
)
SHARED_LAYERS = SharedLimit(
    token_s=0.1,
    parts=(
        PartTime(kind="member", board="a", token_s=0.08),
        PartTime(kind="member", board="b", token_s=0.075),
    ),
)
LIMITS: tuple[LimitFinding, ...] = (
    ComputedOnGpu(busy_cores=0.8, cores=8),
    STORAGE,
    STORAGE.model_copy(update={"storage_rate": "measured", "memory_limit_bytes": 2 * 10**9}),
    STORAGE.model_copy(
        update={"read_bytes_per_pass": None, "faults_per_pass": 20_000, "model_bytes": None}
    ),
    STORAGE.model_copy(update={"model_bytes": 529_000_000}),
    STORAGE.model_copy(
        update={
            "has_single_tokens": False,
            "storage_bytes_per_s": None,
            "held_bytes": 10**8,
            "weights_bytes": 3 * 10**9,
        }
    ),
    BandwidthLimit(
        has_single_tokens=True,
        weights_bytes=1_100_000_000,
        weights_bytes_per_s=2.75e9,
        memory_bytes_per_s=3 * 10**9,
        memory_rate="declared",
    ),
    UnknownBandwidth(
        busy_share=0.98,
        reads=StorageReads(time_share=0.004, bytes_per_token=2200),
        weights_bytes_per_s=4e9,
    ),
    COMPUTE,
    COMPUTE.model_copy(
        update={
            "memory_bytes_per_s": 3 * 10**9,
            "memory_rate": "measured",
            "quantisation": "Q4_0",
        }
    ),
    COMPUTE.model_copy(
        update={"threads": 1, "reads": StorageReads(time_share=0.02, faults_per_token=4)}
    ),
    COMPUTE.model_copy(update={"cores": 8, "cpus": "4,5"}),
    IDLE,
    IDLE.model_copy(update={"threads": 1, "reads": StorageReads()}),
    OtherProgram(busy_cores=1.2, cores=4, reads=StorageReads()),
    GroupLimit(first="a", others=("b", "c"), token_s=0.5, own_s=0.1, alone_s=0.3),
    GroupLimit(first="a", others=("b", "c"), token_s=0.5, own_s=0.2, alone_s=0.6),
    SHARED_LAYERS,
    SHARED_LAYERS.model_copy(update={"token_s": 0.15, "is_direct": True}),
    SHARED_LAYERS.model_copy(
        update={
            "parts": tuple(
                PartTime(kind="member", board=board, token_s=time_s)
                for board, time_s in (("a", 0.08), ("b", 0.04))
            )
        }
    ),
    SHARED_LAYERS.model_copy(update={"crowded": ("b",)}),
    NothingDecoded(lacking="trace"),
    NothingDecoded(lacking="token times"),
    NothingDecoded(lacking="tokens"),
)


def verdict_of(**sentences: str) -> Verdict:
    """Return a verdict of findings with any figures: their names, ``_`` for a space, and words."""
    doubts = []
    for name, sentence in sentences.items():
        figures = next(each for each in EXAMPLES if each.name == name.replace("_", " "))
        doubts.append(KeptFinding(name=figures.name, figures=figures, sentence=sentence))
    return Verdict(valid=not doubts, reasons=tuple(sentences.values()), findings=tuple(doubts))
