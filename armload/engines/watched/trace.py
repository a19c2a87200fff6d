"""The trace of a watched program, as ``watch`` writes it: writes, memory samples and the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from armload.core.values import Count, Finite, Value
from armload.engines.trace import Trace, read_lines


class Write(Value):
    """One write of a program to its standard output.

    Attributes:
        step: number from 0.
        phase: always ``write``: what it was, only the program knows.
        bytes: how many.
        start_ns: of the write before it, or of the program's start.
        end_ns: when it was there.
        major_faults, read_bytes, cpu_ns, involuntary_switches: in between, of all threads; none
            where they are not known.
        rss_bytes, cpu_khz, celsius: at that moment.
    """

    step: Count
    phase: Literal["write"]
    bytes: Count
    start_ns: Count
    end_ns: Count
    major_faults: Count | None
    read_bytes: Count | None
    rss_bytes: Count
    cpu_ns: Count | None
    involuntary_switches: Count | None
    cpu_khz: tuple[Count, ...] = ()
    celsius: Finite | None = None


class Look(Value):
    """Memory between two writes, where it has changed."""

    look_ns: Count
    rss_bytes: Count


class End(Value):
    """What the kernel says of a program that has ended.

    Attributes:
        end_ns: when.
        status: as a shell reports it.
        writes_left_out: that were not noted, because there were too many.
        max_rss_bytes: the most resident memory; of the program or of one that it started.
        max_vms_bytes: the most virtual memory that was seen; none where it ended at once.
        major_faults, read_bytes, cpu_ns, involuntary_switches: in all.
        watch_cpu_ns: CPU time that watching took.
    """

    end_ns: Count
    status: Count
    writes_left_out: Count
    max_rss_bytes: Count
    max_vms_bytes: Count | None
    major_faults: Count
    read_bytes: Count
    cpu_ns: Count
    involuntary_switches: Count
    watch_cpu_ns: Count


class Watching(Value):
    """A whole trace; what a program that was cut short has not written is missing."""

    header: Trace | None = None
    writes: tuple[Write, ...] = ()
    looks: tuple[Look, ...] = ()
    end: End | None = None


def read_watching(path: Path) -> Watching:
    """Read the ``trace.jsonl`` of a watched program.

    A line that was cut off is left out.

    Raises:
        DataError: a line that is whole is not what ``watch`` writes.
    """
    writes: list[Write] = []
    looks: list[Look] = []
    ends: list[End] = []

    def take(content: dict[str, Any]) -> None:
        if "step" in content:
            writes.append(Write.model_validate(content))
        elif "look_ns" in content:
            looks.append(Look.model_validate(content))
        else:
            ends.append(End.model_validate(content))

    header = read_lines(path, take)
    end = ends[-1] if ends else None
    return Watching(header=header, writes=tuple(writes), looks=tuple(looks), end=end)
