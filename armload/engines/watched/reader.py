"""Readers: how a program that armload did not build prints its figures. Each is one YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from armload.core.deciding import DESCRIBES, Words
from armload.core.files import require_file
from armload.core.values import Value
from armload.core.workspace import data_names
from armload.engines.watched.pattern import (
    DURATION,
    SIZES_BYTES,
    TIMES_S,
    Pattern,
    PrintedFigure,
    compiled,
)

READERS = "readers"
"""The folder of readers."""

TEXT_READER = "text"
"""The reader of any program's output, which finds nothing in it."""

Kind = Literal["count", "rate", "time", "size"]

KNOWN: Mapping[str, Kind] = {
    "prefill_tokens": "count",
    "prefill_time": "time",
    "prefill_rate": "rate",
    "decode_tokens": "count",
    "decode_steps": "count",
    "decode_time": "time",
    "decode_rate": "rate",
    "load_time": "time",
    "first_token_time": "time",
    "total_time": "time",
    "peak_memory": "size",
}
"""The figures that armload knows. Steps are output tokens but the first, which prefill gives."""

_UNITS: Mapping[Kind, tuple[str, ...]] = {
    "count": ("", "tokens"),
    "rate": ("", "tokens/s"),
    "time": (*TIMES_S, DURATION),
    "size": (*SIZES_BYTES,),
}


def _checked(text: str) -> str:
    compiled(text)
    return text


_Short = Annotated[str, DESCRIBES, Field(max_length=200)]
PatternText = Annotated[str, DESCRIBES, Field(max_length=1000), AfterValidator(_checked)]
_Patterns = Annotated[tuple[PatternText, ...], Field(max_length=50)]


class AnswerPlace(Value):
    """Where the model's text lies in the standard output; without these, before the figures.

    Attributes:
        after: it begins behind the first of these, each looked for behind the one before it; one
            that is missing is passed over.
        before: lines of this kind directly before the figures are no part of it.
        skips: where nothing of ``after`` is found, such lines at the beginning are no part of it.
        ends: what the program puts behind it on the same line.
    """

    after: _Patterns = ()
    before: _Patterns = ()
    skips: _Patterns = ()
    ends: Annotated[tuple[_Short, ...], Field(max_length=50)] = ()


