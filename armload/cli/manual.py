"""Manual pages, one for the program and one for each verb: ``python -m armload.cli.manual FOLDER``.

Format: ``man(7)``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from inspect import getdoc
from pathlib import Path

from armload import __version__
from armload.cli.help import ABOUT, EXIT_STATUSES, grouped, shown
from armload.cli.verb import VERB_GROUPS, VERBS, Verb
from armload.core.options import declared_options

_EXAMPLE = "Example: "


def manual() -> Mapping[str, str]:
    """Return all pages by their files' names."""
    pages = {f"armload-{name}.1": _verb_page(name) for name in VERBS}
    return {"armload.1": _program_page(), **pages}


def _program_page() -> str:
    verbs = [
        line
        for heading, names in VERB_GROUPS.items()
        for line in (f".SS {heading}", *(_entry(name, VERBS[name].about) for name in names))
    ]
    names = [name for several in VERB_GROUPS.values() for name in several]
    return _page(
        "armload",
        "run language models on ARM boards, and time every token",
        [
            *_section("SYNOPSIS", ".B armload\nVERB [options]"),
            *_section("DESCRIPTION", _text(ABOUT)),
            *_section("VERBS", *verbs),
            *_section(
                "OPTIONS",
                _entry("-h, --help", "show help"),
                _entry("-V, --version", "show the version"),
            ),
            *_section("EXIT STATUS", _text(EXIT_STATUSES.partition(": ")[2])),
            *_section("SEE ALSO", ",\n".join(f".BR armload-{name} (1)" for name in names)),
        ],
    )


def _verb_page(name: str) -> str:
    verb: Verb = VERBS[name]
    about, *examples = (getdoc(verb) or "").split(_EXAMPLE)
    first, _, rest = about.partition("\n")
    declared = list(declared_options(verb.options))
    arguments = [each for each in declared if each.option.is_argument]
    words = " ".join([name, *verb.usage(), "[options]"])
    lines = [
        *_section("SYNOPSIS", f".B armload\n{_text(words)}"),
        *_section("DESCRIPTION", _text(f"{first} {rest}")),
    ]
    if arguments:
        lines += _section("ARGUMENTS", *(_entry(each.shown, each.help) for each in arguments))
    lines += _section("OPTIONS")
    groups = grouped(declared)
    for heading, group in groups.items():
        if len(groups) > 1:
            lines.append(f".SS {heading}")
        lines += [_entry(shown(each).strip(), each.help) for each in group]
    lines += _section("EXAMPLES" if len(examples) > 1 else "EXAMPLE")
    lines += [f".EX\n{_text(each)}\n.EE" for each in examples]
    lines += _section("SEE ALSO", ".BR armload (1)")
    return _page(f"armload-{name}", first.rstrip("."), lines)


def _page(name: str, about: str, lines: Iterable[str]) -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    date = f"{datetime.fromtimestamp(int(epoch), UTC):%Y-%m-%d}" if epoch else ""
    head = f'.TH "{name.upper()}" 1 "{date}" "armload {__version__}"'
    words = f"{_text(name)} \\- {_text(about[:1].lower() + about[1:])}"
    return "\n".join([head, *_section("NAME", words), *lines, ""])


def _section(heading: str, *parts: str) -> list[str]:
    return [f".SH {heading}", *parts]


def _entry(word: str, meaning: str) -> str:
    return f".TP\n.B {_text(word)}\n{_text(meaning)}"


def _text(text: str) -> str:
    """Escape what roff reads as more than a character; paragraphs stay apart."""
    escaped = text.strip().replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    paragraphs = (" ".join(each.split()) for each in escaped.split("\n\n"))
    return "\n.PP\n".join(f"\\&{each}" if each.startswith(".") else each for each in paragraphs)


if __name__ == "__main__":
    for file_name, page in manual().items():
        (Path(sys.argv[1]) / file_name).write_text(page, encoding="utf-8")
