"""One example of each finding with the sentence that it is written as."""

from __future__ import annotations

from armload.analysis.background import BackgroundProcess
from armload.analysis.clocks import MeasuredClock
from armload.analysis.findings import (
    Contended,
    DegenerateText,
    EmulatorDelayed,
    Failed,
    Figures,
    FindingName,
    LeaseLost,
    LockedBytes,
    MoreTokens,
    NotCold,
    NoTrace,
    OutputCount,
    OutputMissing,
    PromptCount,
    SlowerThanShown,
    StorageFull,
    StreamedBytes,
    Swapping,
    TextDiffers,
    Throttled,
    ThrottledByHardware,
    ThrottledFromStart,
    TooFewRepeats,
    TooFewTokens,
    UnderVoltage,
    Unsteady,
    WideSpread,
    WideSpreadOfRepeats,
)
from armload.analysis.run import Finding
from armload.analysis.sanity import Departure, TextFault
from armload.analysis.throttling import ThrottleEvent
from armload.engines.job import Workstation

CC1 = BackgroundProcess(name="cc1", processes=1, cpu_s=9.3, share=0.93)
KSWAPD = BackgroundProcess(name="kswapd0", processes=1, cpu_s=4, share=0.4, kernel=True)
SHARED = Workstation(cores=2, load=8.13)

USE_MORE = MoreTokens(wanted_tokens=9, answer_tokens=None, has_plan=True, has_count=True)
ENDED = MoreTokens(wanted_tokens=9, answer_tokens=8, has_plan=True, has_count=True)
OTHER_ENDED = MoreTokens(wanted_tokens=9, answer_tokens=1, has_plan=False, has_count=True)
UNCOUNTED = MoreTokens(wanted_tokens=9, answer_tokens=None, has_plan=False, has_count=False)

LOW = ThrottleEvent(cause="under-voltage", source="get_throttled", from_s=31.2, active_s=12)
HOT = ThrottleEvent(cause="heat", source="thermal-cpufreq-0", from_s=5, active_s=0.4)

