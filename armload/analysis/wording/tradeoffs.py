"""From when on another system answers more questions correctly."""

from __future__ import annotations

from armload.analysis.statistics import CONFIDENCE
from armload.analysis.tradeoff import Crossover
from armload.core.values import counted


def crossover(found: Crossover) -> str:
    if found.finding == "too few questions":
        asked = counted(found.questions, "question")
        return f"{asked}: too few to tell whether there is a crossover."
    if found.deadline_s is None or found.interval is None:
        ahead = (
            f"averaged up to any deadline, {found.before} answers at least as many questions "
            "correctly"
        )
        if found.finding == "possible":
            return (
                f"No crossover in these answers: {ahead}. More questions may reveal one: it occurs "
                f"in {found.share:.0%} of bootstrap resamples."
            )
        return f"No crossover: {ahead}."
    at = f"{found.deadline_s:.3g} s"
    if found.finding == "within noise":
        return (
            f"No significant crossover: {found.after} overtakes {found.before} at {at}, but in "
            f"only {found.share:.0%} of bootstrap resamples."
        )
    low, high = f"{found.interval.low:.3g}", f"{found.interval.high:.3g}"
    return (
        f"{found.before} is more accurate up to {at}, {found.after} from then on "
        f"({CONFIDENCE:.0%} CI {low}\u2013{high} s)."
    )
