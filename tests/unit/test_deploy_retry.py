import time

import pytest

from armload.core.errors import (
    ConnectError,
    LostConnectionError,
    PermanentConnectError,
    UnresolvedNameError,
)
from armload.deploy.retry import Retry, with_retries


def test_a_boards_absence_counts_from_the_first_failure_however_long_the_action_ran() -> None:
    failures = [ConnectError("my-board: the connection dropped.")]

    def action() -> str:
        time.sleep(0.6)
        if failures:
            raise failures.pop()
        return "done"

    assert with_retries(action, Retry(0.5)) == "done"


def test_a_board_that_is_heard_in_between_may_be_away_as_long_again() -> None:
    retry = Retry(0.3)
    failures = [ConnectError("my-board: the connection dropped.") for _ in range(4)]
    shown: list[str] = []

    def action() -> str:
        retry.heard()
        if failures:
            raise failures.pop()
        return "done"

    assert with_retries(action, retry, lambda error: shown.append(str(error))) == "done"
    assert shown == ["my-board: the connection dropped."] * 4
    assert not retry.away


def test_a_board_that_stays_away_is_given_up_with_its_own_error() -> None:
    error = ConnectError("my-board does not answer.")
    shown: list[object] = []

    def action() -> None:
        raise error

    began = time.monotonic()
    with pytest.raises(ConnectError) as raised:
        with_retries(action, Retry(1.0), shown.append)
    assert raised.value is error
    assert 0.5 < time.monotonic() - began < 1
    assert shown == [error]


@pytest.mark.parametrize("error", [ConnectError, LostConnectionError])
def test_a_board_is_waited_for_longer_once_it_has_answered(error: type[ConnectError]) -> None:
    failures = [error("my-board") for _ in range(4)]

    def action() -> str:
        if failures:
            raise failures.pop()
        return "done"

    retry = Retry(5.0, unanswered_s=0.3)
    if error is LostConnectionError:
        assert with_retries(action, retry) == "done"
    else:
        with pytest.raises(ConnectError):
            with_retries(action, retry)


def test_an_error_that_a_person_must_correct_is_raised_at_once() -> None:
    def action() -> None:
        raise PermanentConnectError("my-board: the login was refused.")

    shown: list[object] = []
    with pytest.raises(PermanentConnectError):
        with_retries(action, Retry(), shown.append)
    assert not shown


def test_a_name_that_cannot_be_resolved_is_waited_for_only_where_it_could_be_before() -> None:
    tries: list[UnresolvedNameError] = []

    def action() -> str:
        if len(tries) < 2:
            tries.append(UnresolvedNameError("my-board: cannot be resolved."))
            raise tries[-1]
        return "done"

    with pytest.raises(UnresolvedNameError):
        with_retries(action, Retry(unanswered_s=5))
    assert len(tries) == 1
    tries.clear()
    assert with_retries(action, Retry(5)) == "done"
