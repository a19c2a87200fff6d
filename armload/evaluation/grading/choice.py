"""Grader ``choice``: the letter of the choice that an answer commits to.

The first of these that the text has decides: its last closed box that names a letter; its last
statement of an answer ("the answer is B", "B is correct", "I choose B"); a last line that is a
letter; a letter that it begins with; the only letter that it mentions and does not reject. Where
that is more than one letter ("A or B"), the answer names none.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from armload.evaluation.grading.grade import GraderFinding
from armload.evaluation.grading.qwen import last_closed_box
from armload.evaluation.question import LETTERS, Question

_UNNAMED = 10
_DECORATION = re.compile(
    r"\\(?:text|textbf|mathrm|mathbf|rm)\b|\\[()\[\]]|<[/\w]+>|[{}$*_`#\"“”\\]"
)
_NO_NOUN = (
    "because|since|as|for|due|and|or|but|not|while|whereas|given|is|was|must|would|fits|works"
)
_NAMED = r"(?:(?:the\s+)?(?:option|choice|letter|answer)\s+)?"
_BEFORE_REJECTED = re.compile(
    r"(?:\bnot|\bnor|\bneither|\bthan|\binstead of|\bunlike|\bexcept|\beliminat\w+|\bexclud\w+"
    rf"|\breject\w*|\brul\w+ out|n't(?: be)?)\s+{_NAMED}\(?$",
    re.IGNORECASE,
)
_AFTER_REJECTED = re.compile(
    r"\)?,?\s+(?:(?:is|was|does|did|has|can|could|would|will|seems|looks)\s+(?:\w+ly\s+|also\s+)?)?"
    r"(?:not|cannot|\w+n't|wrong|incorrect|false|out|too|impossible|irrelevant|eliminated|excluded)\b",
    re.IGNORECASE,
)


class _Patterns(NamedTuple):
    stated: re.Pattern[str]
    called_correct: re.Pattern[str]
    alone: re.Pattern[str]
    first: re.Pattern[str]
    mentioned: re.Pattern[str]


@cache
def _patterns(letters: str) -> _Patterns:
    either = f"[{letters}{letters.lower()}]"
    # "a" and "I" are words, too: "the answer is a dog", "I think".
    is_letter = rf"(?![\w'])(?!(?-i:(?<=[aiI]))[ \t]+(?!(?:{_NO_NOUN})\b)\w)"
    alone = rf"\(?({either})[).:,]*"
    return _Patterns(
        stated=re.compile(
            r"(?:(?:\b(?:answer|ans|option|choice|solution|it)(?:\(s\))?|答案)"
            r"\s*(?:'s|\b(?:is|was|must be|should be|would be)\b|是|为|[:=-]|\n)\s*:?"
            r"|选|\b(?:only|choose|chose|pick(?:ed)?|select(?:ed)?|go(?:ing)? with|vote for)\b)"
            rf"\s*(?:not\s+{_NAMED}\(?{either}\)?,?\s*(?:but|it is|it's)\s+)?"
            rf"(?i:{_NAMED})\(?(?P<letter>{either}){is_letter}\)?"
            rf"(?:\s*(?:\bor\b|\band\b|[/&])\s*{_NAMED}\(?(?P<other>{either})(?![\w'])(?!\)?\s+[a-z]))?",
            re.IGNORECASE,
        ),
        called_correct=re.compile(
            rf"(?<![\w'])(?P<letter>[{letters}])\)?\s+(?:is|must be|would be|seems|looks)\s+"
            r"(?:\w+ly\s+|also\s+|thus\s+)?(?:the\s+)?(?:correct|right|best|true|answer|most|only)\b"
        ),
        alone=re.compile(alone),
        first=re.compile(rf"\(?({either})(?:[).:,]|\s*(?:\n|$)|\s+-)"),
        mentioned=re.compile(
            rf"(?<![A-Za-z0-9_'])(?:\((?P<marked>{either})\)|(?P<letter>[{letters}])(?![A-Za-z0-9_'])"
            rf"(?!(?<=[AI])\s+(?!(?:{_NO_NOUN})\b)[a-z]))"
        ),
    )


def grade(text: str, question: Question) -> GraderFinding:
    """Compare the letter that an answer commits to."""
    letters = LETTERS[: len(question.choices) or _UNNAMED]
    box = _plain(last_closed_box(text) or "")
    named = _alone(box, letters) or _mentioned(box, letters) or _committed(_plain(text), letters)
    letter = named.pop() if len(named) == 1 else None
    return GraderFinding(correct=letter == question.expected.strip().upper(), extracted=letter)


def _plain(text: str) -> str:
    """Return a text without the marks of LaTeX and Markdown, full-width characters as ASCII."""
    straight = unicodedata.normalize("NFKC", text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return _DECORATION.sub("", straight).strip()


def _committed(text: str, letters: str) -> set[str]:
    last_line = text.rpartition("\n")[2].strip()
    return (
        _stated(text, letters)
        or _alone(last_line, letters)
        or _first(text, letters)
        or _mentioned(text, letters)
    )


def _stated(text: str, letters: str) -> set[str]:
    patterns = _patterns(letters)
    found = [
        *patterns.stated.finditer(text),
        *(
            each
            for each in patterns.called_correct.finditer(text)
            if not _BEFORE_REJECTED.search(text[: each.start()])
        ),
    ]
    if not found:
        return set()
    last = max(found, key=lambda each: each.start("letter"))
    return {letter.upper() for letter in last.groupdict().values() if letter}


def _alone(text: str, letters: str) -> set[str]:
    found = _patterns(letters).alone.fullmatch(text)
    return {found[1].upper()} if found else set()


def _first(text: str, letters: str) -> set[str]:
    """Return the letter that a text begins with, unless it begins a list of the choices."""
    found = _patterns(letters).first.match(text)
    if found is None:
        return set()
    others = set(re.findall(rf"(?:^|\s)\(?([{letters}{letters.lower()}])[).:]", text))
    return {found[1].upper()} if {each.upper() for each in others} <= {found[1].upper()} else set()


def _mentioned(text: str, letters: str) -> set[str]:
    return {
        (each["marked"] or each["letter"]).upper()
        for each in _patterns(letters).mentioned.finditer(text)
        if not _BEFORE_REJECTED.search(text[: each.start()])
        and not _AFTER_REJECTED.match(text, each.end())
    }
