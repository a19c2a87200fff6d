"""Retrying over a new connection what a dropped one interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from armload.core.errors import (
    ConnectError,
    LostConnectionError,
    PermanentConnectError,
    UnresolvedNameError,
)

RETRY_FOR_S = 120.0
"""A board that was away for so long is away."""

FIRST_ANSWER_S = 10.0
"""A board that has not answered yet may be switched off, or its address may be wrong."""

Done = TypeVar("Done")


class Retry:
    """How long a board may be away, and whether it is away now.

    Attributes:
        limit_s: that it may be away at a time.
        away: the board has not answered since it was waited for.
        is_new: it has never answered, so a name that cannot be resolved is misspelled.
    """

    def __init__(self, limit_s: float = RETRY_FOR_S, *, unanswered_s: float | None = None) -> None:
        """Begin with a board that has not answered yet.

        Args:
            limit_s: that it may be away at a time.
            unanswered_s: the same until it has answered once.
        """
        self.limit_s = limit_s if unanswered_s is None else unanswered_s
        self.away = False
        self.is_new = unanswered_s is not None
        self._answered_limit_s = limit_s

    def heard(self) -> None:
        """Begin anew: the board has answered."""
        self.away = False
        self.answered()

    def answered(self) -> None:
        """Wait for a board that is there as long as at any other time."""
        self.limit_s, self.is_new = self._answered_limit_s, False


def with_retries(
    action: Callable[[], Done],
    retry: Retry | None = None,
    on_drop: Callable[[object], None] = lambda _: None,
) -> Done:
    """Repeat an action whose connection drops; what is merely slow is not repeated.

    Args:
        action: what may be done twice.
        on_drop: is called with the error that a wait begins with.

    Raises:
        ConnectError: the board stayed away.
    """
    import tenacity

    retry = retry or Retry()

    def note(state: tenacity.RetryCallState) -> None:
        if state.outcome and isinstance(state.outcome.exception(), LostConnectionError):
            retry.answered()
        if not retry.away:  # the limit counts from here, not from when the action began
            state.start_time, state.attempt_number = time.monotonic(), 1
        retry.away = True

    def tell(state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            on_drop(state.outcome.exception())

    def is_given_up(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if retry.is_new and isinstance(error, UnresolvedNameError):
            return True
        return tenacity.stop_before_delay(retry.limit_s)(state)

    done = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(ConnectError)
        & tenacity.retry_if_not_exception_type(PermanentConnectError),
        after=note,
        wait=tenacity.wait_exponential(multiplier=0.2, max=5),
        stop=is_given_up,
        before_sleep=tell,
        reraise=True,
    )(action)
    retry.heard()
    return done
