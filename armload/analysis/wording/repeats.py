"""Why no further repeat is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.analysis.findings import MOST_MORE_RUNS
from armload.core.values import counted

if TYPE_CHECKING:
    from armload.analysis.repeats import OutOfTime, Stop
    from armload.engines.job import Workstation


def stopped(found: Stop) -> str:
    match found.kind:
        case "precision reached":
            return "the requested precision was reached."
        case "not repeatable":
            return f"repeating would not help: {found.reason}"
        case "nothing timed":
            return "no output token was timed."
        case "disturbed in a row":
            return f"{found.runs} runs in a row were disturbed. {found.reason}"
        case "out of time":
            return _out_of_time(found)


def _out_of_time(found: OutOfTime) -> str:
    if found.disturbed == found.runs:  # more runs of this kind would not count either
        return f"{_more_needed(found)}. {_disturbed(found.disturbed, found.runs)} {found.reason}"
    if found.within is not None and found.more_runs > MOST_MORE_RUNS:
        said = (
            f"the median of {found.runs - found.disturbed} runs is known only within "
            f"{found.within:.0%}. {too_different(found.workstation)}"
        )
    else:
        said = _allow_more(found)
    if found.disturbed:
        said += f" {_disturbed(found.disturbed, found.runs)} {found.reason}"
    if found.is_storage_limited:
        said += " Tokens wait for storage, whose speed varies."
    return said


def _disturbed(disturbed: int, runs: int) -> str:
    if runs == 1:
        return "The only run was disturbed."
    if disturbed == runs:
        return f"All {runs} runs were disturbed."
    return f"{disturbed} of {runs} runs {'was' if disturbed == 1 else 'were'} disturbed."


def too_different(workstation: Workstation | None) -> str:
    """Say that more runs would not help, and what would."""
    helps = less_varied(is_emulated=workstation is not None)
    return f"The runs differ too much for more of them to help: {helps}, and repeat them."


def less_varied(*, is_emulated: bool) -> str:
    """Say what makes runs differ less."""
    if is_emulated:
        return "stop other programs on the workstation that emulates the board"
    return (
        "stop other programs on the board, fix its clock (--governor performance), let it cool "
        "(--cool-to)"
    )


def _allow_more(found: OutOfTime) -> str:
    them = "it" if found.more_runs == 1 else "them"
    return f"{_more_needed(found)}. To allow {them}, use --precision-time {found.needed_s}."


def _more_needed(found: OutOfTime) -> str:
    return (
        f"{counted(found.more_runs, 'more run')} of about {found.run_s:.0f} s would be needed, "
        f"which exceeds the time limit for repeats ({found.allowed_s:g} s)"
    )
