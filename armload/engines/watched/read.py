"""What ``watch`` noted of a program, taken together with what the program printed."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from armload.core.bounds import size_words
from armload.core.values import Count, Value, counted, format_bytes
from armload.deploy.layout import STDERR_FILE, STDOUT_FILE, TRACE_FILE
from armload.engines.job import Watched
from armload.engines.output import EngineTimes, Memory, Output, Reported
from armload.engines.trace import Sensed, Step, Trace, read_lines, wall_time_s
from armload.engines.watched.output import EngineOutput, read_output
from armload.engines.watched.reader import Reader


class Write(Sensed):
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


AGREES_WITHIN = 0.10
"""The engine's own decode time and that of its writes may differ by this share without a note."""

WATCHING_COUNTS_FROM = 0.01
"""A note says how much of one core watching took, from here on."""

_ROUNDED_S = 0.02
"""MNN rounds its times to 10 ms."""


def read_watched(watched: Watched, folder: Path) -> Output:
    """Read a watched run's raw files; any of them may be missing."""
    noted = read_watching(folder / TRACE_FILE)
    stdout, left_out_bytes = _end_of(folder / STDOUT_FILE)
    stderr, _ = _end_of(folder / STDERR_FILE)
    output = read_output(watched.reader, stdout, stderr)
    notes = [*output.notes]
    missing = output.missing
    if missing and watched.is_guessed:
        notes.append(missing)
        missing = ""
    if left_out_bytes:
        notes.append(
            f"The program printed {format_bytes(left_out_bytes + len(stdout))}; only the last "
            f"{size_words(_MOST_BYTES)} were read, for its figures."
        )
        output = output.model_copy(update={"answer": None, "tokens": None})
    pieces = _of_answer(noted.writes, output, stdout)
    steps, about_steps = _steps(pieces, output)
    resident = [write.rss_bytes for write in noted.writes]
    resident += [look.rss_bytes for look in noted.looks]
    virtual_bytes = 0
    if noted.end is not None:
        resident.append(noted.end.max_rss_bytes)
        virtual_bytes = noted.end.max_vms_bytes or 0
    most = max(resident, default=0)
    start_ns = noted.header.start_ns if noted.header else None
    # Where nobody says that the output is tokens, or it came in blocks, its first write is no first
    # token.
    tokens = output.output_tokens
    first = pieces[0] if pieces and tokens is not None and 2 * len(pieces) >= tokens else None
    last_ns = [
        *(write.end_ns for write in noted.writes[-1:]),
        *([noted.end.end_ns] if noted.end else []),
    ]
    text, about_text = answer_text(watched.reader, output, stdout)
    return Output(
        header=noted.header,
        steps=steps,
        text=text,
        reported=Reported(
            ttft_s=(first.end_ns - start_ns) / 1e9 if first and start_ns is not None else None,
            wall_s=(last_ns[-1] - start_ns) / 1e9 if last_ns and start_ns is not None else None,
            prefill_tps=output.prefill_tps,
            decode_tps=output.decode_tps,
            prefill_s=output.prefill_s,
            prefill_tokens=output.prefill_tokens,
            decode_s=output.decode_s,
            decode_tokens=output.decode_tokens,
        ),
        figures=output.figures,
        times=_engine_times(output),
        memory=Memory(max_rss_bytes=most, max_vms_bytes=max(most, virtual_bytes)) if most else None,
        missing=missing,
        notes=(
            *notes,
            *about_steps,
            *about_text,
            *_notes_on_watching(noted, stdout, left_out_bytes),
        ),
    )


_MOST_BYTES = 64 << 20
_MOST_TEXT_BYTES = 1 << 20


def _end_of(path: Path) -> tuple[bytes, int]:
    """Return the end of a file, and how many bytes before that are left out."""
    if not path.is_file():
        return b"", 0
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        left_out = max(0, size - _MOST_BYTES)
        file.seek(left_out)
        return file.read(_MOST_BYTES), left_out


def answer_text(
    reader: Reader, output: EngineOutput, stdout: bytes
) -> tuple[str | None, list[str]]:
    """Return the model's text, and what a person should know of it; none where there is none."""
    if output.answer is None:
        return None, []
    ranges = (output.answer,) if output.tokens is None else output.tokens
    text = b"".join(stdout[begin:end] for begin, end in ranges)
    whole = text.rstrip()
    for each in (end.encode() for end in reader.answer.ends):
        text = whole.removesuffix(each) if whole.endswith(each) else text
    notes = []
    if len(text) > _MOST_TEXT_BYTES:
        notes.append(
            f"The text is {format_bytes(len(text))} long; the run keeps the first "
            f"{size_words(_MOST_TEXT_BYTES)} of it. All of it is in the file stdout."
        )
    return text[:_MOST_TEXT_BYTES].decode("utf-8", "replace"), notes


