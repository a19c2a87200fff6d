"""Whether a text is characters at random, as a broken kernel writes them.

In language, code and data the kinds of neighbouring characters follow few patterns, and the same
ones again and again. Characters at random hardly ever repeat one.
"""

from __future__ import annotations

import functools
import itertools
import re
import statistics
import unicodedata

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
