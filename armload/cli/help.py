"""Pages of help: options under their headings, as wide as the terminal, 80 columns in a pipe."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence
from inspect import getdoc
from typing import TYPE_CHECKING

from armload.cli.completion.table import load_table
from armload.cli.verb import GROUPS, HELP_ALL, VERB_GROUPS, VERBS, WEEK, verbs_in

if TYPE_CHECKING:
    from armload.cli.verb import Verb
    from armload.core.options import Declared

ABOUT = """
Run language models on ARM boards: build llama.cpp, deploy it, time every token, and see what limits
the speed. Try 'armload demo' first: it needs no board.
"""
EXIT_STATUSES = """
Exit statuses: 0 success, even if no run is valid, 1 internal error, or a local file or disk that
cannot be read or written, 2 wrong argument, 3 malformed file, 4 missing tool, 5 build failed,
6 no connection, 7 board error, 8 transfer failed, 9 run failed, 10 board in use, 11 slower than
compare allows, 12 comparison inconclusive, 13 logits differ, 14 too little memory on this machine,
15 file not trusted, 130 interrupted.
"""
_HELP = ("-h, --help", "show this page")
_VERSION = ("-V, --version", "show the version")

_HEADINGS = (
    *("Program", "Service", "Arrivals", "Load", "Users", "Search", "Limits", "Plan", "Task"),
    *(
        "Images and sounds",
        "Embeddings",
        "Sampling",
        "Quantisation",
        "Repeats",
        "Engine",
        "Requests",
        "Cores",
        "Board",
        "Conditions",
        "Build",
        "Filter",
    ),
    "Output",
)
_MOST_UNGROUPED = 9
_INDENT = 2
_GAP = 2
_NARROWEST_MEANING = 30
_EXAMPLE = "Example: "


def program_page() -> str:
    """Return the first page: the verbs of a normal week, on one screen; no verb is imported."""
    about = {name: each["about"] for name, each in load_table()["verbs"].items()} | {**GROUPS}
    week = [name for name in WEEK if name in VERBS or verbs_in(name)]
    more = [
        ("help all", f"all {len(VERBS)} verbs by group, and the exit statuses"),
        ("help VERB", "the options of a verb, and an example"),
    ]
    widest = max(len(word) for word in (*week, *(word for word, _ in more)))
    return "\n".join(
        [
            "Usage: armload VERB [--options]\n",
            f"{_prose(ABOUT)}\n",
            _columns([(name, about[name]) for name in week], widest),
            _columns(more, widest),
        ]
    )


def every_verb_page() -> str:
    """Return the page of all verbs by group; no verb is imported."""
    widest = max(map(len, VERBS))
    about = {name: each["about"] for name, each in load_table()["verbs"].items()}
    lists = [
        f"{heading}:\n\n{_columns([(name, about[name]) for name in names], widest)}"
        for heading, names in VERB_GROUPS.items()
    ]
    options = _columns([_HELP, _VERSION], widest)
    usage = "Usage: armload VERB [--options]\n       armload VERB --help\n"
    return "\n".join(
        [
            usage,
            f"{_prose(ABOUT)}\n",
            *lists,
            f"Options:\n\n{options}",
            f"{_prose(EXIT_STATUSES)}\n",
        ]
    )


def group_page(group: str) -> str:
    """Return the page of a group, such as ``service``: its verbs; none is imported."""
    verbs = load_table()["verbs"]
    return "\n".join(
        [
            f"Usage: armload {group}.VERB [--options]\n",
            _columns([(name, verbs[name]["about"]) for name in verbs_in(group)]),
            f"To see the options of a verb, and an example: armload {group}.VERB --help",
            "",
        ]
    )


def verb_page(verb: Verb, *, shows_all: bool = False) -> str:
    """Return the page of a verb, whose defaults are those that a person has set.

    Args:
        shows_all: also options that few need, of a verb that has many.
    """
    from armload.cli.configuration import shown_defaults
    from armload.core.options import declared_options

    declared = list(declared_options(verb.options))
    words = verb.usage()
    parts = [f"Usage: {' '.join(['armload', verb.name, *words, '[--options]'])}\n"]
    parts.append(f"{_prose(getdoc(verb) or '')}\n")
    own = shown_defaults(verb.name)
    common: frozenset[str] = frozenset() if shows_all else verb.options.common
    spellings = [spelling for each in declared for spelling in each.spellings]
    if spellings and not common:
        also = f"Also accepted, as in llama.cpp's programs: {', '.join(spellings)}."
        parts.append(f"{_prose(also)}\n")
    if words:
        meanings = [each.help for each in declared if each.option.is_argument]
        parts.append(f"Arguments:\n\n{_columns(list(zip(words, meanings, strict=True)))}")
    lists = {
        heading: [
            (shown(each), each.help_with(own.get(each.field, each.default))) for each in group
        ]
        for heading, group in _listed(declared, common and common | own.keys()).items()
    }
    (*_, last) = lists.values()
    last.append(_HELP)
    if verb.options.common:
        count = sum(not each.option.is_argument for each in declared)
        last.append((f"    {HELP_ALL}", f"show all {count} options"))
    widest = max(len(word) for pairs in lists.values() for word, _ in pairs)
    parts += [f"{heading}:\n\n{_columns(pairs, widest)}" for heading, pairs in lists.items()]
    return "\n".join(parts)


def _listed(declared: Sequence[Declared], common: Collection[str]) -> dict[str, list[Declared]]:
    if not common:
        return grouped(declared)
    groups = grouped(declared).values()
    return {"Options": [each for group in groups for each in group if each.field in common]}


def grouped(declared: Sequence[Declared]) -> dict[str, list[Declared]]:
    """Return a verb's options as help lists them: under one heading, or many under several."""
    options = [each for each in declared if not each.option.is_argument]
    # What is used most, which has a letter, comes first, and the output last.
    by_rank = {each.name: 2 if each.name == "json" else int(not each.letter) for each in options}
    usual_first = sorted(options, key=lambda each: by_rank[each.name])
    if len(options) <= _MOST_UNGROUPED:
        return {"Options": usual_first}
    groups = {
        heading: [each for each in usual_first if each.heading == heading] for heading in _HEADINGS
    }
    return {heading: group for heading, group in groups.items() if group}


def shown(option: Declared) -> str:
    """Return an option as help shows it: ``-b, --board BOARD``."""
    letter = f"-{option.letter}, " if option.letter else "    "
    return f"{letter}--{option.name} {option.value}".rstrip()


def _columns(pairs: Sequence[tuple[str, str]], widest: int = 0) -> str:
    """Lay out words and what they mean, beside each other or, on a narrow terminal, beneath.

    Several lists whose longest word is ``widest`` are aligned.
    """
    indent = _INDENT + max(widest, *(len(word) for word, _ in pairs)) + _GAP
    is_beside = _width() - indent >= _NARROWEST_MEANING
    lines: list[str] = []
    for word, meaning in pairs:
        start = f"{'':{_INDENT}}{word}"
        if is_beside:
            start = start.ljust(indent)
        else:
            lines.append(start)
            start = " " * 4 * _INDENT
        lines.append(_filled(meaning, start) or start.rstrip())
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    """Fill the paragraphs of a text anew; an example is a command, and keeps its line."""
    filled = []
    for paragraph in text.split("\n\n"):
        about, mark, example = paragraph.partition(_EXAMPLE)
        parts = [_filled(about)] if about else []
        filled.append("\n".join([*parts, *([mark + example] if example else [])]))
    return "\n\n".join(filled)


def _filled(text: str, start: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _width(),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width() -> int:
    return shutil.get_terminal_size().columns
