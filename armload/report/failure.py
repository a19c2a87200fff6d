"""Errors as JSON."""

from __future__ import annotations

from armload.core.errors import ArmloadError, ErrorKind
from armload.core.values import Value


class Failure(Value):
    """An error.

    Attributes:
        kind: each exit status has one, but 1, which has ``disk`` and ``fault``.
        message: where it happened and what is wrong.
        remedy: what to do now; empty when the message already says it.
        exit_status: of a command that ends with this error.
    """

    kind: ErrorKind
    message: str
    remedy: str
    exit_status: int

    @classmethod
    def of(cls, error: ArmloadError) -> Failure:
        """Describe an error."""
        return cls.model_validate(error, from_attributes=True)


class FailedDocument(Value):
    """The document of a verb that failed and has no results."""

    error: Failure
