"""Runs a converter, and says what went wrong in its own words."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from armload.build.builder import build
from armload.build.target import HOST, load_target
from armload.conversion.checkpoints.checkpoint import Checkpoint
from armload.conversion.checkpoints.environment import Environment, FailedProgramError
from armload.conversion.checkpoints.staging import staged
from armload.core.errors import (
    ArmloadError,
    BuildError,
    DataError,
    DiskError,
    LocalMemoryError,
    MissingToolError,
    UsageError,
)
from armload.core.places import data_path
from armload.core.progress import Progress
from armload.core.values import Value

_NO_MEMORY = re.compile(r"^\s*MemoryError\b|[Cc](?:annot|an't) allocate memory", re.MULTILINE)

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PIP_NO_INDEX": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Whatever a checkpoint says, its conversion asks no network."""

_ERROR = re.compile(r"^(?:ERROR:[\w.-]+:|[A-Za-z_.]*(?:Error|Exception): )(?P<what>.+)")

_CHECK = re.compile(r"^ +assert (?P<what>.+?)(?: +# .*)?$")
_BARE = "AssertionError"
"""A check that failed says nothing but the line that it stands on."""

_NO_SETTING = re.compile(r"^KeyError: '(\w+)'")
_NO_TOKEN = re.compile(r"^KeyError: '([<\[].+[>\]])'")

_NOT_INSTALLED = ("ImportError: ", "ModuleNotFoundError: ")


def run_converter(
    words: Sequence[str],
    checkpoint: Checkpoint,
    held: Environment,
    *,
    folder: Path,
    watch: Callable[[str], None],
) -> None:
    """Run a script in the converters' environment.

    Args:
        words: the script and its arguments.
        checkpoint: that it converts, for the error.
        held: the environment.
        folder: it runs in, and which holds the folder that shows it the checkpoint.
        watch: is called with each line that it writes.
    """
    try:
        held.run(["-s", *words], folder=folder, variables=OFFLINE, watch=watch)
    except FailedProgramError as error:
        shown_as, own = str(folder / checkpoint.name), str(checkpoint.folder)
        lines = [line.replace(shown_as, own) for line in error.lines]
        raise _failure(checkpoint, FailedProgramError(error.status, lines)) from error


class Findings(Value):
    """What a script in the converters' environment found.

    Attributes:
        unchecked: why it compared nothing; empty if it did.
        engine: why llama.cpp could not compute it; empty if it could.
        compares: what the checkpoint does, for a person.
    """

    compares: ClassVar[str]
    unchecked: str = ""
    engine: str = ""


Found = TypeVar("Found", bound=Findings)


def compared_by(
    script: str,
    files: Sequence[Path],
    program: str,
    checkpoint: Checkpoint,
    held: Environment,
    kind: type[Found],
    progress: Progress,
) -> Found:
    """Return what a script found that compares a checkpoint with what was made of it.

    Today's transformers reads the checkpoint, and a program of llama.cpp what was made of it.

    Args:
        script: one of the converters'.
        files: that were made of it.
    """
    try:
        (built,) = build(load_target(HOST), programs=[program], progress=progress)
    except (BuildError, MissingToolError, UsageError) as error:
        return kind(unchecked=f"{program} is unavailable: {error.message}")
    path = data_path("toolchains", "converters", script)
    with (
        progress.step(f"Comparing what {checkpoint.name} {kind.compares}"),
        staged(checkpoint, for_converters=False) as stage,
        tempfile.TemporaryDirectory(prefix="armload-") as name,
    ):
        result = Path(name) / "result.json"
        words = (str(each.absolute()) for each in (stage, *files, built.path, result))
        try:
            held.run(
                ["-s", str(path), *words],
                folder=stage.parent,
                variables={**OFFLINE, "PYTHONPATH": str(held.comparing)},
                watch=lambda _: None,
            )
        except FailedProgramError as error:
            return kind(unchecked=f"the comparison ended with status {error.status}")
        return kind.model_validate_json(result.read_bytes())


def _failure(checkpoint: Checkpoint, error: FailedProgramError) -> ArmloadError:
    where = checkpoint.folder
    refused = _NO_MEMORY.search(error.shown)
    if error.status == -signal.SIGKILL or refused:
        how = "could get no more memory" if refused else "was killed, probably for lack of memory"
        return LocalMemoryError(
            f"{where}: the converter {how}.",
            "Close other programs, or convert on a machine with more memory.",
        )
    if "No space left on device" in error.shown:
        return DiskError(
            f"{where}: the disk became full during the conversion.",
            "Free disk space, or give --output on another disk, then repeat the command.",
        )
    broken = [line for line in error.lines if line.startswith(_NOT_INSTALLED)]
    if broken:
        return MissingToolError(
            f"The converters are incomplete: {broken[-1]}",
            "Remove them (armload clean --what converters) and repeat the command.",
        )
    pattern, said = (_CHECK, "it requires that ") if error.lines[-1:] == (_BARE,) else (_ERROR, "")
    named = [said + match["what"] for line in error.lines if (match := pattern.match(line))]
    if lacking := _lacking(checkpoint, error.lines):
        return lacking
    what = f": {named[-1]}" if named else f". The end of its output:\n{error.shown}"
    own = (
        " The checkpoint brings Python code of its own (auto_map in config.json), which armload "
        "does not run."
        if checkpoint.brings_code
        else ""
    )
    return DataError(
        f"{where}: the converter refused this checkpoint{what}",
        f"Check the checkpoint's files against those of its publisher.{own}",
    )


def _lacking(checkpoint: Checkpoint, lines: Sequence[str]) -> DataError | None:
    """Return the error for a file or a setting that the converter looked for in vain."""
    where = checkpoint.folder
    # Those before it were handled.
    last = next((line for line in reversed(lines) if _ERROR.match(line) or line == _BARE), "")
    if setting := _NO_SETTING.match(last):
        return DataError(
            f"{where}: the converter needs the setting {setting[1]!r}, which is missing.",
            "Compare config.json with that of the model's publisher: transformers may leave out "
            "what it does not use, or rename it.",
        )
    if token := _NO_TOKEN.match(last):
        return DataError(
            f"{where}: the converter needs the token {token[1]}, which the vocabulary lacks.",
            "Compare the tokenizer's files with those of the model's publisher; if the vocabulary "
            "is your own, add that token.",
        )
    file = re.search(rf"{re.escape(str(where))}/([\w.-]+)", last)
    if file and not (where / file[1]).exists():
        return DataError(
            f"{where}: the converter needs {file[1]}, which is missing.",
            "Copy it into the folder from the repository of the model's publisher; a fine-tuned "
            "model has that of its base model.",
        )
    return None
