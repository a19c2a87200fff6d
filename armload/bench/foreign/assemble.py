"""From what ``watch`` noted of a foreign program to the ``Run`` that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.bench.foreign.said import Said, read_said
from armload.bench.foreign.watching import Watching, Write, read_watching
from armload.bench.limit import find_limit
from armload.bench.measures import read_swapped
from armload.bench.record import Job, Watched
from armload.bench.run import EngineTimes, Exit, Memory, Run, Step, Summary, Verdict
from armload.bench.strangers import read_strangers
from armload.bench.summary import summarise
from armload.bench.verdict import Around, judge
from armload.boards.conditions import Conditions

AGREES_WITHIN = 0.10
"""The engine's own decode time and that of its writes may differ by this share without a note."""

WATCHING_COUNTS_FROM = 0.01
"""A note says how much of one core watching took, from here on."""

_PAGE_BYTES = 4096  # where no trace tells
_ROUNDED_S = 0.02
"""MNN rounds its times to 10 ms."""


def assemble_watched(
    job: Job,
    watched: Watched,
    folder: Path,
    *,
    ended: Exit,
    seen: Memory | None,
    after: Conditions | None,
) -> Run:
    """Compute a run of a foreign program from its raw files.

    Args:
        job: what was started.
        watched: the foreign part of it.
        folder: where ``trace.jsonl`` and ``stdout`` lie; either may be missing.
        ended: how the program ended.
        seen: the peaks of its memory that the board saw.
        after: the board afterwards; none when it did not answer any more.

    Raises:
        DataError: the trace is malformed.
    """
    noted = read_watching(folder / "trace.jsonl")
    stdout = (folder / "stdout").read_bytes() if (folder / "stdout").is_file() else b""
    said = read_said(watched.reads, stdout)
    pieces = _of_answer(noted.writes, said, stdout)
    steps, notes = _steps(pieces, said)
    text = stdout[slice(*said.answer)] if said.answer else b""
    around = Around(
        before=job.before,
        after=after,
        strangers=read_strangers(folder),
        swapped=read_swapped(folder, noted.header.page_bytes if noted.header else _PAGE_BYTES),
    )
    verdict = judge(
        None,
        ended=ended,
        header=noted.header,
        steps=steps,
        text=text.decode("utf-8", "replace") if said.answer else None,
        board=job.board,
        around=around,
    )
    if said.lacking and ended.status == 0:
        verdict = Verdict(valid=False, reasons=(*verdict.reasons, said.lacking))
    return Run(
        **dict(job),
        after=after,
        strangers=around.strangers,
        swapped=around.swapped,
        trace=noted.header,
        tokens=steps,
        summary=_summary(noted, said, pieces, steps),
        engine=_engine_times(said),
        memory=_memory(seen, noted),
        text=text.decode("utf-8", "replace"),
        exit=ended,
        limit=find_limit(steps, noted.header, model=job.model, board=job.board, before=job.before),
        verdict=verdict,
        notes=(*said.notes, *notes, *_notes_on_watching(noted, stdout)),
    )


def _of_answer(writes: Sequence[Write], said: Said, stdout: bytes) -> list[Write]:
    """Return the writes that carried the answer, without what only ends its last line."""
    if said.answer is None:
        return []
    begin, end = said.answer
    found, contents = [], []
    offset = 0
    for write in writes:
        if offset < end and offset + write.bytes > begin:
            found.append(write)
            contents.append(stdout[offset : offset + write.bytes])
        offset += write.bytes
    # MNN ends its answer with an empty line, for which no token stands.
    one_more = said.decode_tokens is not None and len(found) == said.decode_tokens + 1
    return found[:-1] if one_more and not contents[-1].strip() else found


def _steps(pieces: Sequence[Write], said: Said) -> tuple[tuple[Step, ...], list[str]]:
    """Return a step for each output token but the first, where each was one write.

    The first comes out of prefill, as in a trace of our own.
    """
    if said.answer is None:
        return (), []
    count = f"{len(pieces)} write{'' if len(pieces) == 1 else 's'}"
    if said.decode_tokens is None:
        return (), [f"The output came in {count}; how many tokens these are is not known."]
    if len(pieces) != said.decode_tokens:
        tokens = f"{said.decode_tokens} token{'' if said.decode_tokens == 1 else 's'}"
        said_tokens = f"the program says that it generated {tokens}"
        return (), [f"There are no times per token: {said_tokens}, and its answer came in {count}."]
    steps = tuple(_step(number, write) for number, write in enumerate(pieces[1:]))
    return steps, _disagreement(steps, said)


