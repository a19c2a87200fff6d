"""Positional arguments: ``armload inspect FILE``, and the same for ``invoke inspect FILE``.

Invoke's parser gives the word after a verb to a positional argument that has no value, also when
that word is ``--help``, and it knows neither optional ones nor lists. So verbs give every
argument a default, which leaves Invoke nothing to fill, and words that are no options and would
otherwise be answered with "No idea what … is" fill the positional ones here.
"""

from __future__ import annotations

from invoke.parser.argument import Argument
from invoke.parser.parser import ParseMachine, is_flag

_handled_by_invoke = ParseMachine.handle


def _handle(machine: ParseMachine, token: str) -> None:
    argument = _unfilled(machine)
    if argument is None or _is_read_by_invoke(machine, token):
        _handled_by_invoke(machine, token)
    else:
        argument.value = token


def _unfilled(machine: ParseMachine) -> Argument | None:
    for argument in machine.context.positional_args if machine.context else ():
        if argument.kind is list or not argument.got_value:
            return argument
    return None


def _is_read_by_invoke(machine: ParseMachine, token: str) -> bool:
    return is_flag(token) or machine.waiting_for_flag_value or machine.current_state == "unknown"


def read_positional_arguments() -> None:
    """Teach Invoke's parser, which lets nobody put another in its place, about these arguments."""
    ParseMachine.handle = _handle  # type: ignore[method-assign, assignment]
