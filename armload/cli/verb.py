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
            while True:
                try:
                    return super().__call__(*args, **kwargs)
                except ConnectError as error:
                    if not _password_is_given(error):
                        raise
        except ArmloadError as error:
            _show(error.message, error.remedy)
            raise Exit(code=error.exit_status) from error
        except KeyboardInterrupt:
            _show("Interrupted. What was built, fetched and copied so far is kept.")
            raise Exit(code=INTERRUPTED_EXIT_STATUS) from None
        except BrokenPipeError:
            # The reader has seen enough; the interpreter must not try to flush to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Exit(code=0) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else "this machine: "
            _show(
                f"{where}{error.strerror or error}.",
                "Make room or change its rights. What is built and fetched lies in the folder that "
                "ARMLOAD_CACHE names, runs lie below the current folder.",
            )
            raise Exit(code=ArmloadError.exit_status) from error


def _password_is_given(error: ConnectError) -> bool:
    if not sys.stdin.isatty():
        return False
    from armload.boards.failures import PASSWORD_VARIABLE, LoginRefusedError

    if not isinstance(error, LoginRefusedError) or not error.password_would_do:
        return False
    from getpass import getpass

    _show(error.message)
    try:
        os.environ[PASSWORD_VARIABLE] = getpass("Password: ")
    except EOFError:
        return False
    return True


def _show(message: str, remedy: str = "") -> None:
    from armload.cli.terminal import errors

    errors().print(f"[bold red]error:[/] {_plain(message)}", highlight=False, soft_wrap=True)
    if remedy:
        errors().print(_plain(remedy), highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
