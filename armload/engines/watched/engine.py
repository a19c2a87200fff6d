"""Any other program, run under our ``watch``, which times its writes and looks at its memory.

One of them is MNN's Python wheel, with a script of ours.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.helper import WATCH
from armload.build.inspection import Inspection
from armload.core.bounds import read_bounded
from armload.core.errors import UsageError
from armload.core.files import is_file
from armload.core.places import data_path
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.layout import Layout, from_program_folder
from armload.deploy.payload import FoundPayload, Payload, find_payload, read_payload
from armload.engines.engine import Engine, RunContext
from armload.engines.job import BinaryRecord, Job, ModelRecord, PutFile, RunSpec, Watched
from armload.engines.output import Output
from armload.engines.plan import DEFAULT_TIME_LIMIT_S
from armload.engines.watched.command import (
    Command,
    Script,
    check_program,
    check_wheel,
    for_board,
    look_at_program,
    program_among,
)
from armload.engines.watched.read import read_watched
from armload.engines.watched.reader import Reader, load_reader

PROGRAM_ID_FILE = from_program_folder("watched")
"""Holds the program's process id; the run's script looks at that one's memory."""


class WatchRequest(Value):
    """What a person asks to be run.

    Attributes:
        words: the program and its arguments.
        put: local files and folders that it needs on the board.
        reader: of its output.
        is_guessed: the reader was chosen by the program's name.
        stdin: a local file that is its standard input; none for an empty one.
        name: of the model; empty for the name of the largest payload beside the program.
        wheel_python: a Python on the board that must have MNN's wheel; empty for none.
        time_limit_s: the board itself ends it after that long.
        n_predict: tokens that it is to generate at most; none where only its words say so.
    """

    words: tuple[str, ...]
    put: tuple[Path, ...] = ()
    reader: Reader
    is_guessed: bool = False
    stdin: Path | None = None
    name: str = ""
    wheel_python: str = ""
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    n_predict: int | None = None


class WatchedProgram(Engine):
    """A program that armload did not build.

    Args:
        payload: what ``request.put`` names, read.
        program: what its first word is: a file of the payload, or a program of the board's own.
        stdin: what ``request.stdin`` names, read.
    """

    name = "watch"
    unit = "writes"
    helpers = (WATCH,)

    def __init__(
        self,
        request: WatchRequest,
        payload: Sequence[Payload],
        program: Inspection | Script | str,
        stdin: Payload | None = None,
    ) -> None:
        self._request = request
        self._stdin = stdin
        self._payload = tuple(payload)
        self._program = program
        self._inspection = program if isinstance(program, Inspection) else None

    @classmethod
    def load(
        cls, request: WatchRequest, program: Inspection | Script | str, progress: Progress
    ) -> WatchedProgram:
        """Read what is to be put on the board, which may be gigabytes.

        Raises:
            UsageError, DataError: as for ``read_payload``.
        """
        payload = [read_payload(path, progress) for path in request.put]
        stdin = read_payload(request.stdin, progress) if request.stdin else None
        return cls(request, payload, program, stdin)

    @property
    def fingerprint(self) -> str:
        """A checksum over the words and all that is put there."""
        request = self._request
        parts = [
            *request.words,
            request.reader.model_dump_json(),
            request.name,
            *(each.sha256 for each in self._payload),
            *([f"stdin {self._stdin.sha256}"] if self._stdin else []),
        ]
        return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]

    @property
    def subject(self) -> RunSpec:
        """The words, and what is known of program and model."""
        request = self._request
        command = self._on(Layout(workdir=PurePosixPath("/")))
        program = command.program
        return RunSpec(
            watched=Watched(
                words=request.words,
                reader=request.reader,
                is_guessed=request.is_guessed,
                stdin=self._stdin.name if self._stdin else "",
                files=tuple(
                    PutFile(name=str(file.name), sha256=file.sha256, size_bytes=file.size_bytes)
                    for each in self.payload
                    for file in each.files
                ),
                time_limit_s=request.time_limit_s,
                n_predict=request.n_predict,
            ),
            binary=BinaryRecord(
                program=program.name.name if program else PurePosixPath(command.words[0]).name,
                sha256=program.sha256 if program else "",
                size_bytes=program.size_bytes if program else None,
                features=_features(self._inspection),
            ),
            model=self._model(command),
        )

    @property
    def payload(self) -> tuple[Payload, ...]:
        """What a person named with ``--put``, and the standard input."""
        return (*self._payload, *([self._stdin] if self._stdin else []))

    @property
    def time_limit_s(self) -> float:
        return self._request.time_limit_s

    def check(self, host: Host, board: Board, found: Probe, progress: Progress) -> None:
        """Refuse a program that cannot start there; warn of one that may not run."""
        if self._request.wheel_python:
            check_wheel(host, self._request.wheel_python)
        check_program(host, board, found, self._program, self._payload, progress)

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start it under ``watch``."""
        command = self._on(context.layout)
        folders = ":".join(str(folder) for folder in command.library_folders)
        libraries = ("-e", f"LD_LIBRARY_PATH={folders}") if folders else ()
        # The board's own programs, and scripts, are of its shell's kind of machine.
        launcher = context.launcher if self._inspection is not None else ()
        return (
            str(context.helpers[WATCH]),
            *("-p", PROGRAM_ID_FILE),
            *libraries,
            *self._input_words(context.layout),
            "--",
            *launcher,
            *command.words,
        )

    def _input_words(self, layout: Layout) -> tuple[str, ...]:
        stdin = self._stdin
        return ("-i", str(stdin.folder(layout) / stdin.name)) if stdin else ()

    def program(self, context: RunContext) -> str:
        return self._on(context.layout).words[0]

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read its writes, its memory, and what it printed."""
        return Output() if job.watched is None else read_watched(job.watched, folder)

    def _on(self, layout: Layout) -> Command:
        return for_board(self._request.words, self._payload, layout)

    def _model(self, command: Command) -> ModelRecord:
        """Return the largest payload beside the program."""
        program = command.program.local if command.program else None
        others = [
            each
            for each in self._payload
            if program is None or not program.is_relative_to(each.local)
        ]
        if not others:
            return ModelRecord(name=self._request.name, sha256="", size_bytes=None)
        largest = max(others, key=lambda each: each.size_bytes)
        return ModelRecord(
            name=self._request.name or largest.name,
            sha256=largest.sha256,
            size_bytes=largest.size_bytes,
        )