def _engine_times(output: EngineOutput) -> EngineTimes | None:
    if (
        output.prefill_s is None
        or output.prefill_tokens is None
        or output.decode_s is None
        or output.decode_tokens is None
    ):
        return None
    load_s = next((each.value for each in output.figures if each.name == "load_time"), None)
    return EngineTimes(
        prompt_ms=output.prefill_s * 1000,
        prompt_tokens=output.prefill_tokens,
        eval_ms=output.decode_s * 1000,
        eval_tokens=output.decode_tokens,
        load_ms=None if load_s is None else load_s * 1000,
    )


def _of_answer(writes: Sequence[Write], output: EngineOutput, stdout: bytes) -> list[Write]:
    """Return the writes that carried the answer, without what only ends its last line."""
    if output.answer is None:
        return []
    begin, end = output.answer
    begins = None if output.tokens is None else [token for token, _ in output.tokens]
    found, contents = [], []
    offset = 0
    for write in writes:
        after = offset + write.bytes
        if begins is None:
            is_of_it = offset < end and after > begin
        else:
            is_of_it = bisect_left(begins, offset) < bisect_left(begins, after)
        if is_of_it:
            found.append(write)
            contents.append(stdout[offset:after])
        offset = after
    # MNN ends its answer with an empty line, for which no token stands.
    tokens = output.output_tokens
    one_more = tokens is not None and len(found) == tokens + 1
    return found[:-1] if one_more and not contents[-1].strip() else found


def _steps(pieces: Sequence[Write], output: EngineOutput) -> tuple[tuple[Step, ...], list[str]]:
    """Return a step for each output token but the first, where each was one write.

    The first comes out of prefill, as in a trace of our own.
    """
    if output.answer is None:
        return (), []
    count = counted(len(pieces), "write")
    tokens = output.output_tokens
    if tokens is None and not pieces:
        return (), ["The program printed nothing."]
    if tokens is None:
        return (), [f"The program printed its output in {count}; its tokens are not counted."]
    if len(pieces) != tokens:
        reported = f"the program reports {counted(tokens, 'token')}"
        return (), [f"No times per token: {reported}, but printed its answer in {count}."]
    steps = tuple(_step(number, write) for number, write in enumerate(pieces[1:]))
    return steps, _disagreement(steps, output)


def _step(number: int, write: Write) -> Step:
    return Step(
        step=number,
        tokens=1,
        generated_tokens=1,
        start_ns=write.start_ns,
        end_ns=write.end_ns,
        major_faults=write.major_faults or 0,
        read_bytes=write.read_bytes,
        rss_bytes=write.rss_bytes,
        cpu_ns=write.cpu_ns or 0,
        involuntary_switches=write.involuntary_switches,
        **{name: getattr(write, name) for name in Sensed.model_fields},
    )


def _disagreement(steps: Sequence[Step], output: EngineOutput) -> list[str]:
    if not steps or output.decode_s is None or output.decode_tokens is None:
        return []
    ours_s = wall_time_s(steps) / len(steps)
    theirs_s = output.decode_s / output.decode_tokens
    allowed_s = AGREES_WITHIN * theirs_s + _ROUNDED_S / output.decode_tokens
    if abs(ours_s - theirs_s) <= allowed_s:
        return []
    note = (
        f"The program reports {theirs_s * 1000:.3g} ms per token, but its writes came every "
        f"{ours_s * 1000:.3g} ms: one of the two includes something else, such as a second prompt."
    )
    return [note]


def _notes_on_watching(noted: Watching, stdout: bytes, left_out_bytes: int) -> list[str]:
    notes = []
    if noted.header is not None and noted.header.whole_writes is False:
        notes.append("This kernel merges writes in quick succession.")
    if noted.end is None:
        return notes
    if noted.end.writes_left_out:
        notes.append(f"{noted.end.writes_left_out} further writes were not recorded.")
    elif sum(write.bytes for write in noted.writes) != len(stdout) + left_out_bytes:
        notes.append("Some of the program's writes were not recorded.")
    start_ns = noted.header.start_ns if noted.header else noted.end.end_ns
    share = noted.end.watch_cpu_ns / max(noted.end.end_ns - start_ns, 1)
    if share >= WATCHING_COUNTS_FROM:
        notes.append(f"Monitoring the program used {share:.1%} of one core.")
    return notes
