"""What ``python docs/regenerate.py`` makes of the options' declarations.

The page of all options, and the table that shells complete from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from armload.bench.suite import STANDARD
from armload.boards.hardware import all_hardware
from armload.build.compiler import COMPILERS
from armload.build.programs import MAIN_PROGRAMS, SCORER, SEEING_SCORER
from armload.cli.completion.table import TABLE, CompletedOption, CompletionTable, VerbEntry
from armload.cli.help import grouped, shown
from armload.cli.verb import VERB_GROUPS, VERBS, Verb
from armload.conversion.checkpoints.forms import GGUF_BITS, MNN_BITS
from armload.core.defaults import DEMO
from armload.core.options import LLAMA_CPP_SPELLINGS, Declared, declared_options
from armload.engines.plan import CPU, DRAFT, GPU, KV_TYPES, MTP, NGRAM, NO_SPECULATION
from armload.evaluation.grading.registry import GRADERS
from armload.models.file_types import TENSOR_TYPES
from armload.models.find import LIKE, RANDOM
from armload.models.find_projector import AUTO, NONE
from armload.models.packaged import QUANTISATIONS, WORD_PROBLEMS
from armload.models.published import SMOLLM2
from armload.models.quant_mix import MIXTURES
from armload.serving.dialects.registry import DIALECTS
from armload.serving.exports import FORMATS

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


CACHE_KINDS = (
    *("builds", "sources", "zig", "ccache", "compilers", "helpers", "models", "operations"),
    *("footprints", "hashes", "quantised", "importance", "distributed", "converters", "vega"),
    *("pictures", "texts", "packages", "images", "machines", "received"),
)

_CHOICES: Mapping[str, Sequence[str]] = {
    "--arrivals": ("poisson", "constant", "gamma:", "seed"),
    "--compiler": COMPILERS,
    "--device": (CPU, GPU),
    "--dialect": tuple(each.name for each in DIALECTS),
    "--export": FORMATS,
    "--grader": tuple(GRADERS),
    "--hardware": ("all",),
    "--kv-type": KV_TYPES,
    "--mmproj": (AUTO, NONE),
    "--programs": (
        *MAIN_PROGRAMS,
        *("llama-bench", "llama-server", "llama-quantize", "llama-perplexity"),
        *("llama-embedding", "llama-speculative-simple", "rpc-server", SCORER, SEEING_SCORER),
    ),
    "--speculate": (NO_SPECULATION, NGRAM, MTP, DRAFT),
    "--suite": (STANDARD,),
    "--task": ("logits", "similarity", "lm-eval:"),
    "--to": ("gguf", "mnn"),
    "--type": tuple(TENSOR_TYPES),
    "--what": CACHE_KINDS,
    "config VERB": tuple(VERBS),
    "model.convert --type": (*GGUF_BITS, *MNN_BITS),
}
"""Values that an option's type does not list."""


def table_text() -> str:
    """Return the table as it is kept: one option a line, so that two changes of it merge."""
    table = _completion_table()
    lines = [
        f'"file_types": {json.dumps(table["file_types"])},',
        f'"hardware": {json.dumps(table["hardware"])},',
        f'"models": {json.dumps(table["models"])},',
        '"verbs": {',
    ]
    for verb, entry in table["verbs"].items():
        lines.append(f'{json.dumps(verb)}: {{"about": {json.dumps(entry["about"])},')
        lines += _listed('"arguments"', entry["arguments"], ",")
        lines += _listed('"options"', entry["options"], "},")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join(["{", *lines, "}}", ""])


def _listed(key: str, parameters: Sequence[CompletedOption], end: str) -> Iterator[str]:
    yield f"{key}: ["
    for number, each in enumerate(parameters, 1):
        yield json.dumps(each) + ("," if number < len(parameters) else "")
    yield f"]{end}"


def _completion_table() -> CompletionTable:
    return CompletionTable(
        file_types=list(MIXTURES),
        hardware=[each.name for each in all_hardware()],
        models=[DEMO, SMOLLM2, RANDOM, LIKE, *(WORD_PROBLEMS + each for each in QUANTISATIONS)],
        verbs={name: _entry(name, verb) for name, verb in VERBS.items()},
    )


def _entry(name: str, verb: Verb) -> VerbEntry:
    declared = list(declared_options(verb.options))
    return VerbEntry(
        about=verb.about,
        arguments=[_parameter(name, each) for each in declared if each.option.is_argument],
        options=[_parameter(name, each) for group in grouped(declared).values() for each in group],
    )


def _parameter(verb: str, declared: Declared) -> CompletedOption:
    keys = (f"{verb} {declared.shown}", declared.shown)
    listed = next((_CHOICES[key] for key in keys if key in _CHOICES), ())
    completed = CompletedOption(
        name=declared.shown,
        letter=f"-{declared.letter}" if declared.letter else "",
        spellings=list(declared.spellings),
        about=declared.about,
        takes=declared.takes,
        choices=[*_literals(declared.info.annotation), *listed],
        several=declared.option.several if declared.is_list else "",
    )
    if declared.option.is_behind:
        completed["is_behind"] = True
    return completed


def _literals(kind: object) -> list[str]:
    if get_origin(kind) is Literal:
        return [each for each in get_args(kind) if isinstance(each, str)]
    return [each for part in get_args(kind) for each in _literals(part)]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    TABLE.write_text(table_text(), encoding="utf-8")
