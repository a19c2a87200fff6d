"""What an engine's files say of a run, before anything is computed from it or judged."""

from __future__ import annotations

from pydantic import JsonValue

from armload.core.values import Count, Finite, Value, format_bytes, format_seconds
from armload.engines.placement import Placement
from armload.engines.trace import Step, Trace


class Memory(Value):
    """Peak memory of the process, from ``/proc/<pid>/status``."""

    max_rss_bytes: Count
    max_vms_bytes: Count


class EngineTimes(Value):
    """The engine's own sums, as it prints them.

    Attributes:
        prompt_ms, eval_ms: time in prompt and generating steps.
        prompt_tokens, eval_tokens: tokens in them (never below 1, as llama.cpp counts).
        load_ms: time to load the model; none where the engine does not say it.
    """

    prompt_ms: Finite
    prompt_tokens: Count
    eval_ms: Finite
    eval_tokens: Count
    load_ms: Finite | None = None


class Reported(Value):
    """Figures that a program gives of itself, where there is no trace to compute them from.

    Attributes:
        ttft_s: from the process's start to its first output token.
        wall_s: from the process's start to its end.
        prefill_s, prefill_tokens, prefill_tps, decode_s, decode_tokens, decode_tps: as in a
            run's summary.
    """

    ttft_s: Finite | None = None
    wall_s: Finite | None = None
    prefill_s: Finite | None = None
    prefill_tokens: Count | None = None
    prefill_tps: Finite | None = None
    decode_s: Finite | None = None
    decode_tokens: Count | None = None
    decode_tps: Finite | None = None


class ReportedFigure(Value):
    """One more figure that a program printed of itself.

    Attributes:
        name: as its reader calls it, such as ``load_time``.
        unit: seconds (``s``), ``bytes``, ``tokens/s``, or what the reader gives; empty for a count.
    """

    name: str
    value: Finite
    unit: str

    @property
    def words(self) -> str:
        """The figure for people, such as ``load time 3.36 s``."""
        if self.unit == "s":
            number = format_seconds(self.value)
        elif self.unit == "bytes":
            number = format_bytes(round(self.value))
        else:
            number = f"{self.value:.4g} {self.unit}".rstrip()
        return f"{self.name.replace('_', ' ')} {number}"


class Output(Value):
    """What an engine's files say of a run.

    Attributes:
        header: the trace's first line; none when the engine never began.
        steps: of the engine, in the order of time.
        text: what it generated; none where it generates no text.
        reported: its own figures; none where they are computed from the steps.
        figures: further ones that it printed of itself.
        times: the engine's own sums.
        restored_tokens: of the context, that were restored instead of computed; none where nothing
            was to be restored.
        memory: the peak that the trace shows; none without one.
        placement: which device computed what; none where only the CPU could.
        result: what an engine of another kind measured, for ``run.json``.
        missing: what the output should hold and does not; empty when nothing is missing.
        notes: what a reader of the figures should know.
    """

    header: Trace | None = None
    steps: tuple[Step, ...] = ()
    text: str | None = None
    reported: Reported | None = None
    figures: tuple[ReportedFigure, ...] = ()
    times: EngineTimes | None = None
    restored_tokens: Count | None = None
    memory: Memory | None = None
    placement: Placement | None = None
    result: dict[str, JsonValue] | None = None
    missing: str = ""
    notes: tuple[str, ...] = ()
