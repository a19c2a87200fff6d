"""How a verb is run with what was typed, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from armload.cli.configuration import (
    Default,
    Word,
    defaults_of,
    files_named,
    require_trust_in,
    typed_with_defaults,
)
from armload.cli.error_output import failed, internal_error, show_error, system_error
from armload.cli.streams import STANDARD_OUTPUT, discard_output, promise_document
from armload.core.errors import (
    SKIPS_FINISHED,
    ArmloadError,
    ConnectError,
    InterruptionError,
    UsageError,
)
from armload.core.files import require_writable
from armload.core.options import OptionGroup, declared_options
from armload.core.shell import join
from armload.core.trust import UntrustedFileError, trust
from armload.core.workspace import foreign_workspace, owner_of

if TYPE_CHECKING:
    from armload.cli.verb import Results, Verb

_INTERRUPTED = "Interrupted."

Done = TypeVar("Done")


def run_verb(verb: Verb, words: Mapping[str, Word]) -> None:
    """Run a verb with what was typed, by the names of fields.

    Raises:
        SystemExit: the verb failed; with its exit status. The error was shown.
    """
    promise_document(wanted=bool(words.get("as_json")))
    try:
        _mention_foreign_workspace()
        options = _with_trust(verb, lambda: typed_options(verb, words))
        for folder in verb.results:
            require_writable(folder())
        with files_named(verb.name, options.usual):
            _with_trust(verb, lambda: with_password(lambda: _carry_out(verb, options)))
        sys.stdout.flush()
    except ArmloadError as error:
        raise failed(error) from error
    except KeyboardInterrupt:
        said = f"{_INTERRUPTED} {SKIPS_FINISHED}" if verb.keeps else _INTERRUPTED
        raise failed(InterruptionError(said)) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
            discard_output()  # the reader has seen enough
            raise SystemExit(0) from None
        raise failed(system_error(error)) from error
    except Exception as error:
        raise failed(internal_error(error)) from error


def _carry_out(verb: Verb, options: OptionGroup) -> None:
    results: Results = verb.body(options)
    if results is None:
        return
    from armload.cli.present import present

    as_json = getattr(options, "as_json", False)
    if isinstance(results, Generator):
        with closing(results):
            for result in results:
                present(result, as_json=as_json)
    else:
        present(results, as_json=as_json)


def _with_trust(verb: Verb, work: Callable[[], Done]) -> Done:
    """Do work that reads a person's files; again where they agree to what one of them decides.

    Raises:
        UntrustedFileError: they do not, or cannot be asked.
    """
    while True:
        try:
            return work()
        except UntrustedFileError as error:
            if not (verb.asks and sys.stdin.isatty()):
                raise
            from armload.cli.deciding_files import is_agreed

            if not is_agreed([error.asked]):
                raise
            trust(error.asked)


def typed_options(verb: Verb, words: Mapping[str, Word]) -> OptionGroup:
    """Return the options that were typed.

    Raises:
        UsageError: one is missing or not allowed, or no record could hold it.
    """
    declared = list(declared_options(verb.options))
    given = {each.field: words.get(each.field) for each in declared}
    for each in declared:
        word = given[each.field]
        for text in word if isinstance(word, list) else [word]:
            # Options are kept with the results of many verbs.
            if each.option.is_argument or not isinstance(text, str):
                continue
            if text != text.encode(errors="ignore").decode():
                raise UsageError(
                    f"{each.shown} {text!a}: this is not valid UTF-8.",
                    "If it is the name of a file, rename the file.",
                )
    defaults = defaults_of(verb.name) if verb.has_defaults else {}
    if defaults:
        plan = _planned(given.get("plan") or defaults.get("plan"))
        keys = {each.name.replace("-", "_"): each.field for each in declared}
        before = {keys[key]: value for key, value in plan.items() if key in keys}
        before |= {field: word for field, word in given.items() if word}
        words = {field: each.word for field, each in defaults.items()}
        gone = before.keys() | verb.options.excluded(before, words)
        defaults = {field: each for field, each in defaults.items() if field not in gone}
        require_trust_in(each for each in defaults.values() if each.word)
    given |= {field: each.word for field, each in defaults.items()}
    missing = [each.shown for each in declared if each.info.is_required() and not given[each.field]]
    if missing:
        example = (verb.__doc__ or "").partition("Example: ")[2].partition("\n")[0]
        raise UsageError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
            f"Example: {example}",
        )
    words = {field: word for field, word in given.items() if word}
    return typed_with_defaults(verb.options, words, defaults)


def _mention_foreign_workspace() -> None:
    if (folder := foreign_workspace()) is None:
        return
    from armload.cli import terminal

    terminal.say(
        f"Ignoring the workspace {folder}, which belongs to {owner_of(folder)}. To use it: "
        f"{join(['armload', 'trust', folder])}"
    )


def _planned(plan: Word | Default | None) -> dict[str, Any]:
    """Return what a plan file says, which comes before a person's defaults."""
    path = plan.word if isinstance(plan, Default) else plan
    if not isinstance(path, str):
        return {}
    from armload.core.yamlfile import read_content

    try:
        return read_content(Path(path).expanduser())
    except (ArmloadError, RuntimeError):  # whoever reads it then says so
        return {}


def with_password(work: Callable[[], Done]) -> Done:
    """Do work that logs in to boards; again where one of them needs a password that is given now.

    Raises:
        ConnectError: as the work does, where a password is no help or not given.
    """
    while True:
        try:
            return work()
        except ConnectError as error:
            if not _password_is_given(error):
                raise


def _password_is_given(error: ConnectError) -> bool:
    if not sys.stdin.isatty():
        return False
    from armload.boards.failures import LoginRefusedError
    from armload.boards.ssh_route import use_password

    if not isinstance(error, LoginRefusedError) or not error.password_would_do:
        return False
    from armload.cli import terminal

    show_error(error.message)
    try:
        use_password(terminal.ask_password())
    except EOFError:
        return False
    return True
