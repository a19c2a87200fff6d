"""``init``: from a board's address to its first run, question by question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from armload.bench.options import MODEL
from armload.cli import kept_answers
from armload.cli.error_output import show_error, system_error
from armload.cli.execution import with_password
from armload.cli.new_board import HOST_HELP, NewBoardOptions, add_board
from armload.cli.options import OutputOptions, json_option
from armload.cli.streams import STANDARD_OUTPUT
from armload.cli.verb import verb
from armload.core.defaults import DEMO, VIRTUAL
from armload.core.errors import (
    ArmloadError,
    ConnectError,
    InterruptionError,
    UnresolvedNameError,
    UsageError,
)
from armload.core.options import Option, declared_options
from armload.core.workspace import runs_folder, sweeps_folder
from armload.runs.request import Waiting

if TYPE_CHECKING:
    from armload.boards.board import Board
    from armload.runs.request import Request

_MOST_MODELS = 6
_YES = ("y", "Y", "yes")
_FEW_TOKENS = 32


class InitOptions(Waiting, NewBoardOptions, OutputOptions):
    """The answers to what ``init`` asks."""

    host: Annotated[str, Option(HOST_HELP, usual="a virtual board on this machine")] = ""
    yes: Annotated[
        bool, Option("take the default answer to every question, and pin an unknown host key")
    ] = False
    name: Annotated[
        str, Option("what to call the board", usual="its host's name", heading="Board")
    ] = ""
    model: Annotated[
        str,
        Option(
            MODEL,
            usual="the fastest that fits, from a short list; demo if none fits, or for a virtual "
            "board",
            heading="Plan",
            harmless="in a plan",
        ),
    ] = ""
    as_json: Annotated[bool, json_option(": the median run of the repeats")] = False


@verb(InitOptions, results=(runs_folder, sweeps_folder))
def init(options: InitOptions) -> None:
    """Set up a workspace here: add a board, choose a model, and run it.

    Asks for whatever is not given; Enter accepts the proposed answer. Pins the board's host key
    after you have compared it, probes the board, writes its file to boards/, makes it the
    workspace's default board unless there is one, proposes a model that fits, and runs it as bench
    does. Without --host, a virtual board is used. After an interruption or a failed step, armload
    init offers to continue with the answers so far.
    Example: armload init
    Example: armload init --host pi@192.168.1.50 --model smollm2 --yes
    """
    from armload.analysis.repeats import Precision
    from armload.bench.sweeping import combinations
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.present import present
    from armload.cli.verbs.bench import repeated
    from armload.core.shell import program_name
    from armload.engines.plan import Plan

    _check_can_ask(options)
    options, is_resumed = _resumed(options)
    # The model is asked for after the board: with one, no board is the virtual one.
    if not (is_resumed and options.model):
        with _continued(options):
            options = _with_host(options)
    if options.host:
        with _continued(options):
            options = _with_name(options)
        with _continued(options):
            board = _added(options)
    else:
        name = options.name or VIRTUAL
        options = options.refuse(
            ("port", "user", "key", "hardware"), "a virtual board", "Give --host too."
        )
        with _continued(options):
            _write_virtual(name)
            board = load_board(name)
    with _continued(options):
        named = _made_default(board.name)
        options = _with_model(options, board.name, named)
    request = _request(options, board.name)

    # An emulated board is slow, and a first impression of it is enough.
    is_emulated = not options.host
    plan = Plan(n_predict=_FEW_TOKENS) if is_emulated else Plan()

    def first_run() -> None:
        (one,) = combinations([options.model], [plan], terminal.progress())
        present(repeated(request, one, Precision()), as_json=options.as_json)

    with _continued(options):
        with_password(first_run)
    kept_answers.forget()
    program = program_name()
    few = f" -n {_FEW_TOKENS}" if is_emulated else ""
    terminal.say(f"Run it again: {program} bench{named} --model {options.model}{few}")
    terminal.say(f"See what else this board can run: {program} fit{named}")


def _check_can_ask(options: InitOptions) -> None:
    from armload.cli import terminal

    questions = {"--host": options.host, "--name": options.name, "--model": options.model}
    missing = [name for name, answer in questions.items() if not answer]
    if missing and not options.yes and not terminal.can_ask():
        raise UsageError(
            f"{', '.join(missing)}: not given, and there is no terminal to ask on.",
            "Give these options, or --yes to take the default answers: without --host, a virtual "
            "board is used.",
        )


def _resumed(options: InitOptions) -> tuple[InitOptions, bool]:
    """Take the answers of an ``init`` of this workspace that has not ended, if a person agrees."""
    if options.yes or options.given(["host", "name", "model"]):
        return options, False
    known = kept_answers.kept(InitOptions)
    if known is None:
        return options, False
    fields = {name: getattr(known, name) for name in known.model_fields_set}
    merged = options.model_copy(
        update={name: value for name, value in fields.items() if not options.given([name])}
    )
    words = _command(merged) if merged.host else f"{_command(merged)} (on a virtual board)"
    with _continued(options):
        if _answer(options, f"Continue with your earlier answers, as {words}? [y/n]", "y") in _YES:
            return merged, True
    kept_answers.forget()
    return options, False


def _keep(options: InitOptions) -> None:
    """Keep the answers so far; without any of a person's, there is nothing to keep."""
    if not options.yes and any((options.host, options.model)):
        kept = options.model_dump(mode="json", exclude_unset=True, exclude={"as_json", "yes"})
        kept_answers.keep(kept)


