"""What a watched engine printed: its answer and its own figures, as its reader describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from armload.core.errors import DataError
from armload.core.values import Value
from armload.deploy.layout import STDOUT_FILE
from armload.engines.measurement import Measurement, Method, Work
from armload.engines.output import ReportedFigure
from armload.engines.watched.mnn import llm_bench_figures
from armload.engines.watched.pattern import (
    Pattern,
    PatternMatch,
    PrintedFigure,
    compiled,
    find,
    match_at,
    readable,
)
from armload.engines.watched.reader import KNOWN, Reader, in_own_unit

_STDOUT = Path(STDOUT_FILE)
_SHOWN_CHARACTERS = 80
_MOST_HEAD_LINES = 200
"""That may stand between an answer and the figures, or before an answer."""


class EngineOutput(Value):
    """What was found in an output; a figure that the engine does not give stays none.

    Attributes:
        answer: where the model's text lies in the standard output, from byte to byte; none where
            no text is to be expected.
        tokens: where each of its tokens lies, if each has a line of its own; else none.
        prefill_tokens, prefill_s, prefill_tps, decode_tokens, decode_s, decode_tps: as printed.
        first_token_counts: ``decode_tokens`` includes the token that came out of prefill.
        figures: the others that were printed.
        missing: what should have been there; empty when nothing lacks.
        notes: what a reader of the figures should know.
    """

    answer: tuple[int, int] | None = None
    tokens: tuple[tuple[int, int], ...] | None = None
    prefill_tokens: int | None = None
    prefill_s: float | None = None
    prefill_tps: float | None = None
    decode_tokens: int | None = None
    decode_s: float | None = None
    decode_tps: float | None = None
    first_token_counts: bool = True
    figures: tuple[ReportedFigure, ...] = ()
    missing: str = ""
    notes: tuple[str, ...] = ()

    @property
    def output_tokens(self) -> int | None:
        """How many tokens were written."""
        if self.decode_tokens is None or self.first_token_counts:
            return self.decode_tokens
        return self.decode_tokens + 1


@dataclass(frozen=True, kw_only=True)
class PrintedReport:
    """Figures that a program printed together: from one line to where one of them recurs.

    Attributes:
        begin: where its first line begins.
        figures: by name.
        lacking: required patterns that are not in it, as written.
    """

    begin: int
    figures: Mapping[str, PrintedFigure] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()

    def count(self, name: str) -> int | None:
        """Return a number of tokens; none where it was not printed."""
        figure = self.figures.get(name)
        if figure is None or not (0 <= figure.value < 1 << 53 and figure.value.is_integer()):
            return None
        return int(figure.value)

    def positive(self, name: str) -> float | None:
        """Return a time, a rate or a size; none where it is nothing or was not printed."""
        figure = self.figures.get(name)
        return in_own_unit(figure) if figure is not None and figure.value > 0 else None

    def rate(self, phase: str) -> float | None:
        """Return tokens per second, as printed, or else of the printed tokens and time."""
        tokens = self.count(f"{phase}_tokens") or self.count(f"{phase}_steps")
        time_s = self.positive(f"{phase}_time")
        if f"{phase}_rate" in self.figures:
            return self.positive(f"{phase}_rate")
        return tokens / time_s if tokens and time_s else None


def reports(reader: Reader, output: bytes) -> list[PrintedReport]:
    """Return what a program printed of itself, in order; several prompts give several reports."""
    patterns = reader.patterns
    hits = [
        (found.line, number, found)
        for number, each in enumerate(patterns)
        for found in find(each, output)
    ]
    groups: list[dict[int, PatternMatch]] = []
    for _, number, found in sorted(hits, key=lambda hit: hit[:2]):
        if not groups or number in groups[-1]:
            groups.append({})
        groups[-1][number] = found
    return [
        PrintedReport(
            begin=min(found.line for found in group.values()),
            figures={
                name: each for found in group.values() for name, each in found.figures.items()
            },
            lacking=tuple(text for number, text in enumerate(reader.lines) if number not in group),
        )
        for group in groups
    ]


def read_output(reader: Reader, stdout: bytes, stderr: bytes = b"") -> EngineOutput:
    """Read a program's whole output; whatever is in it, this raises nothing."""
    if reader.document == "llm_bench":
        return _llm_bench(reader, stdout)
    found = reports(reader, stdout + b"\n" + stderr)
    whole = [each for each in found if not each.lacking]
    first = next(iter(whole or found), None)
    end = min(first.begin, len(stdout)) if first else len(stdout)
    tokens = _tokens(compiled(reader.token), stdout, end) if reader.token else None
    common = EngineOutput(
        answer=_answer(reader, stdout, end),
        tokens=tokens,
        first_token_counts=reader.first_token_counts,
        notes=(reader.note,) if reader.note else (),
    )
    if not reader.lines:
        return common
    if len(whole) > 1:
        note = (
            f"The output contains {len(whole)} reports of the program, so none was used; to "
            "compare them, pass the file that holds them to armload compare: stdout or stderr."
        )
        return common.model_copy(update={"notes": (*common.notes, note)})
    if first is None or first.lacking:
        missing = _lacking(reader, first, stdout, stderr)
        return common.model_copy(update={"missing": missing})
    return common.model_copy(
        update={
            "prefill_tokens": first.count("prefill_tokens"),
            "prefill_s": first.positive("prefill_time"),
            "prefill_tps": first.rate("prefill"),
            "decode_tokens": first.count(
                "decode_tokens" if reader.first_token_counts else "decode_steps"
            ),
            "decode_s": first.positive("decode_time"),
            "decode_tps": first.rate("decode"),
            "figures": tuple(_others(reader, first)),
        }
    )


