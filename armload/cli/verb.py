"""What all verbs share: how an error is shown, and how an interruption is."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from armload.cli.flags import abbreviated, with_default
from armload.cli.output import STANDARD_OUTPUT
from armload.cli.positional import read_positional_arguments
from armload.core.disk import is_refusal
from armload.core.errors import (
    INTERRUPTED_EXIT_STATUS,
    ArmloadError,
    ConnectError,
    DiskError,
    UsageError,
)

read_positional_arguments()

_ROOM = (
    "Make room or change its rights. What is built and fetched lies in the folder that "
    "ARMLOAD_CACHE names, runs lie below the current folder."
)
_ELSEWHERE = "Look at that place, or write to another one."


class Verb(Task[Any]):
    """A task whose errors reach a person as a sentence and an exit status, never as a traceback.

    An argument without a default is positional and must be given; one with a default is
    positional when the task names it in ``positional``, and takes several words when it is named
    in ``iterable``, too.
    """

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return what the verb takes, with a default for everything, as Invoke wants it."""
        arguments = super().get_arguments(ignore_unknown_help)
        for argument in map(with_default, map(abbreviated, arguments)):
            if argument.positional and argument.default is None:
                argument.default = ""
        return arguments

    def usage(self) -> list[str]:
        """Return its positional arguments as help shows them: ``FILE``, ``[RUN...]``."""
        return [self._as_shown(name) for name in self.positional]

    def _as_shown(self, name: str) -> str:
        word = name.upper() + ("..." if name in self.iterable else "")
        return word if self._is_needed(name) else f"[{word}]"

    def _is_needed(self, name: str) -> bool:
        return self.argspec(self.body).parameters[name].default is inspect.Parameter.empty

    def _insist(self, given: Mapping[str, Any]) -> None:
        missing = [
            name.upper() for name in self.positional if self._is_needed(name) and not given[name]
        ]
        if missing:
            example = (self.__doc__ or "").partition("Example: ")[2].partition("\n")[0]
            raise UsageError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
                f"Example: {example}",
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the verb.

        Raises:
            Exit: the verb failed; with its exit status. The words are on standard error.
        """
        try:
            self._insist(kwargs)
            while True:
                try:
                    return super().__call__(*args, **kwargs)
                except ConnectError as error:
                    if not _password_is_given(error):
                        raise
        except ArmloadError as error:
            show_error(error.message, error.remedy)
            raise Exit(code=error.exit_status) from error
        except KeyboardInterrupt:
            show_error("Interrupted. What was built, fetched and copied so far is kept.")
            raise Exit(code=INTERRUPTED_EXIT_STATUS) from None
        except BrokenPipeError:
            # The reader has seen enough; the interpreter must not try to flush to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Exit(code=0) from None
        except OSError as error:
            show_disk_error(error)
            raise Exit(code=DiskError.exit_status) from error


def show_disk_error(error: OSError) -> None:
    """Tell a person what this machine could not read or write."""
    is_output = error.filename == STANDARD_OUTPUT
    where = error.filename or "this machine"
    remedy = _ROOM if is_refusal(error) and not is_output else _ELSEWHERE
    show_error(f"{where}: {error.strerror or error}.", remedy)
    if is_output:  # the interpreter must not try to write the rest of it there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _password_is_given(error: ConnectError) -> bool:
    if not sys.stdin.isatty():
        return False
    from armload.boards.failures import PASSWORD_VARIABLE, LoginRefusedError

    if not isinstance(error, LoginRefusedError) or not error.password_would_do:
        return False
    from getpass import getpass

    show_error(error.message)
    try:
        os.environ[PASSWORD_VARIABLE] = getpass("Password: ")
    except EOFError:
        return False
    return True


def show_error(message: str, remedy: str = "") -> None:
    """Tell a person what is wrong, and what to do now."""
    from armload.cli.terminal import errors

    errors().print(f"[bold red]error:[/] {_plain(message)}", highlight=False, soft_wrap=True)
    if remedy:
        errors().print(_plain(remedy), highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
