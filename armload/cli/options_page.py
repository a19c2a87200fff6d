"""What is made from the options' declarations: ``python docs/regenerate.py``.

That page, and the table that shells complete from.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from armload.cli.completion.declared import table_text
from armload.cli.completion.table import TABLE
from armload.cli.help import grouped, shown
from armload.cli.verb import VERB_GROUPS, VERBS, Verb
from armload.core.options import LLAMA_CPP_SPELLINGS, Declared, declared_options

_HEAD = """# Options

Every option of every verb, as `armload VERB --help` shows them. In a plan file, those that describe
a run are keys, with `_` in place of `-` ([plan files](sweeps.md#a-plan-file)). This page is made
from the program by `python docs/regenerate.py`.

Command lines also accept these options as llama.cpp's programs spell them, and read `-ctk` and
`-ctv` as one `--kv-type`. `-ngl` has no effect: the programs that armload builds compute on the
CPU.

{spellings}
"""


def page() -> str:
    """Return the page, as Markdown."""
    groups = (
        "\n".join([f"## {heading}", "", *map(_section, names)])
        for heading, names in VERB_GROUPS.items()
    )
    spellings = ["| armload | llama.cpp |", "|---|---|"]
    for name, several in LLAMA_CPP_SPELLINGS.items():
        spellings.append(f"| `--{name}` | {', '.join(f'`{each}`' for each in several)} |")
    return "\n".join([_HEAD.format(spellings="\n".join(spellings)), *groups])


def _section(name: str) -> str:
    verb: Verb = VERBS[name]
    lines = [f"### {name}", "", verb.about, ""]
    options = list(declared_options(verb.options))
    arguments = [each for each in options if each.option.is_argument]
    if arguments:
        lines += _table("Argument", [(f"`{each.shown}`", each) for each in arguments])
    for heading, group in grouped(options).items():
        lines += _table(heading, [(f"`{_cell(shown(each).strip())}`", each) for each in group])
    return "\n".join(lines)


def _table(heading: str, rows: Sequence[tuple[str, Declared]]) -> list[str]:
    lines = [f"| {heading} | | default |", "|---|---|---|"]
    lines += [f"| {word} | {_cell(each.about)} | {_cell(each.default)} |" for word, each in rows]
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    TABLE.write_text(table_text(), encoding="utf-8")
