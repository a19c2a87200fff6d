"""Which of two systems is right more often within the same time, and from when on.

At a deadline, the answer of a question is that of the largest budget that is finished by then; none
counts as wrong. If all budgets are cut from one long answer, this is exactly what had been said
by the deadline. If the model was told its budget, so that each budget is a run of its own, it is
what somebody gets who knows how long an answer takes and chooses the budget accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import computed_field, model_validator

from armload.analysis.accuracy import (
    Accuracy,
    Difference,
    McNemar,
    accuracy_of,
    difference_of,
    drawn_counts,
    mcnemar,
)
from armload.analysis.statistics import CONFIDENCE, Interval, percentile_interval
from armload.core.errors import UsageError
from armload.core.values import Value, counted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

CrossoverFinding = Literal["too few questions", "none", "possible", "within noise", "shown"]

MOST_DEADLINES = 512
"""At which two systems are compared."""

FEWEST_QUESTIONS = 6
"""Of fewer, not even all tell two systems apart: that all go one way has a chance of 1 in 16."""


class Answers(Value):
    """The graded answers of one system (model, prompt, whether the budget was told).

    Attributes:
        name: of the system.
        questions: their ids.
        budgets: in tokens, ascending.
        latency_s: of each question, a row with the seconds from its start to the end of its answer
            at each budget.
        correct: likewise, whether that answer is right.
        boxed: likewise, whether it has a closed box; empty where that is unknown.
    """

    name: str
    questions: tuple[str, ...]
    budgets: tuple[int, ...]
    latency_s: tuple[tuple[float, ...], ...]
    correct: tuple[tuple[bool, ...], ...]
    boxed: tuple[tuple[bool, ...], ...] = ()

    @model_validator(mode="after")
    def _rows_fit(self) -> Answers:
        if list(self.budgets) != sorted(set(self.budgets)) or not self.budgets:
            raise ValueError("budgets must be ascending")
        for rows in (self.latency_s, self.correct, self.boxed or self.correct):
            if len(rows) != len(self.questions) or not rows:
                raise ValueError("there must be a row for each question")
            if any(len(row) != len(self.budgets) for row in rows):
                raise ValueError("a row must have an entry for each budget")
        return self


class BudgetPoint(Value):
    """The accuracy at one budget.

    Attributes:
        budget: in tokens.
        mean_latency_s: of the answers.
        accuracy: of them.
        boxed_share: of them, those with a closed box; none where that is unknown.
    """

    budget: int
    mean_latency_s: float
    accuracy: Accuracy
    boxed_share: float | None


class DeadlinePoint(Value):
    """The accuracy of what is finished by a deadline, counted from each question's start."""

    deadline_s: float
    accuracy: Accuracy


class AxisPoint(Value):
    """The accuracy at a number of tokens, all of which are taken for the faster system's."""

    tokens: float
    accuracy: Accuracy


class AtDeadline(Value):
    """Two systems at one deadline; ``difference`` is A's share minus B's."""

    deadline_s: float
    a: Accuracy
    b: Accuracy
    difference: Difference
    mcnemar: McNemar


