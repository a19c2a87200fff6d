"""Verbs and their options, as a shell completes them: a file made from the program's declarations.

``python docs/regenerate.py`` makes it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NotRequired, TypedDict

TABLE = Path(__file__).with_name("table.json")


class CompletedOption(TypedDict):
    """An option, or a positional argument.

    Attributes:
        name: as it is typed; an argument's as help shows it.
        letter: ``-b``; empty without one.
        spellings: llama.cpp's, which are offered once they are begun.
        about: for people.
        takes: ``switch``, or what its values name; empty where nothing can be offered.
        choices: values beside those; what ends in a colon continues.
        several: how several values are given: as ``Option.several``.
        is_behind: it is an argument whose words all follow ``--``; left out where it is not.
    """

    name: str
    letter: str
    spellings: list[str]
    about: str
    takes: str
    choices: list[str]
    several: str
    is_behind: NotRequired[bool]


class VerbEntry(TypedDict):
    """A verb."""

    about: str
    arguments: list[CompletedOption]
    options: list[CompletedOption]


class CompletionTable(TypedDict):
    """What is known without looking at the workspace.

    Attributes:
        file_types: in which models of random weights can be made.
        hardware: of the shipped catalogue, each size of memory by itself.
    """

    file_types: list[str]
    hardware: list[str]
    models: list[str]
    verbs: dict[str, VerbEntry]


def load_table() -> CompletionTable:
    table: CompletionTable = json.loads(TABLE.read_bytes())
    return table