def figures_of_output(path: Path, reader: Reader, output: bytes) -> list[Measurement]:
    """Return a measurement for each report in a program's output, a rate as it was printed.

    Raises:
        DataError: a report lacks a line.
    """
    measured: list[Measurement] = []
    for report in reports(reader, output):
        if report.lacking:
            raise DataError(
                f"{path}: no line matches {report.lacking[0]!r} of the reader {reader.name}.",
                "Use the program's complete output.",
            )
        prefill, decode = report.rate("prefill"), report.rate("decode")
        if prefill is None and decode is None:
            continue
        steps = report.count("decode_steps")
        measured.append(
            Measurement(
                name=f"{path.name}: report {len(measured) + 1}",
                work=Work(
                    prompt_tokens=report.count("prefill_tokens"),
                    output_tokens=report.count("decode_tokens") if steps is None else steps + 1,
                ),
                method=Method(engine=reader.engine or reader.name),
                prefill_tps=prefill,
                decode_tps=decode,
            )
        )
    return measured


_USED = frozenset(
    (
        *("prefill_tokens", "prefill_time", "prefill_rate"),
        *("decode_tokens", "decode_steps", "decode_time", "decode_rate"),
    )
)


def _others(reader: Reader, report: PrintedReport) -> Iterator[ReportedFigure]:
    for name, figure in report.figures.items():
        value = in_own_unit(figure)
        # What armload knows is never nothing; of another program's own figures, nothing may be.
        is_number = value == value and (name not in KNOWN or value > 0)
        if name not in _USED and is_number:
            yield ReportedFigure(name=name, value=value, unit=reader.unit_of(figure))


def _lacking(reader: Reader, report: PrintedReport | None, stdout: bytes, stderr: bytes) -> str:
    lacking = report.lacking if report else reader.lines
    which = " and ".join(repr(" / ".join(each.splitlines())) for each in lacking[:2])
    more = f" and {len(lacking) - 2} more" if len(lacking) > 2 else ""
    begin = [
        f"{name} begins with {text!r}"
        for name, output in (("standard output", stdout), ("standard error", stderr))
        if (text := readable(output, _SHOWN_CHARACTERS))
    ]
    printed = "; ".join(begin) or "the program printed nothing"
    said = f"No line of the output matches {which}{more} of the reader {reader.name}: {printed}."
    return f"{said} {reader.hint}".rstrip()


