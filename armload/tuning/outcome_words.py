"""What a search has found, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from armload.analysis.statistics import Ratio
from armload.core.values import three_figures
from armload.tuning.estimating import ChoiceEstimate
from armload.tuning.record import Confirmation, Tuning, Violation
from armload.tuning.settings import words_of
from armload.tuning.wanted import AIMS, Objective


def cost_words(objective: Objective, cost: float) -> str:
    """Write a cost with its unit, as a rate where people speak of that."""
    aim = AIMS[objective]
    if aim.rate_unit:
        return f"{three_figures(1 / cost)} {aim.rate_unit}"
    return f"{three_figures(cost)} {aim.unit}"


def sentence_of(
    tuning: Tuning,
    leader: ChoiceEstimate,
    confirmation: Confirmation | None,
    default_cost: float | None,
    core_sets: Mapping[str, str],
) -> str:
    """Say what the leader is worth beside the defaults.

    Args:
        default_cost: none where the defaults do not run.
    """
    words, aim = words_of(leader.setting, tuning.space.defaults, core_sets), AIMS[tuning.objective]
    now = cost_words(tuning.objective, leader.cost)
    if default_cost is None:
        return f"{now} with {words}. The defaults cannot run."
    if confirmation is None:
        return f"No configuration is {aim.better} than the defaults ({now})."
    speed = confirmation.speed
    if speed is None:
        disturbed = confirmation.disturbances
        return (
            f"Not confirmed: {len(disturbed)} of the {confirmation.runs} runs that compare "
            f"{words} with the defaults were disturbed. {disturbed[-1]} The plan file contains the "
            "defaults. Repeat the command on an idle board: only the comparison is repeated."
        )
    times = gain_words(tuning.objective, speed)
    if confirmation.is_faster:
        now, before = (
            cost_words(tuning.objective, median(costs))
            for costs in (confirmation.leader_costs, confirmation.defaults_costs)
        )
        return f"{times}, with {words}: {now} instead of {before}."
    return (
        f"No configuration is {aim.better} than the defaults. The best, {words}: {times}, within "
        "noise."
    )


def violation_words(tuning: Tuning, found: Violation) -> str:
    """Say that a setting which breaks a constraint would be better."""
    setting = words_of(found.setting, tuning.space.defaults, {})
    cost = cost_words(tuning.objective, found.cost)
    better = AIMS[tuning.objective].better.capitalize()
    return f"{better}, but violates a constraint: {setting} ({cost}): {found.reason}"


def gain_words(objective: Objective, gain: Ratio) -> str:
    """Write how fast, or how efficient, a setting is beside the defaults."""
    low, high, merit = times_words(gain.low), times_words(gain.high), AIMS[objective].merit
    return f"{times_words(gain.ratio)}× the default {merit} (95% CI {low}–{high})"


def times_words(ratio: float) -> str:
    """Write a ratio: ``1.34``, ``18.3``, ``187``."""
    return f"{ratio:.2f}" if ratio < 10 else three_figures(ratio)