class Reader(Value):
    """What is read from a program's output. It describes, and runs nothing.

    Attributes:
        name: of the file.
        description: whose output it reads.
        engine: what comparisons call the program.
        seen_in: versions whose source or output the patterns were taken from.
        programs: names of programs that print so; the reader is used for them unasked.
        units: of figures that armload does not know, by their names: they are kept and shown.
        lines: patterns with figures; each must be found.
        optional_lines: further ones, which may be missing.
        token: a line of this pattern is one output token, and what follows ``{text}`` its text.
        answer: where the text is.
        hint: what to do where a line is missing.
        note: what a person should know of the figures; it stands with every run.
        document: the output is one document, which armload reads itself.
    """

    name: Words = ""
    description: _Short
    engine: Words = ""
    seen_in: Annotated[tuple[_Short, ...], Field(max_length=20)] = ()
    programs: Annotated[tuple[_Short, ...], Field(max_length=50)] = ()
    units: Annotated[Mapping[str, _Short], DESCRIBES, Field(max_length=50)] = {}
    lines: _Patterns = ()
    optional_lines: _Patterns = ()
    token: PatternText | None = None
    answer: AnswerPlace = AnswerPlace()
    hint: _Short = ""
    note: _Short = ""
    document: Literal["llm_bench"] | None = None

    @field_validator("units")
    @classmethod
    def _new_names(cls, units: Mapping[str, str]) -> Mapping[str, str]:
        known = next((name for name in units if name in KNOWN), None)
        if known is not None:
            raise ValueError(f"armload knows {known}: give its unit in the pattern")
        return units

    @field_validator("lines", "optional_lines")
    @classmethod
    def _known_figures(cls, patterns: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        units: Mapping[str, str] = info.data.get("units", {})
        for text in patterns:
            pattern = compiled(text)
            if not pattern.places:
                raise ValueError(f"{text!r} has no figure, such as {{decode_tokens}}")
            for name, unit in pattern.places:
                _check_unit(name, unit, units)
        return patterns

    @field_validator("token")
    @classmethod
    def _only_text(cls, token: str | None) -> str | None:
        if token is not None and compiled(token).places:
            raise ValueError("a token's line has {number}, {any} and {text}, and no figures")
        return token

    @property
    def required(self) -> tuple[Pattern, ...]:
        return tuple(map(compiled, self.lines))

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """All that have figures, the required ones first."""
        return (*self.required, *map(compiled, self.optional_lines))

    @property
    def has_text(self) -> bool:
        """Whether the model's text is to be expected in the output."""
        return self.document is None

    @property
    def counts_tokens(self) -> bool:
        """Whether every output says how many tokens the prompt and the answer had."""
        names = {name for each in self.required for name, _ in each.places}
        return "prefill_tokens" in names and not names.isdisjoint(("decode_tokens", "decode_steps"))

    @property
    def first_token_counts(self) -> bool:
        """Whether the number of tokens includes the first, which comes out of prefill."""
        return all(name != "decode_steps" for each in self.patterns for name, _ in each.places)

    def unit_of(self, figure: PrintedFigure) -> str:
        """Return the unit of a figure as it is kept; empty for a count."""
        if figure.name not in KNOWN:
            return self.units.get(figure.name, "")
        return {"count": "", "rate": "tokens/s", "time": "s", "size": "bytes"}[KNOWN[figure.name]]


def in_own_unit(figure: PrintedFigure) -> float:
    """Return a figure in the unit that it is kept in: seconds, bytes, or its own."""
    kind = KNOWN.get(figure.name)
    if kind == "time" and figure.unit != DURATION:
        return figure.value * TIMES_S[figure.unit]
    if kind == "size":
        return figure.value * SIZES_BYTES[figure.unit]
    return figure.value


def _check_unit(name: str, unit: str, units: Mapping[str, str]) -> None:
    if name in units:
        if unit:
            raise ValueError(f"{{{name}:{unit}}}: its unit stands under 'units' already")
        return
    if name not in KNOWN:
        raise ValueError(
            f"{{{name}}}: no such figure. armload knows {', '.join(KNOWN)}; give others a unit "
            f"under 'units'"
        )
    allowed = _UNITS[KNOWN[name]]
    if unit not in allowed:
        words = ", ".join(each for each in allowed if each)
        problem = f"{unit!r} is no unit of it" if unit else "it needs a unit"
        raise ValueError(f"{{{name}}}: {problem}; write {{{name}:UNIT}} with one of {words}")


def load_reader(name_or_path: str) -> Reader:
    """Read ``readers/NAME.yaml``, the person's own first, or a file with another path."""
    from armload.core.yamlfile import load_file, load_named

    if not name_or_path.endswith((".yaml", ".yml")):
        return load_named(READERS, name_or_path, Reader)
    path = Path(name_or_path).expanduser()
    require_file(path, "reader", "Give the name of a reader or the path of its YAML file.")
    reader = load_file(path, Reader)
    return reader.model_copy(update={"name": reader.name or path.stem})


def readers_for(words: tuple[str, ...]) -> tuple[Reader, ...]:
    """Return the readers whose files name a command's program; what ``env`` starts is looked at."""
    program = PurePosixPath(program_word(words)).name
    every = (load_reader(name) for name in data_names(READERS))
    return tuple(each for each in every if program in each.programs)


def program_word(words: tuple[str, ...]) -> str:
    """Return the word of a command that names the program, behind ``env`` and its settings."""
    if PurePosixPath(words[0]).name != "env":
        return words[0]
    rest = (word for word in words[1:] if "=" not in word and not word.startswith("-"))
    return next(rest, words[0])


def chosen_reader(asked: str, words: tuple[str, ...]) -> tuple[Reader, str]:
    """Return the reader of a command's output, and what a person should know of the choice.

    Args:
        asked: a name or a file; empty for the one that names the program.

    Raises:
        UsageError, DataError: there is no such reader, or its file is wrong.
    """
    if asked or not words:
        return load_reader(asked or TEXT_READER), ""
    found = readers_for(words)
    if len(found) == 1:
        return found[0], ""
    note = ""
    if found:
        names = " or ".join(f"--reader {each.name}" for each in found)
        note = f"Several programs are called {program_word(words)}: to read its figures, {names}."
    return load_reader(TEXT_READER), note