@contextmanager
def _continued(options: InitOptions) -> Iterator[None]:
    """Say how to continue with the answers so far, where the block is interrupted or fails."""
    _keep(options)
    try:
        yield
    except (EOFError, KeyboardInterrupt):
        raise InterruptionError("Interrupted.", f"To continue: {_command(options)}") from None
    except UsageError:  # the same answers would fail again
        raise
    except UnresolvedNameError:
        kept_answers.forget()
        raise
    except ArmloadError as error:
        remedy = _remedy(error, options)
        if isinstance(error, ConnectError):  # nobody is asked for a password a second time
            raise ConnectError(error.message, remedy) from error
        error.remedy = remedy
        raise
    except OSError as error:
        if error.filename == STANDARD_OUTPUT:  # nobody reads it
            raise
        known = system_error(error)
        known.remedy = _remedy(known, options)
        raise known from error


def _remedy(error: ArmloadError, options: InitOptions) -> str:
    between = "\n" if "\n" in error.remedy else " "  # its last line may be a command
    return f"{error.remedy}{between}To continue: {_command(options)}".strip()


def _command(options: InitOptions) -> str:
    from armload.core.shell import join

    words = ["armload", "init"]
    for each in declared_options(InitOptions):
        value = getattr(options, each.field)
        if value and options.given([each.field]):
            words += [each.shown] if each.is_switch else [each.shown, str(value)]
    return join(words)


def _answer(options: InitOptions, question: str, default: str = "", enter: str = "") -> str:
    from armload.cli import terminal

    return default if options.yes else terminal.ask(question, default, enter)


def _with_host(options: InitOptions) -> InitOptions:
    if options.host:
        options.reach()
        return options
    while True:
        question = "SSH address, such as pi@192.168.1.50"
        host = _answer(options, question, enter="a virtual board on this machine")
        if not host:
            return options
        options = options.model_copy(update={"host": host})
        try:
            options.reach()
        except UsageError as error:
            show_error(error.message, error.remedy)
        else:
            return options


def _with_name(options: InitOptions) -> InitOptions:
    from armload.boards.adding import added_before, check_new, new_name

    reach = options.reach()
    before = added_before(reach)
    if before is not None and options.name in ("", before.name):
        return options.model_copy(update={"name": before.name})
    if options.name:
        check_new(options.name)
        return options
    proposed = new_name(reach.host)
    while True:
        name = _answer(options, "Name of the board", proposed)
        try:
            check_new(name)
        except UsageError as error:
            show_error(error.message, error.remedy)
        else:
            return options.model_copy(update={"name": name})


