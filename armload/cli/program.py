"""The program behind ``armload VERB``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from armload import __version__
from armload.cli.streams import discard_output, promise_document
from armload.cli.verb import ALL_VERBS, VERBS, verbs_in

_HELP = {"--help", "-h"}


def run() -> None:
    """Run the verb that the command line names.

    Raises:
        SystemExit: it failed; with its exit status.
    """
    try:
        try:
            _run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # as in 'armload --help | head'
        discard_output()
    except OSError as error:  # a disk that is full, where standard output is a file on it
        from armload.cli.error_output import disk_error, failed

        raise failed(disk_error(error)) from error


def _run(words: Sequence[str]) -> None:
    from armload.core.errors import ArmloadError

    promise_document(wanted=not {"--json", "-j"}.isdisjoint(words))
    try:
        if words and words[0] in {"-V", "--version"}:
            print(f"armload {__version__}")
        elif not words or words[0] in {"help", *_HELP}:
            named = [word for word in words[1:] if not word.startswith("-")]
            _show_help(named if named != ["help"] else [])
        elif ".".join(words[:2]) in VERBS and not _HELP.isdisjoint(words[2:]):
            _show_help(words[:2])
        elif verbs_in(words[0]) and not _HELP.isdisjoint(words[1:2]):
            _show_help(words[:1])
        else:
            _run_verb(*words)
    except ArmloadError as error:
        from armload.cli.error_output import failed

        raise failed(error) from error


def _show_help(names: Sequence[str]) -> None:
    """Show the page of a verb, whose group may be a word of its own, of a group, or the first."""
    from armload.cli.help import every_verb_page, group_page, program_page, verb_page

    name = ".".join(names)
    verb, _, last = name.rpartition(".")
    if name == ALL_VERBS:
        print(every_verb_page(), end="")
    elif name in VERBS:
        print(verb_page(VERBS[name]))
    elif last == ALL_VERBS and verb in VERBS:
        print(verb_page(VERBS[verb], shows_all=True))
    elif verbs_in(name):
        print(group_page(name), end="")
    elif name:
        from armload.cli.mistakes import unknown_page

        raise unknown_page(names)
    else:
        print(program_page(), end="")


def _run_verb(name: str, *words: str) -> None:
    if name not in VERBS:
        from armload.cli.mistakes import unknown_verb

        raise unknown_verb([name, *words])
    from armload.cli.command_line import read_options
    from armload.cli.execution import run_verb

    verb = VERBS[name]
    line = read_options(verb, words)
    if line.asks_help:
        _show_help([name, *([ALL_VERBS] if line.asks_all else [])])
        return
    for note in line.notes:
        from armload.cli.terminal import say

        say(note)
    with _interrupted_by(signal.SIGINT, *(_ENDING if verb.takes_back else ())):
        run_verb(verb, line.words)


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Let signals interrupt what the block does; one that is ignored stays so."""
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    before = {each: signal.getsignal(each) for each in numbers}
    heeded = [each for each in numbers if before[each] not in (signal.SIG_IGN, None)]
    for each in heeded:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in heeded:
            signal.signal(each, before[each])
        if came and came[-1] != signal.SIGINT:
            raise SystemExit(128 + came[-1])  # as a shell tells of it
