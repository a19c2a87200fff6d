"""Whether a run's figures may be believed."""

from __future__ import annotations

from armload.analysis.conditions_log import RunConditions
from armload.analysis.findings import (
    DegenerateText,
    Failed,
    Figures,
    LeaseLost,
    NotCold,
    NoTrace,
    OutputCount,
    OutputMissing,
    PromptCount,
    StorageFull,
    Swapping,
    TextDiffers,
    TooFewTokens,
    UnderVoltage,
)
from armload.analysis.sanity import Departure, doubts_about_text
from armload.analysis.speed_doubts import doubts_about_speed, ended_after, more_tokens
from armload.analysis.statistics import FEWEST_TOKENS
from armload.analysis.summary import generating, prompting, token_times
from armload.boards.conditions import Conditions
from armload.deploy.exit_reason import Exit
from armload.engines.job import BoardRecord, Job
from armload.engines.output import Output
from armload.engines.plan import Plan
from armload.engines.trace import Step

SWAPPED_FROM_BYTES = 1 << 20


def judge(
    job: Job, output: Output, ended: Exit, around: RunConditions, departure: Departure | None = None
) -> list[Figures]:
    """Collect every reason to doubt the run; it is valid when there is none.

    Without a plan, as for a watched program, nobody knows how many tokens were requested; without
    a text the program was to write none. A run that failed is doubted for what may have made it
    fail, not for what slowed it.
    """
    found: list[Figures] = [
        *_about_the_output(job, output, ended, around),
        *_about_the_speed(job, output, ended, around),
        *_about_the_board(job, output, ended, around),
    ]
    if departure is not None and departure.kind == "differs":
        found.append(TextDiffers(departure=departure))
    return found


def _about_the_output(
    job: Job, output: Output, ended: Exit, around: RunConditions
) -> list[Figures]:
    plan, board = job.plan, job.board
    ended_well = ended.status == 0
    found: list[Figures] = []
    if not ended_well:
        found.append(Failed(status=ended.status, meaning=ended.meaning))
    elif output.header is None and output.result is None:
        found.append(NoTrace())
    found += _doubts_about_storage(ended, output.steps, board, around)
    if not ended_well:
        return found
    if plan is not None and output.header is not None:
        found += _doubts_about_the_count(plan, output.steps, output.header.last_accepted_tokens)
    if output.text is not None:
        of_words = plan is not None and plan.prompt_tokens is not None
        faults = doubts_about_text(output.text, of_words=of_words)
        found += [
            DegenerateText(
                fault=fault,
                has_prompt=plan is not None,
                ignores_end=plan is not None and not plan.stop_at_end,
            )
            for fault in faults
        ]
    if output.missing:
        found.append(OutputMissing(missing=output.missing))
    if not _measures_tokens(output):
        return found
    return [*found, *_doubts_about_few(job, output)]


def _measures_tokens(output: Output) -> bool:
    """Return whether times per token are what the run was for, and not a result of another kind."""
    return output.result is None


def _about_the_speed(job: Job, output: Output, ended: Exit, around: RunConditions) -> list[Figures]:
    found = doubts_about_speed(job, output, around, measures_tokens=_measures_tokens(output))
    if ended.status == 0:
        return found
    return [each for each in found if isinstance(each, UnderVoltage)]


def _about_the_board(job: Job, output: Output, ended: Exit, around: RunConditions) -> list[Figures]:
    found: list[Figures] = []
    to_be_cold = job.plan is not None and job.plan.cold and output.header is not None
    if ended.status == 0 and to_be_cold and around.cache in (None, "as found"):
        found.append(NotCold())
    if ended.status == 0 and around.lease_lost:
        found.append(LeaseLost())
    return [*found, *_doubts_about_swap(job.before, around)]


def _doubts_about_storage(
    ended: Exit, steps: tuple[Step, ...], board: BoardRecord, around: RunConditions
) -> list[StorageFull]:
    if not around.storage_was_full or ended.kind == "no space":
        return []
    done = steps[-1].step + 1 if steps else 0
    return [StorageFull(board=board.name, steps=done, missing_steps=done - len(steps))]


def _doubts_about_the_count(
    plan: Plan, steps: tuple[Step, ...], last_accepted_tokens: int
) -> list[OutputCount | PromptCount]:
    doubts: list[OutputCount | PromptCount] = []
    generated = sum(step.output_tokens for step in generating(steps))
    # The last token is sampled and never decoded. The last accepted drafts are more than requested.
    most = generated + last_accepted_tokens
    if not plan.stop_at_end and not generated <= plan.n_predict - 1 <= most:
        doubts.append(OutputCount(requested_tokens=plan.n_predict, traced_tokens=most + 1))
    read = sum(step.prompt_tokens for step in prompting(steps))
    if plan.prompt_tokens is not None and read != plan.prompt_tokens:
        doubts.append(PromptCount(requested_tokens=plan.prompt_tokens, processed_tokens=read))
    return doubts


def _doubts_about_swap(before: Conditions, around: RunConditions) -> list[Swapping]:
    moved, after = around.swapped, around.after
    zram = False
    if moved is not None:
        on_disk = max(moved.in_bytes - moved.zram_in_bytes, moved.out_bytes - moved.zram_out_bytes)
        # What others have not needed since may stay compressed; what is fetched back was missed.
        zram = on_disk < SWAPPED_FROM_BYTES
        most = moved.zram_in_bytes if zram else on_disk
        out_bytes, in_bytes = moved.out_bytes, moved.in_bytes
    elif after is not None:
        most = out_bytes = _used_on_disk(after) - _used_on_disk(before)
        in_bytes = None
    else:
        return []
    if most < SWAPPED_FROM_BYTES:
        return []
    return [
        Swapping(
            out_bytes=out_bytes,
            in_bytes=in_bytes,
            used_before_bytes=before.swap_used_bytes,
            used_after_bytes=after.swap_used_bytes if after else None,
            total_bytes=after.swap_total_bytes if after else 0,
            zram=zram,
        )
    ]


def _used_on_disk(now: Conditions) -> int:
    return now.swap_used_bytes - sum(each.used_bytes for each in now.swaps if each.kind == "zram")


def _doubts_about_few(job: Job, output: Output) -> list[TooFewTokens]:
    timed = len(token_times(output.header, output.steps))
    if timed >= FEWEST_TOKENS or not (timed or ended_after(job, output)):
        return []
    more = more_tokens(job, output, FEWEST_TOKENS + 1)
    return [TooFewTokens(timed_tokens=timed, needed_tokens=FEWEST_TOKENS, more=more)]
