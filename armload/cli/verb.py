"""What all verbs share: how an error is shown, and how an interruption is."""

from __future__ import annotations

import errno
import inspect
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from armload.cli.document import is_document_owed, promise_document, show_document
from armload.cli.flags import abbreviated, with_default
from armload.cli.positional import read_positional_arguments
from armload.cli.streams import STANDARD_OUTPUT, discard_output
from armload.core.disk import READ_REMEDY, is_about_network, is_refusal
from armload.core.errors import (
    ArmloadError,
    ConnectError,
    DiskError,
    InterruptionError,
    LocalMemoryError,
    UsageError,
)

read_positional_arguments()

_PLACES = (
    "Builds and downloads are stored in the folder ARMLOAD_CACHE, runs below the current folder."
)
_NO_MORE = {errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}
_ELSEWHERE = "Check that location, or use another one."


class Verb(Task[Any]):
    """A task whose errors reach a person as a sentence and an exit status, never as a traceback.

    An argument without a default is positional and must be given; one with a default is
    positional when the task names it in ``positional``, and takes several words when it is named
    in ``iterable``, too.
    """

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return what the verb takes, with a default for everything, as Invoke wants it."""
        texts = dict(self.help)
        arguments = super().get_arguments(ignore_unknown_help)
        self.help = texts  # Invoke takes out each that it has used, and may ask again
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
            Exit: the verb failed; with its exit status. The error was shown.
        """
        promise_document(wanted=bool(kwargs.get("json")))
        try:
            self._insist(kwargs)
            while True:
                try:
                    result = super().__call__(*args, **kwargs)
                    sys.stdout.flush()
                    return result
                except ConnectError as error:
                    if not _password_is_given(error):
                        raise
        except ArmloadError as error:
            raise failed(error) from error
        except KeyboardInterrupt:
            message = "Interrupted. What was built, fetched and copied so far is kept."
            raise failed(InterruptionError(message)) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
                discard_output()  # the reader has seen enough
                raise Exit(code=0) from None
            raise failed(system_error(error)) from error
        except Exit:
            raise
        except Exception as error:
            raise failed(internal_error(error)) from error


def failed(error: ArmloadError) -> Exit:
    """Show an error, as the document too that is still owed, and return what ends the program."""
    if is_document_owed():
        from armload.report.failure import Failed, Failure

        try:
            show_document(Failed(error=Failure.of(error)))
            sys.stdout.flush()
        except OSError:  # standard error and the exit status still tell it
            discard_output()
    show_error(error.message, error.remedy)
    return Exit(code=error.exit_status)


def system_error(error: OSError) -> ArmloadError:
    """Say what the operating system refused: a file, the network, or a further process."""
    if is_about_network(error):
        return ConnectError(
            f"The network connection failed: {error.strerror or error}.",
            "Check the address and the network, then repeat the command.",
        )
    if error.errno in _NO_MORE:
        return LocalMemoryError(
            f"This machine has no more memory, processes or open files: {error.strerror}.",
            "Close other programs, or raise the limit (ulimit -a shows them).",
        )
    return disk_error(error)


def disk_error(error: OSError) -> DiskError:
    """Say what this machine could not read or write; a faulty standard output is given up."""
    is_output = error.filename == STANDARD_OUTPUT
    where = error.filename or "this machine"
    remedy = _ELSEWHERE
    if is_refusal(error) and not is_output:
        is_denied = error.errno == errno.EACCES
        what = READ_REMEDY if is_denied else "Free disk space, or correct the permissions there."
        remedy = f"{what} {_PLACES}"
    if is_output:  # the interpreter must not try to write the rest of it there
        discard_output()
    return DiskError(f"{where}: {error.strerror or error}.", remedy)


def internal_error(error: Exception) -> ArmloadError:
    """Print where a defect of ours shows, and say what it is."""
    traceback.print_exception(error)
    what = " ".join(traceback.format_exception_only(error)[-1].split())
    return ArmloadError(f"Internal error: {what}", "Please report it with the lines above.")


def _password_is_given(error: ConnectError) -> bool:
    if not sys.stdin.isatty():
        return False
    from armload.boards.failures import LoginRefusedError
    from armload.boards.ssh_connection import use_password

    if not isinstance(error, LoginRefusedError) or not error.password_would_do:
        return False
    from getpass import getpass

    show_error(error.message)
    try:
        use_password(getpass("Password: "))
    except EOFError:
        return False
    return True


def show_error(message: str, remedy: str = "") -> None:
    """Tell a person what is wrong, and what to do now."""
    from rich.text import Text

    from armload.cli.terminal import say
    from armload.report.layout import Prose

    say(Prose(Text.assemble(("error:", "bold red"), " ", message)))
    if remedy:
        say(remedy)
