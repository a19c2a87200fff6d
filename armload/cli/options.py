"""Groups of options that several verbs share, and values that are checked the same in all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from armload.bench.options import MODEL, QUANTISED, FileType
from armload.core.defaults import DEMO, VIRTUAL
from armload.core.options import Names, Option, OptionGroup
from armload.models.file_types import distinct_file_types

if TYPE_CHECKING:
    from armload.runs.request import Request


A_BOARD = "a board: the name of a file in boards/, such as virtual or dayu200"
BOARDS = f"{A_BOARD}, @LABEL, or a pattern such as rk*"
STARTED = f"{VIRTUAL}, which is started if it is not running"


FileTypes = Annotated[tuple[str, ...], AfterValidator(distinct_file_types)]


def one_board(word: str) -> str:
    """Return the board that a label or a pattern means, and a name as its file spells it.

    Raises:
        UsageError: no board matches, or several do.
    """
    from armload.boards.naming import board_called, is_name
    from armload.core.workspace import spelled_name

    if "," in word or not word:
        return word
    # That there is a board of that name is checked when it is used.
    return spelled_name("boards", word) if is_name(word) else board_called(word)


OneBoard = Annotated[str, AfterValidator(one_board)]
"""The name of a board; a label or a pattern may mean it."""


class OnBoard(OptionGroup):
    """The board that a verb uses."""

    heading = "Board"

    board: Annotated[OneBoard, Option(A_BOARD, usual=STARTED, harmless="in a plan")] = VIRTUAL


class OnVirtualBoard(OnBoard):
    """The virtual board that a verb uses."""

    board: Annotated[OneBoard, Option(A_BOARD, harmless="in a plan", takes="virtual board")] = (
        VIRTUAL
    )


class OnBoards(OptionGroup):
    """The boards that a verb uses, as ``boards_called`` takes them."""

    heading = "Board"

    board: Annotated[
        Names, Option(BOARDS, usual=STARTED, several="commas", harmless="in a plan")
    ] = (VIRTUAL,)


class OnGateways(OptionGroup):
    """Through whom boards are reached."""

    heading = "Board"

    scheduler: Annotated[
        str,
        Option(
            "reach the boards through the gateways of this Dask scheduler (armload worker)",
            "ADDRESS",
        ),
    ] = ""


class OnNamedBoard(OptionGroup):
    """The board that a verb changes: it has to be named."""

    heading = "Board"

    board: Annotated[OneBoard, Option(A_BOARD, harmless="in a plan")]


class ForeignProgram(OptionGroup):
    """A program that armload did not build, what lies beside it, and how its output is read."""

    heading = "Program"

    command: Annotated[
        tuple[str, ...],
        Option(
            "after --: the program and its arguments; refer to --put files by name",
            several="repeat",
            is_argument=True,
            takes="file",
        ),
    ] = ()
    put: Annotated[
        tuple[Path, ...],
        Option(
            "a file or folder to copy to the board under its own name",
            several="repeat",
            takes="file",
        ),
    ] = ()
    reader: Annotated[
        str,
        Option(
            "how its output is read: a reader's name or YAML file",
            "NAME|FILE",
            usual="the reader that names the program, else text",
            takes="reader",
        ),
    ] = ""
    name: Annotated[
        str,
        Option(
            "name of the model", usual="the largest file or folder of --put other than the program"
        ),
    ] = ""


class OneModel(OptionGroup):
    """The model that a verb uses, and the type that it is quantised to first."""

    heading = "Plan"

    model: Annotated[str, Option(MODEL, harmless="in a plan")] = DEMO
    type: Annotated[FileType | None, QUANTISED] = None


def json_option(of_what: str = "") -> Option:
    """Return the option of a verb that prints JSON.

    Args:
        of_what: what the document is, as its help goes on.
    """
    return Option(f"print one JSON document{of_what}", name="json", harmless="anywhere")


class OutputOptions(OptionGroup):
    """What a verb prints."""

    heading = "Output"

    as_json: Annotated[bool, json_option()] = False


def models_in(request: Request, names: Sequence[str], file_types: Sequence[str]) -> tuple[str, ...]:
    """Return models in each of the file types; as they are where none is given.

    Raises:
        ArmloadError: a model cannot be quantised.
    """
    if not file_types:
        return tuple(names)
    from armload.cli import terminal
    from armload.conversion.quantising import quantised_for

    return quantised_for(request, names, file_types, terminal.progress())


def output_file(text: str) -> Path:
    """Return the file that a person named; it is not there yet.

    Raises:
        UsageError: it is, or it is a folder, or the folder that it would lie in is missing.
    """
    from armload.core.errors import UsageError

    path = Path(text).expanduser()
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", "Give --output the name of a file to write.")
    if path.exists():
        raise UsageError(f"{path} already exists.", "Delete it, or give another --output.")
    _need_folder(path if text.endswith("/") else path.parent)
    return path


def output_folder(text: str) -> Path:
    """Return the folder that a person named; it alone is made when it is not there.

    Raises:
        UsageError: it is a file, or not empty, or the folder that it would lie in is missing.
    """
    from armload.core.errors import UsageError

    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a folder.", "Give --output the name of a folder.")
    if path.exists() and any(path.iterdir()):
        raise UsageError(
            f"{path} already exists and is not empty.", "Delete it, or give another --output."
        )
    _need_folder(path.parent)
    return path


def _need_folder(folder: Path) -> None:
    from armload.core.errors import UsageError
    from armload.core.shell import join

    # A name that was mistyped must not become a tree of folders.
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {folder}.",
            f"Correct --output, or create the folder first: {join(['mkdir', '-p', folder])}",
        )
