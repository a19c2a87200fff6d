"""How Qwen2.5-Math's rules write an answer before they compare it."""

from __future__ import annotations

import re

_UNITS = (
    r"a|ab|acre|am|apple|are|bc|by|c|cc|cm|coin|cube|cubic|d|day|decrease|"
    r"deg|degree|dm|east|excess|feet|ft|g|gain|gal|gallon|gm|h|hectare|hour|"
    r"hr|inch|inches|increase|kg|km|kmh|kmph|l|lb|less|liter|litre|loss|lt|m|"
    r"man|mark|men|meter|metre|mile|min|minute|minw|mm|monkey|month|more|mp|"
    r"mph|mt|mtr|noon|number|o|ohm|per|percent|pie|pm|prime|profit|pure|ratio|"
    r"rd|rise|rounds|rs|rupee|s|sec|second|soldier|sq|square|st|Surface|t|th|"
    r"tile|toy|unit|way|west|woman|women|yard|year|yr"
)
"""Words that are removed as units, also with an s at the end: those of the published list that are
one word. Most nouns of word problems are not in it, nor is ``dollars``."""

_UNIT = re.compile(rf"(^|\W)(?:{_UNITS})s?(?=$|\W)")

_REMOVED_BEFORE_UNITS = re.compile(r"\\!|\\left|\\right")
_TEXT_AT_END = re.compile(r"\\text{.*?}$")
_REMOVED_AFTER_UNITS = re.compile(r"\^\{\\circ\}|\^\\circ|\\\$|\$|\\\(|\\\)")
_REMOVED_LAST = re.compile(r"\\%|%|and|\\mathbf|\\mbox{.*?}")
_WHOLE_WITH_POINT = re.compile(r"(\d+)\.0*(?=\D|$)")
_SHORT_FRACTION = re.compile(r"\\frac([^{\s])(?:([^{\s])|(?=\{))")
_SLASH = re.compile(r"(-?\d+)/(-?\d+)")


def normalised(text: str) -> str:
    """Return an answer without units, currency, percent signs, spaces and LaTeX's decoration."""
    text = text.strip().replace("\n", "").rstrip(".")
    text = _REMOVED_BEFORE_UNITS.sub("", text)
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    text = text.replace(r"\{", "{").replace(r"\}", "}")
    text = _TEXT_AT_END.sub("", text).strip() or text
    for _ in range(2):
        text = _UNIT.sub(r"\1", text) or text
    text = _REMOVED_AFTER_UNITS.sub("", text)
    text = re.sub(r"\\text\{(.*?)\}", r"\1", text)
    text = re.sub(r"[xyz](?:=|\\in|\\to)", "", text)
    text = _REMOVED_LAST.sub("", text)
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    text = _WHOLE_WITH_POINT.sub(r"\1", text)
    if text.startswith("."):
        text = "0" + text
    left, equals, right = text.partition("=")
    if equals and len(left) <= 2 and "=" not in right:
        text = right
    text = text.replace(" ", "")
    text = _SHORT_FRACTION.sub(_with_braces, text)
    slash = _SLASH.fullmatch(text)
    return rf"\frac{{{slash[1]}}}{{{slash[2]}}}" if slash else text


def _with_braces(fraction: re.Match[str]) -> str:
    below = f"{{{fraction[2]}}}" if fraction[2] else ""
    return rf"\frac{{{fraction[1]}}}{below}"
