"""A verb: its options, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from inspect import getdoc
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
from armload.core.options import Declared, OptionGroup, declared_options
from armload.core.shell import join
from armload.core.trust import UntrustedFileError, trust
from armload.core.workspace import foreign_workspace, owner_of

if TYPE_CHECKING:
    from armload.report.result import Result

    Results = Result | Generator[Result, None, None] | None

_INTERRUPTED = "Interrupted."

Options = TypeVar("Options", bound=OptionGroup)
Done = TypeVar("Done")


class Verb:
    """A command whose options are a model, and whose errors reach a person as a sentence.

    Args:
        body: does what the verb is for, and returns the result; one that shows something before it
            is done yields results. Its docstring is the verb's help.
        options: the model.
        name: as it is typed, where the body is called otherwise.
        keeps: when it is interrupted, what it did so far is kept.
        results: return the folders of the workspace that it keeps results in.
        asks: whether it asks at a terminal for trust in a file that decides what runs.
        has_defaults: a person's defaults apply.
        takes_back: when it is interrupted, it takes back what it has begun on a board; also when
            it is told to end.
    """

    def __init__(
        self,
        body: Callable[[Any], Results],
        options: type[OptionGroup],
        name: str = "",
        *,
        keeps: bool = False,
        results: Sequence[Callable[[], Path]] = (),
        asks: bool = True,
        has_defaults: bool = True,
        takes_back: bool = False,
    ) -> None:
        self.body: Callable[[Any], Any] = body
        self.__doc__ = body.__doc__
        self.name = name or body.__name__
        self.options = options
        self.keeps = keeps
        self.results = results
        self.asks = asks
        self.has_defaults = has_defaults
        self.takes_back = takes_back

    @property
    def about(self) -> str:
        """The first line of its help."""
        return (getdoc(self) or "").partition("\n")[0]

    def usage(self) -> list[str]:
        """Return its positional arguments as help shows them: ``FILE``, ``[RUN...]``."""
        arguments = [each for each in declared_options(self.options) if each.option.is_argument]
        words = [each.shown + ("..." if each.is_list else "") for each in arguments]
        return [
            word if each.info.is_required() else f"[{word}]"
            for each, word in zip(arguments, words, strict=True)
        ]

    def __call__(self, /, **words: Word) -> None:
        """Run the verb with what was typed, by the names of fields.

        Raises:
            SystemExit: the verb failed; with its exit status. The error was shown.
        """
        promise_document(wanted=bool(words.get("as_json")))
        try:
            _mention_foreign_workspace()
            options = self._with_trust(lambda: self._read(words))
            for folder in self.results:
                require_writable(folder())
            with files_named(self.name, options.usual):
                self._with_trust(lambda: with_password(lambda: self._carry_out(options)))
            sys.stdout.flush()
        except ArmloadError as error:
            raise failed(error) from error
        except KeyboardInterrupt:
            said = f"{_INTERRUPTED} {SKIPS_FINISHED}" if self.keeps else _INTERRUPTED
            raise failed(InterruptionError(said)) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
                discard_output()  # the reader has seen enough
                raise SystemExit(0) from None
            raise failed(system_error(error)) from error
        except Exception as error:
            raise failed(internal_error(error)) from error

    def _carry_out(self, options: OptionGroup) -> None:
        results: Results = self.body(options)
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

    def _with_trust(self, work: Callable[[], Done]) -> Done:
        """Do work that reads a person's files; again where they agree to what one of them decides.

        Raises:
            UntrustedFileError: they do not, or cannot be asked.
        """
        while True:
            try:
                return work()
            except UntrustedFileError as error:
                if not (self.asks and sys.stdin.isatty()):
                    raise
                from armload.cli.deciding_files import is_agreed

                if not is_agreed([error.asked]):
                    raise
                trust(error.asked)

    def _read(self, words: Mapping[str, Word]) -> OptionGroup:
        """Return the options that were typed.

        Raises:
            UsageError: one is missing or not allowed, or no record could hold it.
        """
        declared = list(declared_options(self.options))
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
        defaults = defaults_of(self.name) if self.has_defaults else {}
        if defaults:
            plan = _planned(given.get("plan") or defaults.get("plan"))
            keys = {each.name.replace("-", "_"): each.field for each in declared}
            before = {keys[key]: value for key, value in plan.items() if key in keys}
            before |= {field: word for field, word in given.items() if word}
            words = {field: each.word for field, each in defaults.items()}
            gone = before.keys() | self.options.excluded(before, words)
            defaults = {field: each for field, each in defaults.items() if field not in gone}
            require_trust_in(each for each in defaults.values() if each.word)
        given |= {field: each.word for field, each in defaults.items()}
        missing = [
            each.shown for each in declared if each.info.is_required() and not given[each.field]
        ]
        if missing:
            example = (self.__doc__ or "").partition("Example: ")[2].partition("\n")[0]
            raise UsageError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
                f"Example: {example}",
            )
        words = {field: word for field, word in given.items() if word}
        return typed_with_defaults(self.options, words, defaults)


def _mention_foreign_workspace() -> None:
    if (folder := foreign_workspace()) is None:
        return
    from armload.cli import terminal

    terminal.say(
        f"Ignoring the workspace {folder}, which belongs to {owner_of(folder)}. To use it: "
        f"{join(['armload', 'trust', folder])}"
    )


def verb(
    options: type[Options],
    name: str = "",
    *,
    keeps: bool = False,
    results: Sequence[Callable[[], Path]] = (),
    asks: bool = True,
    has_defaults: bool = True,
    takes_back: bool = False,
) -> Callable[[Callable[[Options], Results]], Verb]:
    """Make a verb of the function below, which takes these options."""
    return lambda body: Verb(
        body,
        options,
        name,
        keeps=keeps,
        results=results,
        asks=asks,
        has_defaults=has_defaults,
        takes_back=takes_back,
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


def repeats(option: Declared) -> bool:
    """Say whether an option's values are given one by one."""
    return option.is_list and option.option.several == "repeat" and not option.is_switch


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
