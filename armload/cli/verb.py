"""What all verbs share: how an error is shown, and how an interruption is."""

from __future__ import annotations

import sys
from typing import Any

from invoke.exceptions import Exit
from invoke.tasks import Task

from armload.core.errors import INTERRUPTED_EXIT_STATUS, ArmloadError


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
            _show(error.message, error.remedy)
            raise Exit(code=error.exit_status) from error
        except KeyboardInterrupt:
            _show("Interrupted. What was done so far is kept; the same command goes on from there.")
            raise Exit(code=INTERRUPTED_EXIT_STATUS) from None
        except BrokenPipeError:
            sys.stderr.close()
            raise Exit(code=0) from None


def _show(message: str, remedy: str = "") -> None:
    from armload.cli.terminal import errors

    errors().print(f"[bold red]error:[/] {_plain(message)}", highlight=False, soft_wrap=True)
    if remedy:
        errors().print(_plain(remedy), highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