class Crossover(Value):
    """From when on another system is right more often, or that there is no such deadline.

    Attributes:
        before, after: names of the systems that are ahead before and after it; the same
            one twice if it is ahead on average up to any deadline.
        deadline_s: of the crossover that the answers show; none if there is none.
        interval: over the resamples of the questions that show one, too.
        share: of the resamples that do, in the same direction; where the answers show none, in
            any direction.
        questions: how many there are.
    """

    before: str
    after: str
    deadline_s: float | None
    interval: Interval | None
    share: float
    questions: int

    @property
    def is_shown(self) -> bool:
        """Whether there is a crossover beyond chance."""
        return self.finding == "shown"

    @computed_field
    @property
    def finding(self) -> CrossoverFinding:
        """What the answers and their resamples show."""
        if self.questions < FEWEST_QUESTIONS:
            return "too few questions"
        if self.deadline_s is None or self.interval is None:
            return "possible" if self.share > 1 - CONFIDENCE else "none"
        return "shown" if self.share >= CONFIDENCE else "within noise"

    @property
    def sentence(self) -> str:
        """What was found."""
        if self.finding == "too few questions":
            asked = counted(self.questions, "question")
            return f"{asked}: too few to tell whether there is a crossover."
        if self.deadline_s is None or self.interval is None:
            ahead = (
                f"averaged up to any deadline, {self.before} answers at least as many questions "
                "correctly"
            )
            if self.finding == "possible":
                return (
                    f"No crossover in these answers: {ahead}. More questions may reveal one: it "
                    f"occurs in {self.share:.0%} of bootstrap resamples."
                )
            return f"No crossover: {ahead}."
        at = f"{self.deadline_s:.3g} s"
        if self.finding == "within noise":
            return (
                f"No significant crossover: {self.after} overtakes {self.before} at {at}, but in "
                f"only {self.share:.0%} of bootstrap resamples."
            )
        low, high = f"{self.interval.low:.3g}", f"{self.interval.high:.3g}"
        return (
            f"{self.before} is more accurate up to {at}, {self.after} from then on "
            f"({CONFIDENCE:.0%} CI {low}\u2013{high} s)."
        )


class _Crossings(NamedTuple):
    """Of each row of differences: the position of its crossover, and the areas on its sides."""

    position: npt.NDArray[np.intp]
    before: Floats
    after: Floats


def require_same_questions(a: Answers, b: Answers) -> None:
    """Check that two systems answered the same questions, in the same order."""
    if a.questions == b.questions:
        return
    only_a, only_b = set(a.questions) - set(b.questions), set(b.questions) - set(a.questions)
    raise UsageError(
        f"{a.name} and {b.name} did not answer the same questions: {len(only_a)} were answered by "
        f"{a.name} alone, {len(only_b)} by {b.name} alone.",
        "Evaluate both with the same --task, --data and --limit. If you did, some questions have "
        "no answer: armload show EVALUATION shows why.",
    )


def by_budget(answers: Answers) -> tuple[BudgetPoint, ...]:
    """Return the accuracy against tokens."""
    columns = zip(
        answers.budgets,
        zip(*answers.latency_s, strict=True),
        zip(*answers.correct, strict=True),
        zip(*answers.boxed, strict=True) if answers.boxed else (None,) * len(answers.budgets),
        strict=True,
    )
    return tuple(
        BudgetPoint(
            budget=budget,
            mean_latency_s=sum(latency_s) / len(latency_s),
            accuracy=accuracy_of(correct),
            boxed_share=None if boxed is None else sum(boxed) / len(boxed),
        )
        for budget, latency_s, correct, boxed in columns
    )


def by_deadline(answers: Answers, deadlines_s: Sequence[float]) -> tuple[DeadlinePoint, ...]:
    """Return the accuracy against seconds."""
    columns = _correct_by(answers, deadlines_s).T.tolist()
    return tuple(
        DeadlinePoint(deadline_s=deadline_s, accuracy=accuracy_of(correct))
        for deadline_s, correct in zip(deadlines_s, columns, strict=True)
    )


def deadlines_of(*systems: Answers) -> tuple[float, ...]:
    """Return the deadlines at which any system's accuracy changes; the most, evenly chosen."""
    import numpy as np

    times = np.unique(np.concatenate([np.ravel(system.latency_s) for system in systems]))
    if len(times) > MOST_DEADLINES:
        times = times[np.linspace(0, len(times) - 1, MOST_DEADLINES).round().astype(int)]
    return tuple(times.tolist())


def at_deadline(a: Answers, b: Answers, deadline_s: float) -> AtDeadline:
    """Compare two systems at a deadline."""
    require_same_questions(a, b)
    of_a, of_b = (_correct_by(each, [deadline_s])[:, 0].tolist() for each in (a, b))
    return AtDeadline(
        deadline_s=deadline_s,
        a=accuracy_of(of_a),
        b=accuracy_of(of_b),
        difference=difference_of(of_a, of_b),
        mcnemar=mcnemar(of_a, of_b),
    )


