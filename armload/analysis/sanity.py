"""Whether what a model wrote is language at all, or what a reference wrote.

A fast run whose text is garbage is worth nothing. A random model writes words without sense and
a base model says a sentence twice; neither is what is looked for here. The thresholds are set so
that only an end that never comes out of its rut is one.

A broken kernel writes characters at random. In language, code and data the kinds of neighbouring
characters follow few patterns, and the same ones again and again; at random they hardly ever
repeat one.
"""

from __future__ import annotations

import functools
import itertools
import re
import statistics
import unicodedata
from typing import Literal

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


WINDOW_CHARACTERS = 128
"""No judgement is made of less; longer texts are judged by the median of their windows."""

NOISE_SHARE = 0.42
"""Of 26,709 windows of texts, translations, code and data none had more than 0.39, which a lexer's
list of operators has. Printable ASCII at random is above it in 97% of windows, Unicode in all."""

# Keys, hashes and encoded files are noise that people ask for.
_ENCODED = re.compile(r"[0-9A-Za-z+/=_-]{24,}")
_DIGIT = re.compile(r"\d")  # arithmetic has every pair of a digit and a sign
_SIGNS = frozenset("#%&*@\\/_")
_EAST_ASIAN = frozenset(
    ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "FULLWIDTH", "IDEOGRAPHIC")
)


def is_noise(text: str) -> bool:
    """Return whether a text is characters at random; of a short one it is not known."""
    text = _ENCODED.sub(" ", text)
    starts = range(0, len(text) - WINDOW_CHARACTERS + 1, WINDOW_CHARACTERS)
    shares = [odd_share(text[start : start + WINDOW_CHARACTERS]) for start in starts]
    return bool(shares) and statistics.median(shares) > NOISE_SHARE


def odd_share(text: str) -> float:
    """Return how many different odd pairs of neighbours a text has, per character."""
    plain = _DIGIT.sub("0", text)
    return len({pair for pair in itertools.pairwise(plain) if _is_odd(*pair)}) / len(text)


@functools.lru_cache(maxsize=1 << 16)
def _is_odd(first: str, second: str) -> bool:
    """Return whether two neighbours are rare within words, numbers and punctuation."""
    (one, script), (other, other_script) = _kind(first), _kind(second)
    match one, other:
        case (" ", _) | (_, " "):
            return False
        case ("L" | "U", "L" | "U"):
            return script != other_script or (one, other) == ("L", "U")
        case ("P" | "S", "P" | "S"):
            return first != second
        case ("P", _) | (_, "P") | ("E", "E") | ("N", "N"):
            return False
    return True


@functools.lru_cache(maxsize=1 << 14)
def _kind(character: str) -> tuple[str, str]:
    """Return the kind of a character, and of a letter its script.

    Space and marks, Lower-case or uncased and Upper-case letter, Number, Punctuation, Sign,
    picture (E), and ? for what no text has.
    """
    category = unicodedata.category(character)
    if character.isspace() or category[0] == "M" or category == "Cf":
        return " ", ""
    if category[0] == "L":
        script = unicodedata.name(character, "?").split()[0]
        return (
            "U" if category == "Lu" else "L",
            "east asian" if script in _EAST_ASIAN else script,
        )
    if category == "So":
        return "E", ""
    if category[0] == "S" or character in _SIGNS:
        return "S", ""
    return (category[0] if category[0] in "NP" else "?"), ""
