"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from armload.cli.progress import Bars, Lines
from armload.cli.streams import STANDARD_OUTPUT
from armload.core.progress import Progress
from armload.core.values import visible
from armload.report.layout import Prose

_UNWRAPPED = 100_000
"""The width of a file or a pipe, which break no line, unless COLUMNS is set."""


class _Console(Console):
    """Prints what it is given: nothing in it is markup, an emoji's name, or a number to colour."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)
        if not self.file.isatty() and not os.environ.get("COLUMNS", "").isdigit():
            self.width = _UNWRAPPED

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render all that is printed, in which no text steers the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), STANDARD_OUTPUT)


@cache
def errors() -> Console:
    """Return the console on standard error."""
    return _Console(stderr=True)


@cache
def results() -> Console:
    """Return the console on standard output."""
    return _Console()


def show(result: RenderableType) -> None:
    """Print a result for a person; no line ends with blanks.

    Words that are longer than the terminal is wide are left to the terminal, which copies them
    whole.
    """
    console = results()
    with console.capture() as captured:
        console.print(_laid_out(result), crop=False)
    for line in captured.get().removesuffix("\n").split("\n"):
        print(line.rstrip())


def say(what: RenderableType) -> None:
    """Tell a person something that is no result."""
    errors().print(_laid_out(what), crop=False)


def _laid_out(what: RenderableType) -> RenderableType:
    return Prose(what) if isinstance(what, str | Text) else what


def progress() -> Progress:
    """Return bars on a terminal that can redraw a line, plain lines elsewhere."""
    return Bars(errors()) if redraws() else Lines(errors())


def redraws() -> bool:
    """Say whether a person watches, on a terminal that can redraw a line."""
    return errors().is_interactive and errors().file.isatty()


def can_ask() -> bool:
    """Say whether a person is there to answer."""
    return sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask a person; without one on the terminal the answer is no, as it is after Enter alone."""
    if not can_ask():
        return False
    while True:
        try:
            with _ending_the_line():
                answer = _answer(f"{question} [y/n] (Enter: n): ").casefold()
        except EOFError:
            return False
        if answer in _YES_OR_NO:
            return _YES_OR_NO[answer]
        say("Answer y or n.")


_YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False, "": False}


def ask(question: str, default: str = "", enter: str = "") -> str:
    """Ask a person for a word; Enter gives the default.

    Args:
        enter: what the default means, where the word alone does not tell.

    Raises:
        EOFError: the input has ended.
    """
    meaning = enter or default
    with _ending_the_line():
        answer = _answer(f"{question} (Enter: {meaning}): " if meaning else f"{question}: ")
    return answer or default


def ask_password() -> str:
    """Ask a person for a password, which the terminal does not show.

    Raises:
        EOFError: the input has ended.
    """
    import termios

    descriptor = sys.stdin.fileno()
    usual = termios.tcgetattr(descriptor)
    hidden = [*usual]
    hidden[3] &= ~termios.ECHO
    try:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, hidden)
        return _answer("Password: ")
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, usual)
        errors().print()  # what is said next begins a line


def _answer(prompt: str) -> str:
    """Return the line that a person gives, or let a signal raise.

    Python looks for signals before it reads; one that arrives in between interrupts nothing, and
    waits for the next key. What a signal writes to a pipe ends the wait whenever it arrives.
    """
    errors().print(Text(prompt), end="", crop=False)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        while sys.stdin not in select.select([sys.stdin, reader], [], [])[0]:
            os.read(reader, 1)
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


@contextmanager
def _ending_the_line() -> Iterator[None]:
    try:
        yield
    except (EOFError, KeyboardInterrupt):
        errors().print()
        raise
