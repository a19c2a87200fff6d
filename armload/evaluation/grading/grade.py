"""What a grader finds."""

from __future__ import annotations

from armload.core.values import Value


class GraderFinding(Value):
    """What a grader makes of an answer.

    Attributes:
        correct: whether it agrees with the expected one.
        extracted: what was compared; none if the text holds no answer.
        failure: why the grader came to no result; then the answer counts as wrong.
    """

    correct: bool
    extracted: str | None
    failure: str = ""


class Grade(GraderFinding):
    r"""A finding, and whether the answer has a closed box.

    Attributes:
        boxed: whether the graded text has a closed ``\boxed{…}``.
    """

    boxed: bool
