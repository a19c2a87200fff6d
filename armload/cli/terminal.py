"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shlex import quote

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from armload.cli.progress import Bars, Lines
from armload.core.progress import Progress
from armload.core.values import visible
from armload.report.layout import Prose

_UNWRAPPED = 100_000
"""The width of what is no terminal: a file or a pipe breaks no line."""


class _Console(Console):
    """Prints what it is given: nothing in it is markup, an emoji's name, or a number to colour."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)
        if not self.file.isatty():
            self.width = _UNWRAPPED

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render all that is printed, in which no text steers the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


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


def program() -> str:
    """Return what armload is called here: by its path, where that is not among the programs."""
    beside, found = Path(sys.argv[0]).parent / "armload", shutil.which("armload")
    if not beside.is_file() or (found and Path(found).resolve() == beside.resolve()):
        return "armload"
    return quote(str(beside))


def can_ask() -> bool:
    """Say whether a person is there to answer."""
    return sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask a person; without one on the terminal the answer is no."""
    if not can_ask():
        return False
    from rich.prompt import Confirm

    try:
        with _asking():
            return Confirm.ask(Text(question), console=errors(), default=False)
    except EOFError:
        return False


def ask(question: str, default: str = "") -> str:
    """Ask a person for a word; Enter gives the default.

    Raises:
        EOFError: the input has ended.
    """
    from rich.prompt import Prompt

    with _asking():
        answer = Prompt.ask(
            Text(question), console=errors(), default=default, show_default=bool(default)
        )
    return answer.strip()


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (EOFError, KeyboardInterrupt):
        errors().print()  # what is said next begins a line
        raise