SENTENCES: tuple[tuple[Figures, str], ...] = (
    (Failed(status=132, meaning="ended by SIGILL"), "ended by SIGILL"),
    (NoTrace(), "No trace: the program never began to decode."),
    (
        OutputCount(requested_tokens=9, traced_tokens=8),
        "9 tokens were requested, but the trace has 8.",
    ),
    (
        PromptCount(requested_tokens=128, processed_tokens=64),
        "A prompt of 128 tokens was requested, but 64 were processed.",
    ),
    (
        DegenerateText(fault=TextFault(kind="only white space")),
        (
            "The text contains only white space. Run the model with another program: if its text "
            "is the same there, the file is damaged or its quantisation too coarse."
        ),
    ),
    (
        DegenerateText(fault=TextFault(kind="not UTF-8")),
        (
            "The text is not valid UTF-8. Run the model with another program: if its text is the "
            "same there, the file is damaged or its quantisation too coarse."
        ),
    ),
    (
        DegenerateText(fault=TextFault(kind="white space", share=0.99)),
        (
            "99% of the text is white space. Run the model with another program: if its text is "
            "the same there, the file is damaged or its quantisation too coarse."
        ),
    ),
    (
        DegenerateText(fault=TextFault(kind="noise")),
        (
            "The text is random characters, not language, code or data. Run the model with another "
            "program: if its text is the same there, the file is damaged or its quantisation too "
            "coarse."
        ),
    ),
    (
        DegenerateText(fault=TextFault(kind="repeated character", repeated=",", times=60)),
        (
            "The text ends in a repeated character: ',,,,,,,,'. Give the program a prompt in the "
            "format that the model was trained on."
        ),
    ),
    (
        DegenerateText(
            fault=TextFault(kind="loop", repeated=" of the", times=15),
            has_prompt=True,
            ignores_end=True,
        ),
        (
            "The text ends in a loop: ' of the', repeated 15 times. Use a --prompt in the format "
            "that the model was trained on, or let the model end its answer (--stop-at-end)."
        ),
    ),
    (
        DegenerateText(fault=TextFault(kind="loop", repeated=" of the", times=15), has_prompt=True),
        (
            "The text ends in a loop: ' of the', repeated 15 times. Use a --prompt in the format "
            "that the model was trained on."
        ),
    ),
    (OutputMissing(missing="The program reported no times."), "The program reported no times."),
    (
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
        (
            "The text differs from that of 20260101-r after 3 words (character 12): "
            "'on the mat' instead of 'by the door'."
        ),
    ),
    (
        StorageFull(board="b", steps=9, missing_steps=3),
        (
            "The board's storage was full during the run: 3 of 9 steps are missing from the "
            "trace, and the text may be incomplete. Free space on it with: armload board.clean "
            "--board b"
        ),
    ),
    (
        StorageFull(board="b", steps=9, missing_steps=0),
        (
            "The board's storage was full during the run: the trace may be incomplete, and the "
            "text may be incomplete. Free space on it with: armload board.clean --board b"
        ),
    ),
    (
        NotCold(),
        (
            "--cold was set, but the board's page cache could not be dropped: that needs write "
            "access to /proc/sys/vm/drop_caches, or armload's own program."
        ),
    ),
    (LeaseLost(), "The lease was lost: another user may have used the board. Repeat the run."),
    (
        Swapping(
            out_bytes=163_000_000,
            in_bytes=43_000_000,
            used_before_bytes=10_000_000,
            used_after_bytes=130_000_000,
            total_bytes=10**9,
        ),
        (
            "The board swapped 163.0 MB out and 43.0 MB in during the run (10.0 MB were in use "
            "before, 130.0 MB of 1.0 GB after)."
        ),
    ),
    (
        Swapping(
            out_bytes=50_000_000,
            in_bytes=None,
            used_before_bytes=0,
            used_after_bytes=None,
            total_bytes=0,
        ),
        "The board swapped 50.0 MB out during the run.",
    ),
    (
        Swapping(
            out_bytes=163_000_000,
            in_bytes=43_000_000,
            used_before_bytes=10_000_000,
            used_after_bytes=None,
            total_bytes=0,
            zram=True,
        ),
        (
            "The board moved 163.0 MB out and 43.0 MB in of compressed memory (zram) during the "
            "run: that takes CPU time. Use a smaller model or context, or stop other programs on "
            "the board."
        ),
    ),
    (
        TooFewTokens(timed_tokens=7, needed_tokens=8, more=USE_MORE),
        (
            "Imprecise: 7 tokens were timed after the first, and estimating their spread takes 8. "
            "Use -n 9 or more."
        ),
    ),
    (
        TooFewTokens(timed_tokens=1, needed_tokens=8, more=ENDED),
        (
            "Imprecise: 1 token was timed after the first, and estimating their spread takes 8. "
            "The model ended its answer after 8 tokens: use a --prompt with a longer answer, or "
            "omit --stop-at-end."
        ),
    ),
    (
        TooFewTokens(timed_tokens=7, needed_tokens=8, more=OTHER_ENDED),
        (
            "Imprecise: 7 tokens were timed after the first, and estimating their spread takes 8. "
            "The model ended its answer after 1 token: use a --prompt with a longer answer."
        ),
    ),
    (
        TooFewTokens(timed_tokens=7, needed_tokens=8, more=UNCOUNTED),
        (
            "Imprecise: 7 tokens were timed after the first, and estimating their spread takes 8. "
            "Let the program generate 9 tokens or more."
        ),
    ),
    (
        WideSpread(within=0.131, more=USE_MORE, adds_repeats=True, workstation=None),
        (
            "Imprecise: the median is known only within 13%. Allow more time for repeats "
            "(--precision-time)."
        ),
    ),
    (
        WideSpread(within=0.131, more=USE_MORE, workstation=None),
        ("Imprecise: the median is known only within 13%. Use -n 9 or more."),
    ),
    (
        WideSpread(within=0.131, more=None, workstation=None),
        ("Imprecise: the median is known only within 13%. Stop other programs on the board."),
    ),
    (
        TooFewRepeats(runs=3, needed_runs=6),
        "Imprecise: only 3 of at least 6 repeats. Allow more (--precision-time).",
    ),
    (
        WideSpreadOfRepeats(runs=7, within=0.12, more_runs=33, workstation=None),
        (
            "Imprecise: the median of 7 runs is known only within 12.0%. "
            "Allow more (--precision-time)."
        ),
    ),
    (
        WideSpreadOfRepeats(runs=4, within=0.12, more_runs=3, adds_repeats=False, workstation=None),
        ("Imprecise: the median of 4 runs is known only within 12.0%. Use --repeats 7 or more."),
    ),
    (
        WideSpreadOfRepeats(runs=7, within=0.8, more_runs=1785, workstation=None),
        (
            "Imprecise: the median of 7 runs is known only within 80.0%. The runs differ too much "
            "for more of them to help: stop other programs on the board, fix its clock (--governor "
            "performance), let it cool (--cool-to), and repeat them."
        ),
    ),
    (
        WideSpreadOfRepeats(runs=7, within=0.8, more_runs=1785, workstation=SHARED),
        (
            "Imprecise: the median of 7 runs is known only within 80.0%. The runs differ too much "
            "for more of them to help: stop other programs on the workstation that emulates the "
            "board, and repeat them."
        ),
    ),
    (
        ThrottledFromStart(
            highest_khz=1_416_000, maximum_khz=2_400_000, governor="powersave", celsius=85
        ),
        (
            "Throttled from the start: the fastest cores never exceeded 1.42 of their 2.40 GHz "
            "under the powersave governor, at up to 85 °C. Let the board cool first, or use "
            "the performance governor (bench: --cool-to, --governor)."
        ),
    ),
    (
        ThrottledFromStart(
            highest_khz=1_416_000, maximum_khz=2_400_000, governor="performance", celsius=None
        ),
        (
            "Throttled from the start: the fastest cores never exceeded 1.42 of their 2.40 GHz "
            "under the performance governor. Let the board cool first (bench: --cool-to)."
        ),
    ),
    (
        Throttled(
            time_share=0.48,
            below_khz=1_892_400,
            lowest_khz=1_416_000,
            peak_khz=1_992_000,
            celsius=86,
        ),
        (
            "Throttled: for 48% of the time, none of the run's cores exceeded 1.89 GHz; they fell "
            "from 1.99 to 1.42 GHz, at up to 86 °C. Let the board cool first, or use the "
            "performance governor (bench: --cool-to, --governor)."
        ),
    ),
    (
        UnderVoltage(event=LOW, device="Raspberry Pi 5 Model B Rev 1.0"),
        (
            "Under-voltage at 31 s, for 12 s (get_throttled): the board's supply was too low, and "
            "its clock was lowered. Use a 5 V 5 A supply with a short cable, then restart the "
            "board."
        ),
    ),
    (
        UnderVoltage(event=LOW.model_copy(update={"from_s": 0, "active_s": 0}), device=""),
        (
            "Under-voltage from the start (get_throttled): the board's supply was too low, and its "
            "clock was lowered. Use a stronger supply and a shorter cable."
        ),
    ),
    (
        ThrottledByHardware(event=HOT, celsius=84.4),
        (
            "Throttled at 5 s (thermal-cpufreq-0): the board lowered its clock because of heat, at "
            "up to 84 °C. Let it cool first (bench: --cool-to), or add a heat sink or a fan."
        ),
    ),
    (
        ThrottledByHardware(
            event=HOT.model_copy(update={"cause": "over-current", "source": "oc1_event_cnt"}),
            celsius=None,
        ),
        (
            "Throttled by an over-current event at 5 s (oc1_event_cnt). Use a stronger supply, or "
            "a lower power mode (nvpmodel)."
        ),
    ),
    (
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
        (
            "Throttled: core 2 ran at 0.60 GHz after the run, while the kernel reported 1.40. "
            "Check the board's supply and cooling."
        ),
    ),
    (
        Contended(
            threads=2, busy_share=0.47, switches=40, per="token", process=CC1, workstation=None
        ),
        (
            "Contended: the engine's 2 threads had the CPU for 47% of the time and were preempted "
            "40 times per token, mostly by cc1 (93% of a core). Stop other programs on the board, "
            "or use fewer threads."
        ),
    ),
    (
        Contended(
            threads=2, busy_share=0.47, switches=40, per="prompt", process=KSWAPD, workstation=None
        ),
        (
            "Contended: the engine's 2 threads had the CPU for 47% of the time and were preempted "
            "40 times during prefill, mostly by kswapd0 (kernel, 40% of a core). Stop other "
            "programs on the board, or use fewer threads."
        ),
    ),
    (
        EmulatorDelayed(cpu_share=0.05, cores=2, load=40.12, board_cores=2),
        (
            "Contended: the workstation that emulates the board was busy. The emulator got only "
            "5% of the CPU time that it needed (load 40.1 on 2 cores). Stop other programs on the "
            "workstation, and repeat the run."
        ),
    ),
    (
        EmulatorDelayed(cpu_share=0.05, cores=2, load=40.12, board_cores=4),
        (
            "Contended: the workstation that emulates the board was busy. The emulator got only "
            "5% of the CPU time that it needed (load 40.1 on 2 cores). Stop other programs on the "
            "workstation, emulate no more cores than it has, and repeat the run."
        ),
    ),
    (
        Unsteady(times_median=10, process=None, workstation=SHARED),
        (
            "Unsteady: the slowest 10% of the tokens took 10.0 times the median or more, without "
            "reading from storage. Stop other programs on this machine, whose CPU the virtual "
            "board shares (load 8.1 on 2 cores when the run began), and repeat the run."
        ),
    ),
    (
        Unsteady(times_median=10, process=CC1, workstation=None),
        (
            "Unsteady: the slowest 10% of the tokens took 10.0 times the median or more, without "
            "reading from storage. Another program used the CPU: cc1 (93% of a core). Stop other "
            "programs on the board, and repeat the run."
        ),
    ),
    (
        StreamedBytes(
            read_bytes=9e8,
            streamed_bytes=6 * 10**8,
            weights_bytes=10**9,
            held_bytes=4 * 10**8,
            released_bytes=10**8,
            reads="direct",
        ),
        (
            "Each pass read 900.0 MB from storage instead of 600.0 MB (1.0 GB of weights less "
            "400.0 MB held in memory): 300.0 MB more than needed, with direct reads. Memory ran "
            "short, and 100.0 MB of weights were released: other programs took memory during the "
            "run."
        ),
    ),
    (
        StreamedBytes(
            read_bytes=1e8,
            streamed_bytes=6 * 10**8,
            weights_bytes=10**9,
            held_bytes=4 * 10**8,
            released_bytes=0,
            reads="buffered",
        ),
        (
            "Each pass read 100.0 MB from storage instead of 600.0 MB (1.0 GB of weights less "
            "400.0 MB held in memory): the rest was in the page cache. Drop the page cache "
            "first (bench: --cold), and "
            "leave less memory free."
        ),
    ),
    (
        LockedBytes(said_bytes=4 * 10**8, counted_bytes=10**8),
        (
            "The program locked 400.0 MB of weights, but the kernel reports 100.0 MB of locked "
            "memory (VmLck)."
        ),
    ),
)


def finding(name: FindingName, sentence: str) -> Finding:
    """Return a finding of that name with any figures."""
    figures = next(figures for figures, _ in SENTENCES if figures.name == name)
    return Finding(name=name, figures=figures, sentence=sentence)
