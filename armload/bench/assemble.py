"""From a run's raw files to the ``Run`` that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.bench.engine import engine_times, generated_text
from armload.bench.foreign.assemble import assemble_watched
from armload.bench.job import FILE_NAME
from armload.bench.limit import find_limit
from armload.bench.measures import read_cache, read_governor, read_swapped
from armload.bench.record import Job
from armload.bench.run import Exit, Memory, Run, Step, Verdict
from armload.bench.sanity import departure, departure_line
from armload.bench.strangers import read_strangers
from armload.bench.summary import summarise
from armload.bench.trace import read_trace
from armload.bench.verdict import Around, judge
from armload.boards.conditions import Conditions
from armload.core.errors import DataError

_PAGE_BYTES = 4096  # where no trace tells


def read_job(folder: Path) -> Job:
    """Read the job of a run's folder.

    Raises:
        DataError: it is missing or malformed.
    """
    path = folder / FILE_NAME
    try:
        return Job.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: this describes no run: {error}.") from error


def assemble(
    job: Job,
    folder: Path,
    *,
    ended: Exit,
    memory: Memory | None,
    after: Conditions | None,
) -> Run:
    """Compute a run from its raw files; every figure can be computed again from them.

    Args:
        job: what was started.
        folder: where ``trace.jsonl``, ``stdout`` and ``stderr`` lie; any may be missing.
        ended: how the program ended.
        memory: its peaks, where they are known.
        after: the board afterwards; none when it did not answer any more.

    Raises:
        DataError: the trace is malformed.
    """
    if job.watched is not None:
        return assemble_watched(job, job.watched, folder, ended=ended, seen=memory, after=after)
    header, steps = read_trace(folder / "trace.jsonl")
    text = generated_text(_content(folder / "stdout"))
    stderr = _content(folder / "stderr").decode("utf-8", "replace")
    around = Around(
        before=job.before,
        after=after,
        cache=read_cache(folder),
        governor=read_governor(folder),
        strangers=read_strangers(folder),
        swapped=read_swapped(folder, header.page_bytes if header else _PAGE_BYTES),
    )
    return Run(
        **dict(job),
        after=after,
        cache=around.cache,
        governor=around.governor,
        strangers=around.strangers,
        swapped=around.swapped,
        trace=header,
        tokens=steps,
        summary=summarise(header, steps),
        engine=engine_times(stderr),
        memory=_peak(memory, steps),
        text=text,
        exit=ended,
        limit=find_limit(
            steps,
            header,
            model=job.model,
            board=job.board,
            before=job.before,
            cpus=job.plan.cpus if job.plan else None,
        ),
        verdict=judge(
            job.plan,
            ended=ended,
            header=header,
            steps=steps,
            text=text,
            board=job.board,
            around=around,
        ),
    )


def with_reference(run: Run, reference: Run) -> Run:
    """Return the run with its text compared with a reference's, and judged by that.

    The text is expected to be the same when model, prompt and sampling are.
    """
    fields = ("prompt", "temperature", "seed")
    same = run.model.sha256 == reference.model.sha256 and all(
        getattr(run.plan, field, None) == getattr(reference.plan, field, None) for field in fields
    )
    found = departure(run.text, reference.text, name=reference.id, same_model=same)
    verdict = run.verdict
    if found.kind == "differs":
        verdict = Verdict(valid=False, reasons=(*verdict.reasons, departure_line(found)))
    return run.model_copy(update={"reference": found, "verdict": verdict})


def _peak(memory: Memory | None, steps: Sequence[Step]) -> Memory | None:
    # The board looks once a second; the trace looks at every step.
    seen = max((step.rss_bytes for step in steps), default=0)
    if memory is None or memory.max_rss_bytes >= seen:
        return memory
    return Memory(max_rss_bytes=seen, max_vms_bytes=max(memory.max_vms_bytes, seen))


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