def _step(number: int, write: Write) -> Step:
    return Step(
        step=number,
        phase="generate",
        tokens=1,
        start_ns=write.start_ns,
        end_ns=write.end_ns,
        major_faults=write.major_faults or 0,
        read_bytes=write.read_bytes,
        rss_bytes=write.rss_bytes,
        cpu_ns=write.cpu_ns or 0,
        involuntary_switches=write.involuntary_switches,
        cpu_khz=write.cpu_khz,
        celsius=write.celsius,
    )


def _disagreement(steps: Sequence[Step], said: Said) -> list[str]:
    if not steps or said.decode_s is None or said.decode_tokens is None:
        return []
    ours_s = sum(step.duration_s for step in steps) / len(steps)
    theirs_s = said.decode_s / said.decode_tokens
    allowed_s = AGREES_WITHIN * theirs_s + _ROUNDED_S / said.decode_tokens
    if abs(ours_s - theirs_s) <= allowed_s:
        return []
    note = (
        f"The program says {theirs_s * 1000:.3g} ms per token, and its writes came every "
        f"{ours_s * 1000:.3g} ms: one of the two counts something else, such as a second prompt."
    )
    return [note]


def _summary(
    noted: Watching, said: Said, pieces: Sequence[Write], steps: Sequence[Step]
) -> Summary:
    start_ns = noted.header.start_ns if noted.header else None
    # Where nobody says that the output is tokens, its first write is no first token.
    first = pieces[0] if pieces and said.decode_tokens is not None else None
    last_ns = [
        *(write.end_ns for write in noted.writes[-1:]),
        *([noted.end.end_ns] if noted.end else []),
    ]
    return Summary(
        ttft_s=(first.end_ns - start_ns) / 1e9 if first and start_ns is not None else None,
        prefill_tps=said.prefill_tps,
        decode_tps=said.decode_tps,
        token_s=summarise(noted.header, steps).token_s,
        wall_s=(last_ns[-1] - start_ns) / 1e9 if last_ns and start_ns is not None else None,
        prefill_s=said.prefill_s,
        prefill_tokens=said.prefill_tokens,
        decode_s=said.decode_s,
        decode_tokens=said.decode_tokens,
    )


def _engine_times(said: Said) -> EngineTimes | None:
    if (
        said.prefill_s is None
        or said.prefill_tokens is None
        or said.decode_s is None
        or said.decode_tokens is None
    ):
        return None
    return EngineTimes(
        prompt_ms=said.prefill_s * 1000,
        prompt_tokens=said.prefill_tokens,
        eval_ms=said.decode_s * 1000,
        eval_tokens=said.decode_tokens,
    )


def _memory(seen: Memory | None, noted: Watching) -> Memory | None:
    resident = [write.rss_bytes for write in noted.writes]
    resident += [look.rss_bytes for look in noted.looks]
    virtual = []
    if noted.end is not None:
        resident.append(noted.end.max_rss_bytes)
        virtual += [] if noted.end.max_vms_bytes is None else [noted.end.max_vms_bytes]
    if seen is not None:
        resident.append(seen.max_rss_bytes)
        virtual.append(seen.max_vms_bytes)
    if not resident or max(resident) == 0:
        return None
    most = max(resident)
    return Memory(max_rss_bytes=most, max_vms_bytes=max([most, *virtual]))


def _notes_on_watching(noted: Watching, stdout: bytes) -> list[str]:
    notes = []
    if noted.header is not None and noted.header.whole_writes is False:
        notes.append("This kernel joins writes that come close together.")
    if noted.end is None:
        return notes
    if noted.end.writes_left_out:
        notes.append(f"{noted.end.writes_left_out} further writes were not noted.")
    elif sum(write.bytes for write in noted.writes) != len(stdout):
        notes.append("The writes that were noted are not all that the program wrote.")
    start_ns = noted.header.start_ns if noted.header else noted.end.end_ns
    share = noted.end.watch_cpu_ns / max(noted.end.end_ns - start_ns, 1)
    if share >= WATCHING_COUNTS_FROM:
        notes.append(f"Watching took {share:.1%} of one core.")
    return notes
