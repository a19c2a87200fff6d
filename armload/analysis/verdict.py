"""Whether a run's figures may be believed."""

from __future__ import annotations

from armload.analysis.conditions_log import Around
from armload.analysis.run import Finding, FindingName, Verdict
from armload.analysis.sanity import Departure, departure_line, doubts_about_text
from armload.analysis.speed_doubts import doubts_about_speed, ended_after, more_tokens
from armload.analysis.statistics import FEWEST_TOKENS
from armload.analysis.summary import generating, prompting, token_times
from armload.boards.conditions import Conditions
from armload.core.values import counted, format_bytes
from armload.deploy.exit_reason import Exit
from armload.engines.job import BoardRecord, Job
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.trace import Step

_Named = list[tuple[FindingName, str]]

SWAPPED_FROM_BYTES = 1 << 20


def judge(
    job: Job, output: Output, ended: Exit, around: Around, departure: Departure | None = None
) -> Verdict:
    """Collect every reason to doubt the run; it is valid when there is none.

    Without a plan, as for a watched program, nobody knows how many tokens were requested; without
    a text the program was to write none.
    """
    found = [
        *_about_the_output(job, output, ended, around),
        *doubts_about_speed(job, output, around, measures_tokens=_measures_tokens(output)),
        *_about_the_board(job, output, ended, around),
    ]
    if departure is not None and departure.kind == "differs":
        found.append(("reference", departure_line(departure)))
    return Verdict.of([Finding(name=name, sentence=sentence) for name, sentence in found])


def _about_the_output(job: Job, output: Output, ended: Exit, around: Around) -> _Named:
    plan, board = job.plan, job.board
    ended_well = ended.status == 0
    found: _Named = [] if ended_well else [("exit", ended.meaning)]
    if output.header is None and output.result is None:
        found.append(("no trace", "No trace: the program never began to decode."))
    found += [
        ("storage full", doubt)
        for doubt in _doubts_about_storage(ended, output.steps, board, around)
    ]
    if not ended_well:
        return found
    if plan is not None and output.header is not None:
        doubts = _doubts_about_the_count(plan, output.steps, output.header.last_accepted_tokens)
        found += [("token count", doubt) for doubt in doubts]
    if output.text is not None:
        of_words = plan is not None and plan.prompt_tokens is not None
        found += [("text", doubt) for doubt in doubts_about_text(output.text, of_words=of_words)]
    if output.missing:
        found.append(("output", output.missing))
    if not _measures_tokens(output):
        return found
    return found + [("few tokens", doubt) for doubt in _doubts_about_few(job, output)]


def _measures_tokens(output: Output) -> bool:
    """Tell whether times per token are what the run was for, and not a result of another kind."""
    return output.result is None


def _about_the_board(job: Job, output: Output, ended: Exit, around: Around) -> _Named:
    found: _Named = []
    to_be_cold = job.plan is not None and job.plan.cold and output.header is not None
    if to_be_cold and around.cache in (None, "as found"):
        doubt = (
            "--cold was set, but the board's page cache could not be dropped: that needs "
            "write access to /proc/sys/vm/drop_caches, or armload's own program."
        )
        found.append(("not cold", doubt))
    if ended.status == 0 and around.lease_lost:
        found.append(
            (
                "lease lost",
                "The lease was lost: another user may have used the board. Run it again.",
            )
        )
    return found + [("swapped", doubt) for doubt in _doubts_about_swap(job.before, around)]


def _doubts_about_storage(
    ended: Exit, steps: tuple[Step, ...], board: BoardRecord, around: Around
) -> list[str]:
    if not around.storage_was_full or ended.kind == "no space":
        return []
    done = steps[-1].step + 1 if steps else 0
    lost = done - len(steps)
    lacking = "the trace may be incomplete"
    if lost:
        lacking = f"{lost} of {counted(done, 'step')} are missing from the trace"
    return [
        (
            f"The board's storage was full during the run: {lacking}, and the text may be "
            f"incomplete. Free space there: armload board.clean --board {board.name}"
        )
    ]


def _doubts_about_the_count(
    plan: Plan, steps: tuple[Step, ...], last_accepted_tokens: int
) -> list[str]:
    doubts = []
    generated = sum(step.output_tokens for step in generating(steps))
    # The last token is sampled and never decoded. The last accepted drafts are more than requested.
    most = generated + last_accepted_tokens
    if not plan.stop_at_end and not generated <= plan.n_predict - 1 <= most:
        doubts.append(f"{plan.n_predict} tokens were requested, but the trace has {most + 1}.")
    read = sum(step.prompt_tokens for step in prompting(steps))
    if plan.prompt_tokens is not None and read != plan.prompt_tokens:
        doubts.append(
            f"A prompt of {plan.prompt_tokens} tokens was requested, but {read} were processed."
        )
    return doubts


def _doubts_about_swap(before: Conditions, around: Around) -> list[str]:
    used = ""
    if around.after is not None:
        total = around.after.swap_total_bytes
        of_all = f" of {format_bytes(total)}" if total else ""
        used = (
            f" ({format_bytes(before.swap_used_bytes)} were in use before, "
            f"{format_bytes(around.after.swap_used_bytes)}{of_all} after)"
        )
    moved = around.swapped
    if moved is not None:
        if max(moved.in_bytes, moved.out_bytes) < SWAPPED_FROM_BYTES:
            return []
        return [
            (
                f"The board swapped {format_bytes(moved.out_bytes)} out and "
                f"{format_bytes(moved.in_bytes)} in during the run{used}."
            )
        ]
    if around.after is None:
        return []
    more = around.after.swap_used_bytes - before.swap_used_bytes
    if more < SWAPPED_FROM_BYTES:
        return []
    return [f"The board swapped {format_bytes(more)} out during the run{used}."]


def _doubts_about_few(job: Job, output: Output) -> list[str]:
    timed = len(token_times(output.steps))
    if timed >= FEWEST_TOKENS or not (timed or ended_after(job, output)):
        return []
    return [
        (
            f"Too few tokens: {timed} after the first {'was' if timed == 1 else 'were'} timed; "
            f"estimating their spread takes {FEWEST_TOKENS}. "
            f"{more_tokens(job, output, FEWEST_TOKENS + 1)}."
        )
    ]