def _added(options: InitOptions) -> Board:
    from armload.boards.adding import added_before
    from armload.cli import terminal
    from armload.report.boards import added_sentence, contradiction_lines

    before = added_before(options.reach())
    if before is not None and before.name == options.name:
        terminal.say(f"Using boards/{before.name}.yaml, which has this address.")
        return before
    progress = terminal.progress()
    try:
        added = with_password(lambda: add_board(options.name, options, progress))
    except UsageError as error:
        remedy = error.remedy or f"Compare the fingerprints. To continue: {_command(options)}"
        raise UsageError(error.message, remedy) from error
    terminal.say(added_sentence(added))
    for line in contradiction_lines(added.contradictions):
        terminal.say(line)
    return added.board


def _write_virtual(name: str) -> None:
    from armload.boards.adding import write_virtual
    from armload.cli import terminal
    from armload.report.input_schema import BOARD

    path = write_virtual(BOARD.comment, name)
    BOARD.write(path.parent)
    terminal.say(f"Using a virtual board on this machine; to change its settings, edit {path}")


def _made_default(board: str) -> str:
    """Make a board the workspace's default, unless it has another; say which applies.

    Returns:
        The option that names the board in a command; empty where it is the default.
    """
    from armload.cli import terminal
    from armload.cli.configuration import ALL, add_workspace_default, defaults_of, workspace_file

    if _is_default(board):
        return ""
    found = defaults_of("bench").get("board")
    if found is not None and found.file == workspace_file():
        terminal.say(
            f"The default board of this workspace is still {found.typed} (set in {found.place}). "
            f"To use {board}, give --board {board}, or change that file."
        )
    elif file := add_workspace_default("board", board):
        terminal.say(
            f"{board} is now the default board of this workspace (set in {file}). For another: "
            "--board NAME."
        )
    else:
        terminal.say(
            f"To use {board} without --board, add to {workspace_file()}, in its table "
            f'[tool.armload.{ALL}]: board = "{board}"'
        )
    return "" if _is_default(board) else f" --board {board}"


def _is_default(board: str) -> bool:
    from armload.cli.configuration import defaults_of

    found = [defaults_of(verb).get("board") for verb in ("bench", "fit")]
    return all((each.typed if each else VIRTUAL) == board for each in found)


def _request(options: InitOptions, board: str) -> Request:
    from armload.runs.request import Request

    return options.part(Request).model_copy(update={"board": board})


def _with_model(options: InitOptions, board: str, named: str) -> InitOptions:
    from armload.bench.fitting import first_models
    from armload.cli import terminal
    from armload.core.shell import program_name
    from armload.engines.plan import Plan
    from armload.models.find import demo_words, header_of, is_listed, published
    from armload.models.gguf import read_outline
    from armload.models.model import check_generates
    from armload.report.fitted import models_table

    if options.model:
        return options
    progress = terminal.progress()
    found = with_password(lambda: first_models(_request(options, board), Plan(), progress))
    offered = found[:_MOST_MODELS]
    if offered:
        terminal.say(f"Models that fit on {board} (times are rough estimates):")
        terminal.say(models_table(offered))
    else:
        terminal.say(f"(for a list, run '{program_name()} fit{named}' later)")
    default = offered[0].model if offered else DEMO
    while True:
        meaning = demo_words() if default == DEMO else ""
        model = _answer(options, "Model to run", default, meaning)
        try:
            # Says where a listed model can be had if armload knows no file of it.
            reference = published(model) if is_listed(model) else model
            check_generates(read_outline(header_of(reference, progress))[0])
        except ArmloadError as error:
            if model == DEMO:
                raise
            show_error(error.message, error.remedy)
            if model == default:
                default = DEMO
        else:
            return options.model_copy(update={"model": model})
