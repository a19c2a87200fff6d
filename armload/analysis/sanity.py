"""Whether what a model wrote is language at all, or what a reference wrote.

A fast run whose text is garbage is worth nothing. A random model writes words without sense and
a base model says a sentence twice; neither is what is looked for here. The thresholds are set so
that only an end that never comes out of its rut is one.
"""

from __future__ import annotations

import re
from typing import Literal

from armload.analysis.noise import is_noise
from armload.core.values import Value, counted

SAME_CHARACTER = 24
"""A character repeated so often at the end is garbage."""

SAME_RULER_CHARACTER = 100
"""The same for characters that people draw lines with."""

WHITE_SHARE, WHITE_FROM_CHARACTERS = 0.9, 100
"""More white space than that is no layout."""

SHORT_WORDS, SHORT_CHARACTERS = 3, 8
"""A unit is short with at most three words, or without a space at most eight characters."""

SHORT_TIMES, SHORT_COVERS_CHARACTERS, SHORT_SHARE = 10, 40, 0.25
LONG_TIMES, LONG_SHARE = 12, 0.75
"""A repeated sentence is a base model's habit; only one that is nearly all there is counts."""

_RULERS = "-=_*#~.+"
_EXCERPT = 40


class Departure(Value):
    """Where a text first differs from a reference's.

    Attributes:
        reference: the reference run's id.
        kind: ``same``; ``differs``; or ``other model``, where another text is to be expected.
        at_character: how many characters are the same before that; none when all are.
        at_word: how many whole words are.
        here, there: how this text and the reference continue.
    """

    reference: str
    kind: Literal["same", "differs", "other model"]
    at_character: int | None = None
    at_word: int | None = None
    here: str = ""
    there: str = ""

    @property
    def sentence(self) -> str:
        """How the text compares with the reference's."""
        if self.kind == "same":
            return f"The text matches that of {self.reference}."
        other = " (another model, prompt or sampling)" if self.kind == "other model" else ""
        where = (
            f"after {counted(self.at_word, 'word')} (character {self.at_character})"
            if self.at_word
            else "from the first word on"
        )
        return (
            f"The text differs from that of {self.reference}{other} {where}: {self.here!r} "
            f"instead of {self.there!r}."
        )


class TextFault(Value):
    """What makes a text garbage.

    Attributes:
        kind: of the evidence.
        share: of the characters that are white space.
        repeated: what the end repeats: a character, or the beginning of a loop's unit.
        times: how often.
    """

    kind: Literal[
        "only white space", "not UTF-8", "white space", "repeated character", "loop", "noise"
    ]
    share: float | None = None
    repeated: str = ""
    times: int | None = None

    @property
    def sentence(self) -> str:
        """What is wrong with the text."""
        match self.kind:
            case "only white space":
                return "The text contains only white space."
            case "not UTF-8":
                return "The text is not valid UTF-8."
            case "white space":
                return f"{self.share or 0:.0%} of the text is white space."
            case "repeated character":
                return f"The text ends in a repeated character: {self.repeated * 8!r}."
            case "noise":
                return "The text is random characters, not language, code or data."
            case "loop":
                return f"The text ends in a loop: {self.repeated!r}, repeated {self.times} times."


def doubts_about_text(text: str, *, of_words: bool = False) -> list[TextFault]:
    """Return the evidence that a text is garbage; empty if there is none.

    Args:
        of_words: its prompt was meaningless words, after which a loop is no evidence.
    """
    if not text.strip():
        return [TextFault(kind="only white space")]
    doubts = []
    # A token may end inside a character, and so may the last one.
    if "\ufffd" in text[:-1]:
        doubts.append(TextFault(kind="not UTF-8"))
    white = sum(character.isspace() for character in text)
    if len(text) >= WHITE_FROM_CHARACTERS and white > WHITE_SHARE * len(text):
        doubts.append(TextFault(kind="white space", share=white / len(text)))
    if is_noise(text):
        doubts.append(TextFault(kind="noise"))
    end = text.rstrip()
    last = len(end) - len(end.rstrip(end[-1]))
    if last >= (SAME_RULER_CHARACTER if end[-1] in _RULERS else SAME_CHARACTER):
        doubts.append(TextFault(kind="repeated character", repeated=end[-1], times=last))
    elif not of_words and (end[-1] not in _RULERS or last < SAME_CHARACTER):
        doubts += _doubts_about_a_loop(end)
    return doubts


def _doubts_about_a_loop(text: str) -> list[TextFault]:
    for unit, times in loops_at_end(text):
        covered = len(unit) * times
        words = unit.split()
        if any(character.isspace() for character in unit):
            is_short = len(words) <= SHORT_WORDS
        else:
            is_short = len(unit) <= SHORT_CHARACTERS
        if is_short:
            is_stuck = (
                times >= SHORT_TIMES
                and covered >= SHORT_COVERS_CHARACTERS
                and covered >= SHORT_SHARE * len(text)
            )
        else:
            is_stuck = times >= LONG_TIMES and covered >= LONG_SHARE * len(text)
        if is_stuck:
            shown = unit if len(unit) <= _EXCERPT else unit[:_EXCERPT] + "…"
            return [TextFault(kind="loop", repeated=shown, times=times)]
    return []


def loops_at_end(text: str) -> list[tuple[str, int]]:
    """Return the units that a text's end repeats, each with how often, the shortest first.

    Only whole repetitions count, and two at least. Time and memory are linear in the text.
    """
    # Of the text read backwards, the shortest period of each prefix follows from the length of
    # its longest border (Knuth, Morris and Pratt 1977).
    backwards = text[::-1]
    borders = [0] * len(backwards)
    longest: dict[int, int] = {}
    for index in range(1, len(backwards)):
        border = borders[index - 1]
        while border and backwards[index] != backwards[border]:
            border = borders[border - 1]
        borders[index] = border + (backwards[index] == backwards[border])
        period = index + 1 - borders[index]
        if index + 1 >= 2 * period:
            longest[period] = index + 1
    return [(text[-period:], covered // period) for period, covered in sorted(longest.items())]


def departure(text: str, reference: str, *, name: str, same_model: bool = True) -> Departure:
    """Find where a text first differs from a reference's.

    Args:
        reference: what the reference run wrote; only as much of it as both have is compared.
        same_model: whether the same text is to be expected.
    """
    # The last token may end inside a character.
    text, reference = text.removesuffix("\ufffd"), reference.removesuffix("\ufffd")
    length = min(len(text), len(reference))
    at = next((index for index in range(length) if text[index] != reference[index]), length)
    if text == reference or at == length > 0:
        return Departure(reference=name, kind="same")
    return Departure(
        reference=name,
        kind="differs" if same_model else "other model",
        at_character=at,
        at_word=len(re.findall(r"\S+(?=\s)", text[:at])),
        here=text[at : at + _EXCERPT],
        there=reference[at : at + _EXCERPT],
    )
