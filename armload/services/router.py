"""llama-server's router: several models behind one address, each started when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from armload.core.errors import UsageError
from armload.engines.llama_cpp import offers
from armload.engines.server import ServerAddress, program_words

_SECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,126}")
_KEY = re.compile(r"--?([A-Za-z_][A-Za-z0-9_.-]*)(?:=(.*))?")
_FORBIDDEN = re.compile(r"[;#\r\n]")
"""In a preset they begin a comment, or end a line."""

PRESET = "models.ini"


def router_words(
    program: Path,
    address: ServerAddress,
    *,
    slots: int,
    preset: PurePosixPath,
    most_loaded: int,
) -> list[str]:
    """Return the options of a server that starts one of itself for each model.

    Args:
        program: on this machine.
        slots: of the model with the most.
        preset: on the board.
        most_loaded: models in memory at a time; another one takes the place of the one that was
            used longest ago.

    Raises:
        UsageError: it is too old.
    """
    if not offers(program, "--models-preset"):
        raise UsageError(
            "This release of llama.cpp cannot serve several models.",
            "Omit --source, or install a service for each model.",
        )
    words = [*address.words(program, slots), *program_words(program)]
    return [*words, "--models-preset", str(preset), "--models-max", str(most_loaded)]


def preset_section(alias: str, words: Sequence[str]) -> str:
    """Return a model's section of a preset: its options, as they would be typed.

    Raises:
        UsageError: the name or an option cannot stand in such a file.
    """
    if not _SECTION.fullmatch(alias):
        raise UsageError(
            f"{alias!a}: among several models, this cannot be the name of one.",
            "Rename its file: letters, digits and . _ @ - only.",
        )
    lines = [f"[{alias}]"]
    at = 0
    while at < len(words):
        match = _KEY.fullmatch(words[at])
        if match is None:
            raise UsageError(
                f"--engine-args: {words[at]!a:.80} is no option, and several models take options "
                "only.",
                "Remove it, or install a service for each model.",
            )
        at += 1
        key, value = match[1], match[2]
        if value is None:
            value = "true"
            if at < len(words) and (not _KEY.fullmatch(words[at]) or not words[at]):
                value = words[at]
                at += 1
        if key == "alias":
            continue  # it is the section's name
        if _FORBIDDEN.search(value):
            raise UsageError(
                f"{value!a:.80}: llama-server's file of several models cannot hold ; # or a line "
                "break in a value.",
                "Rename the file, or remove the option.",
            )
        lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"