def crossover(a: Answers, b: Answers) -> Crossover:
    """Find the deadline from which the other system is right more often.

    Single answers make the difference change its sign often where it is small. So the crossover is
    the change of sign at which the area between both curves turns: where the difference, added up
    over time, is largest or smallest. Its interval is a bootstrap over the questions.
    """
    import numpy as np

    require_same_questions(a, b)
    deadlines = np.array(deadlines_of(a, b))
    each = _correct_by(a, deadlines).astype(float) - _correct_by(b, deadlines)
    # After the last answer nothing changes any more; that counts for as long as all before it.
    lengths = np.diff(deadlines, append=2 * deadlines[-1])
    seen = each.sum(axis=0, keepdims=True)
    signs = {sign: _crossings(sign * seen, lengths) for sign in (1, -1)}
    sign = max(signs, key=lambda sign: min(signs[sign].before[0], signs[sign].after[0]))
    found = signs[sign]
    rows = drawn_counts(len(each)) @ each
    if min(found.before[0], found.after[0]) <= 0:
        ahead = (a if float((seen @ lengths)[0]) >= 0 else b).name
        either = _shown(_crossings(rows, lengths)) | _shown(_crossings(-rows, lengths))
        return Crossover(
            before=ahead,
            after=ahead,
            deadline_s=None,
            interval=None,
            share=float(either.mean()),
            questions=len(each),
        )
    drawn = _crossings(sign * rows, lengths)
    shown = _shown(drawn)
    before, after = (a, b) if sign > 0 else (b, a)
    return Crossover(
        before=before.name,
        after=after.name,
        deadline_s=float(deadlines[found.position[0]]),
        interval=percentile_interval(deadlines[drawn.position[shown]]) if shown.any() else None,
        share=float(shown.mean()),
        questions=len(each),
    )


def on_one_axis(
    faster: Answers, slower: Answers, ratio: float
) -> tuple[tuple[AxisPoint, ...], tuple[AxisPoint, ...]]:
    """Return both accuracies against the faster system's tokens, by one ratio of their speeds.

    In the time of one token of the slower system the faster one generates ``ratio`` tokens. That
    leaves out the time to the first token, and that tokens get slower as the context grows.

    Args:
        ratio: of the seconds per token, slower over faster.
    """
    fast, slow = (
        tuple(
            AxisPoint(tokens=point.budget * scale, accuracy=point.accuracy)
            for point in by_budget(answers)
        )
        for answers, scale in ((faster, 1.0), (slower, ratio))
    )
    return fast, slow


def _correct_by(answers: Answers, deadlines_s: Sequence[float] | Floats) -> npt.NDArray[np.bool_]:
    """Return a row per question: whether what is finished by each deadline is right."""
    import numpy as np

    deadlines = np.asarray(deadlines_s, dtype=float)
    latency_s, correct = np.array(answers.latency_s), np.array(answers.correct)
    result = np.zeros((len(correct), len(deadlines)), dtype=bool)
    for column in range(len(answers.budgets)):
        finished = latency_s[:, column, None] <= deadlines
        result = np.where(finished, correct[:, column, None], result)
    return result


def _shown(found: _Crossings) -> npt.NDArray[np.bool_]:
    """Return which rows have a crossover."""
    return (found.before > 0) & (found.after > 0)


def _crossings(differences: Floats, lengths: Floats) -> _Crossings:
    """Find where rows of differences turn from above zero to below it."""
    import numpy as np

    areas = np.cumsum(differences * lengths, axis=1)
    last = np.argmax(areas, axis=1)
    most = np.take_along_axis(areas, last[:, None], axis=1)[:, 0]
    position = np.minimum(last + 1, len(lengths) - 1)
    return _Crossings(position=position, before=most, after=most - areas[:, -1])
