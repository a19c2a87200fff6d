"""Retrying over a new connection what a dropped one interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from armload.core.errors import ConnectError, LastingConnectError

PATIENCE_S = 120.0
"""A board that was away for so long is away."""

FIRST_ANSWER_S = 10.0
"""A board that has not answered yet may be switched off, or its address may be wrong."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0

Done = TypeVar("Done")


class Retry:
    """How long a board has been away, and when to ask it again.

    Args:
        limit_s: that it may be away at a time.
    """

    def __init__(self, limit_s: float = PATIENCE_S) -> None:
        self._limit_s = limit_s
        self.heard()

    @property
    def away(self) -> bool:
        """Whether the board has not answered since it was waited for."""
        return self._away_since is not None

    def heard(self) -> None:
        """Begin anew: the board has answered."""
        self._away_since: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def pause(self, error: ConnectError) -> None:
        """Wait a little before the next attempt.

        Raises:
            ConnectError: ``error``, when waiting makes no sense any more.
        """
        now = time.monotonic()
        self._away_since = self._away_since or now
        late = now - self._away_since + self._pause_s > self._limit_s
        if late or isinstance(error, LastingConnectError):
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def patiently(action: Callable[[], Done], patience: Retry | None = None) -> Done:
    """Do what may be done twice, until the connection holds; what is merely slow is not repeated.

    Raises:
        ConnectError: the board stayed away.
    """
    patience = patience or Retry()
    while True:
        try:
            done = action()
        except ConnectError as error:
            patience.pause(error)
        else:
            patience.heard()
            return done
