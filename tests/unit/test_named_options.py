"""What the package's texts tell a person to type exists: verbs, and options of those verbs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import armload
from armload.cli.verb import VERBS
from armload.core.options import declared_options

_PACKAGE = Path(armload.__file__).parent
_FILLED = "\0"
"""Stands where an f-string fills something in."""

_COMMAND = re.compile(r"\barmload ([a-z][a-z.]*[a-z])(?![\w\0-])([^;|\n'`]*)")
_OPTION = re.compile(r"(?<![\w\0/-])--([a-z][a-z0-9-]*[a-z0-9])(?![\w\0-])")
_SHORT_OPTION = re.compile(r"(?<![\w\0/-])-([a-z])(?![\w\0-])")

_SENTENCES = frozenset(
    {
        *("began", "brings", "builds", "can", "cannot", "command", "describe", "divides", "does"),
        *(
            "fetches",
            "files",
            "has",
            "is",
            "knows",
            "left",
            "needs",
            "never",
            "plan",
            "process",
            "reads",
        ),
        *("repacks", "results", "run.json", "runs", "search", "ships", "that", "then", "to"),
        *("with", "word"),
    }
)
"""What follows the program's name where it is no command."""

_OTHERS = frozenset(
    {
        *("complete", "options", "prompts"),  # of Invoke; for any; that people confuse
        *("no-rebind", "important", "print-uris", "force-reinstall"),  # adb, apt, pip
        *("short", "is-shallow-repository", "count", "unshallow"),  # git
        *("ctx-size", "ignore-eos", "merge", "mtp", "no-repack", "offline", "perf", "repack"),
        *("cache-ram", "ctx-checkpoints", "swa-checkpoints", "no-kv-unified", "no-warmup"),
        *("alias", "api-key", "api-key-file", "api-prefix", "cache-reuse", "cors-credentials"),
        *("cors-origins", "host", "models-dir", "models-max", "models-preset", "reuse-port"),
        *("sleep-idle-seconds", "ssl-cert-file", "ssl-key-file", "threads-http", "timeout"),
        *("mtmd-batch-max-tokens", "slot-save-path"),
        *("summary", "library-path"),  # vulkaninfo, ld.so
        *("poll",),  # distributed-llama's program of ours
        *("no-block", "property", "quiet", "user", "value"),  # systemctl
        *("log-colors", "max-buffer-size", "no-ppl", "no-ui", "spec-ngram-simple-size-n"),
    }
)
"""Options of other programs: those named above, and llama.cpp's own."""


def _texts() -> Iterator[tuple[str, str]]:
    """Yield every text and its place, without words of other programs' command lines.

    Of docstrings those of verbs, which are their help.
    """
    for path in sorted(_PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        passed_over = {id(each) for node in ast.walk(tree) for each in _not_read(node)}
        if path.parent.name != "verbs":
            passed_over |= {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        for node in ast.walk(tree):
            place = f"{path.relative_to(_PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if id(node) in passed_over:
                continue
            if isinstance(node, ast.JoinedStr):
                yield place, "".join(_shown(each) for each in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield place, node.value


def _not_read(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is below a node and is no text of its own that a person reads."""
    match node:
        case ast.JoinedStr():
            yield from (each for each in node.values if isinstance(each, ast.Constant))
        case ast.List() | ast.Tuple() | ast.Set():
            yield from (each for each in node.elts if not _is_sentence(each))
        case ast.Dict(keys=keys, values=values):
            yield from (each for each in (*keys, *values) if each and not _is_sentence(each))


def _is_sentence(node: ast.AST) -> bool:
    return " " in _shown(node) or isinstance(node, ast.JoinedStr)


def _shown(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else _FILLED


@cache
def _options() -> dict[str, set[str]]:
    """Return the long and short options of every verb, without dashes."""
    return {
        name: {"help", "h", "help-all"}.union(
            *({each.name, each.letter} for each in declared_options(verb.options))
        )
        for name, verb in VERBS.items()
    }


def _unknown(text: str) -> list[str]:
    """Return the verbs and options in a text that do not exist."""
    options = _options()
    everywhere = {"version", *set().union(*options.values()), *_OTHERS}
    unknown = [f"--{name}" for name in _OPTION.findall(text) if name not in everywhere]
    for verb, rest in _COMMAND.findall(text):
        if verb not in options:
            unknown += [verb] if verb not in _SENTENCES else []
            continue
        own = re.split(r"\.(?: |$)|: | -- |, (?:and|or) ", rest)[0]
        names = [*_OPTION.findall(own), *_SHORT_OPTION.findall(own)]
        unknown += [f"{verb} {name}" for name in names if name not in options[verb]]
    return unknown


def test_every_option_and_verb_that_a_text_names_exists() -> None:
    texts = list(_texts())
    commands = [text for _, text in texts if _COMMAND.search(text)]
    assert len(commands) > 100, "the texts are no longer found"
    assert {place: found for place, text in texts if (found := _unknown(text))} == {}


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("Free space: armload board.clean --board pi", []),
        ("Free space: armload board.sweep --board pi", ["board.sweep"]),
        ("Use --cool-down.", ["--cool-down"]),
        ("See: armload pull --cold", ["pull cold"]),
        ("See: armload pull -t 4", ["pull t"]),
        ("Run armload show. Then use --cold.", []),
        (f"armload bench --{_FILLED}", []),
    ],
)
def test_a_verb_or_option_that_does_not_exist_is_found(text: str, unknown: list[str]) -> None:
    assert _unknown(text) == unknown