def _answer(reader: Reader, stdout: bytes, end: int) -> tuple[int, int]:
    begin = 0
    for text in reader.answer.after:
        found = next(find(compiled(text), stdout[begin:end]), None)
        if found is not None:
            begin = _behind_line_end(stdout, begin + found.end)
    if begin == 0:
        begin = _skipped(reader.answer.skips, stdout, end)
    before = [compiled(text) for text in reader.answer.before]
    stop = _block_begin(before, stdout, begin, end)
    # The program begins a line of its own.
    newline = b"\r\n" if stdout.endswith(b"\r\n", begin, stop) else b"\n"
    is_own = stop < len(stdout) and stdout.endswith(newline, begin, stop)
    return begin, max(begin, stop - len(newline)) if is_own else max(begin, stop)


def _behind_line_end(stdout: bytes, position: int) -> int:
    for end in (b"\r\n", b"\n"):
        if stdout.startswith(end, position):
            return position + len(end)
    return position


def _skipped(skips: Sequence[str], stdout: bytes, end: int) -> int:
    patterns = [compiled(text) for text in skips]
    begin = position = 0
    for _ in range(_MOST_HEAD_LINES if patterns else 0):
        stop = stdout.find(b"\n", position, end)
        if stop < 0:
            break
        line = stdout[position:stop]
        if line.strip() and not any(match_at(each, stdout, position) for each in patterns):
            break
        begin = position = stop + 1
    return begin


def _block_begin(before: Sequence[Pattern], stdout: bytes, begin: int, end: int) -> int:
    """Return where the lines begin that belong to the figures, directly before them."""
    block = position = end
    for _ in range(_MOST_HEAD_LINES if before else 0):
        if position <= begin:
            break
        line = max(begin, stdout.rfind(b"\n", begin, max(begin, position - 1)) + 1)
        found = next((each for one in before if (each := match_at(one, stdout, line))), None)
        if found is not None and begin <= found.begin < position:
            block = found.begin
            if stdout[line:block].strip():  # the answer goes on until there
                break
        elif stdout[line:position].strip():
            break
        position = line
    return block


def _tokens(pattern: Pattern, stdout: bytes, end: int) -> tuple[tuple[int, int], ...]:
    """Return where the text of each token lies; it may hold ends of lines itself."""
    found = list(find(pattern, stdout[:end]))
    nexts = [each.line for each in found[1:]]
    lasts = [found[-1].next] if found else []
    return tuple(
        (each.text, max(each.text, stop - 1))
        for each, stop in zip(found, (*nexts, *lasts), strict=True)
        if each.text >= 0
    )


def _llm_bench(reader: Reader, stdout: bytes) -> EngineOutput:
    content = _document(stdout.decode("utf-8", "replace"))
    if content is None:
        return EngineOutput(missing=f"The output contains no JSON of llm_bench. {reader.hint}")
    try:
        found = llm_bench_figures(_STDOUT, content)
    except DataError as error:
        return EngineOutput(missing=f"The JSON in the output is not llm_bench's: {error.message}")
    prefill = _the_one([each for each in found if each.prefill_tps is not None])
    decode = _the_one([each for each in found if each.decode_tps is not None])
    notes = []
    if prefill is None and decode is None and found:
        notes.append(
            f"llm_bench gave {len(found)} results, so none was used; to compare them, pass the "
            "file stdout to armload compare."
        )
    return EngineOutput(
        prefill_tokens=prefill.work.prompt_tokens if prefill else None,
        prefill_tps=prefill.prefill_tps if prefill else None,
        decode_tokens=decode.work.output_tokens if decode else None,
        decode_tps=decode.decode_tps if decode else None,
        missing="" if found else "llm_bench printed no result.",
        notes=tuple(notes),
    )


def _the_one(found: list[Measurement]) -> Measurement | None:
    """Return the only one, or the only one that measured nothing else beside it."""
    alone = [each for each in found if each.prefill_tps is None or each.decode_tps is None]
    chosen = alone or found
    return chosen[0] if len(chosen) == 1 else None


def _document(text: str) -> dict[str, object] | None:
    for match in re.finditer(r"^\s*\{", text, re.MULTILINE):
        try:
            content, _ = json.JSONDecoder().raw_decode(text, match.end() - 1)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict) and "results" in content:
            return content
    return None
