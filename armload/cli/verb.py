"""What all verbs share: how an error is shown, and how an interruption is."""

from __future__ import annotations

import os
import sys
from typing import Any

from invoke.exceptions import Exit
from invoke.tasks import Task

from armload.core.errors import INTERRUPTED_EXIT_STATUS, ArmloadError, ConnectError


class Verb(Task[Any]):
    """A task whose errors reach a person as a sentence and an exit status, never as a traceback."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the verb.

        Raises:
            Exit: the verb failed; with its exit status. The words are on standard error.
        """
        try:
            return super().__call__(*args, **kwargs)
        except ArmloadError as error:
            if _password_was_given(error):
                return self(*args, **kwargs)
            _show(error.message, error.remedy)
            raise Exit(code=error.exit_status) from error
        except KeyboardInterrupt:
            _show("Interrupted. What was done so far is kept; the same command goes on from there.")
            raise Exit(code=INTERRUPTED_EXIT_STATUS) from None
        except BrokenPipeError:
            # The reader has seen enough; the interpreter must not try to flush to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Exit(code=0) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else "this machine: "
            _show(f"{where}{error.strerror or error}.", "Nothing half-made is taken for done.")
            raise Exit(code=ArmloadError.exit_status) from error


def _password_was_given(error: ArmloadError) -> bool:
    if not isinstance(error, ConnectError) or not sys.stdin.isatty():
        return False
    from armload.boards.line import PASSWORD_VARIABLE, LoginRefusedError

    if not isinstance(error, LoginRefusedError) or not error.password_would_do:
        return False
    from getpass import getpass

    _show(error.message)
    os.environ[PASSWORD_VARIABLE] = getpass("Password: ")
    return True


def _show(message: str, remedy: str = "") -> None:
    from armload.cli.terminal import errors

    errors().print(f"[bold red]error:[/] {_plain(message)}", highlight=False, soft_wrap=True)
    if remedy:
        errors().print(_plain(remedy), highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