def look_at(request: WatchRequest) -> Inspection | Script | str:
    """Say what is to be run, by the files' names alone; a program of the board's own is a word."""
    found: list[FoundPayload] = [find_payload(path) for path in request.put]
    file = program_among(request.words[0], found)
    return request.words[0] if file is None else look_at_program(file)


def _features(inspection: Inspection | None) -> tuple[str, ...]:
    if inspection is None:
        return ()
    return tuple(use.feature for use in inspection.features if not use.guarded)


_MOST_STDIN_BYTES = 16 << 20


def stdin_file(text_or_file: str, folder: Path) -> Path:
    """Return a file with what a program is to read: a file's content, or a text as one line.

    Args:
        folder: on this machine, for that file while the request lasts.

    Raises:
        UsageError: a file is meant, and there is none.
        DataError: it cannot be read, or is too large.
    """
    path = Path(text_or_file).expanduser()
    if is_file(path):
        content = read_bounded(path, _MOST_STDIN_BYTES, "Give the program this file with --put.")
    elif _LIKE_A_FILE.fullmatch(text_or_file):
        raise UsageError(
            f"--stdin {text_or_file}: no such file.",
            "Correct the path. If it is the text itself, add a space behind it.",
        )
    else:
        # A program that asks waits for the end of its line.
        content = text_or_file.encode("utf-8", "surrogateescape") + b"\n"
    # Its name tells two inputs apart wherever only the names of files are seen.
    file = folder / f"stdin-{hashlib.sha256(content).hexdigest()[:12]}"
    file.write_bytes(content)
    return file


_LIKE_A_FILE = re.compile(r"[~./]\S*/\S*|\S+/\S+|\S+\.[a-z]{2,5}")

CONFIG = "config.json"
_SCRIPT = "mnn_answer.py"


def with_wheel(
    request: WatchRequest,
    model: Path,
    *,
    prompt: str,
    tokens: int,
    python: str,
    folder: Path,
) -> WatchRequest:
    """Return a request that lets the wheel answer a prompt.

    Args:
        request: how long it may take, and what else it needs.
        model: an MNN model's folder, with its ``config.json``.
        tokens: to generate, at most.
        folder: on this machine, for the prompt's file while the request lasts.
    """
    if not (model.expanduser() / CONFIG).is_file():
        raise UsageError(
            f"--mnn-python {model}: this folder has no {CONFIG}.",
            "Use the folder that MNN's llmexport wrote.",
        )
    if tokens < 1:
        raise UsageError("-n 0: generate at least one token.")
    try:
        content = prompt.encode()
    except UnicodeEncodeError as error:
        raise UsageError("--prompt: this is not valid UTF-8.") from error
    if not content.strip():
        raise UsageError("--prompt: the prompt is empty.")
    # Its name tells two prompts apart wherever only the command line is seen.
    file = folder / f"prompt-{hashlib.sha256(content).hexdigest()[:12]}.txt"
    file.write_bytes(content)
    script = data_path("deploy", _SCRIPT)
    name = Path(os.path.normpath(model.expanduser().absolute())).name
    words = (python, script.name, f"{name}/{CONFIG}", file.name, str(tokens))
    return request.model_copy(
        update={
            "words": words,
            "put": (*request.put, model, script, file),
            "reader": load_reader("mnn-wheel"),
            "is_guessed": False,
            "name": request.name or name,
            "wheel_python": python,
            "n_predict": tokens,
        }
    )
