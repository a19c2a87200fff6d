"""Requests that others have recorded: when each came, and how long its prompt and answer were.

The formats are Mooncake's (JSON lines: ``timestamp`` in milliseconds, ``input_length``,
``output_length``, and ``hash_ids`` of the prompt's blocks of 512 tokens, alike for prompts that
begin alike), BurstGPT's (CSV: ``Timestamp`` in seconds, ``Request tokens``, ``Response tokens``)
and that of Azure's traces of language models (CSV: ``TIMESTAMP``, ``ContextTokens``,
``GeneratedTokens``).
"""

from __future__ import annotations

import csv
import math
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from armload.analysis.load.records import Stage
from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, unreadable
from armload.core.progress import Progress
from armload.core.values import load_json
from armload.serving.arrivals import MOST_REQUESTS
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.request_file import LONGEST
from armload.serving.tokenizer import ServiceApi
from armload.serving.workload import words_of

BLOCK_TOKENS = 512
"""Of a prompt, for each of Mooncake's hashes."""

_SHORTEST_S = 1.0
_FORMS = "It must be a trace of Mooncake (JSON lines), BurstGPT or Azure (CSV)."

_Row = tuple[float, int, int, tuple[int, ...]]
_Read = Callable[[dict[str, Any]], _Row]


@dataclass(frozen=True, kw_only=True)
class RequestTrace:
    """The part of a trace that is replayed, scaled: one value of each sequence for each request.

    Attributes:
        described: the file, its format and the scales.
        times_s: since the first request, in order.
        prompt_tokens, answer_tokens: 1 or more.
        blocks: what a prompt begins with; equal numbers are equal text. Empty where the trace does
            not tell.
        block_tokens: of the text that one block stands for.
        length_s: of the time that it covers.
    """

    described: str
    times_s: Sequence[float]
    prompt_tokens: Sequence[int]
    answer_tokens: Sequence[int]
    blocks: Sequence[tuple[int, ...]]
    block_tokens: int
    length_s: float

    @property
    def stage(self) -> Stage:
        """The traffic as a load records it."""
        per_s = len(self.times_s) / self.length_s
        return Stage(
            start_s=0.0,
            end_s=self.length_s,
            first_per_s=per_s,
            last_per_s=per_s,
            is_replay=True,
        )


class Replayed:
    """A trace's requests: random words, alike where the trace says that prompts begin alike."""

    def __init__(
        self,
        trace: RequestTrace,
        *,
        stops_at_end: bool,
        seed: int,
        words: Sequence[str],
    ) -> None:
        self._trace = trace
        self._stops_at_end = stops_at_end
        self._seed = seed
        self._words = words
        self.described = trace.described

    def request(self, number: int) -> CompletionRequest:
        trace, row = self._trace, number % len(self._trace.times_s)
        missing = trace.prompt_tokens[row]
        parts: list[str] = []
        for block in trace.blocks[row] if trace.blocks else ():
            if missing <= 0:
                break
            drawn = self._drawn(f"block {block}", trace.block_tokens)
            parts += drawn[:missing]
            missing -= len(drawn)
        parts += self._drawn(str(number), max(0, missing))
        return CompletionRequest(
            prompt=" ".join(parts),
            max_tokens=trace.answer_tokens[row],
            ignores_end=not self._stops_at_end,
        )

    def _drawn(self, name: str, count: int) -> list[str]:
        generator = random.Random(f"{self._seed}/{name}")  # noqa: S311 - no secret
        return generator.choices(self._words, k=count)


def replayed(
    trace: RequestTrace, api: ServiceApi, *, stops_at_end: bool, seed: int, progress: Progress
) -> Replayed:
    """Return the requests of a trace for a service, with words that are tokens of its own."""
    words, _ = words_of(api, progress)
    return Replayed(trace, stops_at_end=stops_at_end, seed=seed, words=words)


def read_trace_file(
    path: Path,
    *,
    time_scale: float,
    length_scale: float,
    duration_s: float | None,
    requests: int | None,
) -> RequestTrace:
    """Read the beginning of a trace.

    Args:
        time_scale: 10 makes it ten times as slow.
        length_scale: of prompts and answers; each keeps one token.
        duration_s: of the scaled time that is replayed; none for all.
        requests: at most.
    """
    require_file(path, "trace", f"Give another file with --replay. {_FORMS}")
    times, prompts, answers = array("d"), array("q"), array("q")
    every_block: list[tuple[int, ...]] = []
    first_s = last_s = -math.inf
    is_over = False
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            name, rows = _rows(path, file)
            for line, (time_s, prompt, answer, blocks) in rows:
                if time_s < last_s:
                    raise DataError(
                        f"{path}, line {line}: its time is {last_s - time_s:g} s before that of "
                        "the request above it.",
                        "Sort the trace by time.",
                    )
                first_s, last_s = (time_s if not times else first_s), time_s
                scaled_s = (time_s - first_s) * time_scale
                is_over = duration_s is not None and scaled_s >= duration_s
                if is_over or len(times) == requests:
                    break
                if len(times) == MOST_REQUESTS:
                    raise UsageError(
                        f"{path}: a load of more than {MOST_REQUESTS:,} requests is too large.",
                        "Give a shorter --duration, or fewer --requests.",
                    )
                times.append(scaled_s)
                prompts.append(_scaled(prompt, length_scale))
                answers.append(_scaled(answer, length_scale))
                if name == "Mooncake":
                    every_block.append(blocks)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8.", _FORMS) from error
    except csv.Error as error:
        raise DataError(f"{path}: not CSV: {error}.", _FORMS) from error
    except OSError as error:
        raise unreadable(path, error) from error
    if not times:
        raise DataError(f"{path}: has no requests.", _FORMS)
    scales = [
        f"{what} scaled by {scale:g}"
        for what, scale in (("times", time_scale), ("lengths", length_scale))
        if scale != 1
    ]
    covered_s = duration_s if is_over and duration_s is not None else times[-1]
    return RequestTrace(
        described=", ".join([f"{path} ({name})", *scales]),
        times_s=times,
        prompt_tokens=prompts,
        answer_tokens=answers,
        blocks=every_block,
        block_tokens=_scaled(BLOCK_TOKENS, length_scale),
        length_s=max(covered_s, _SHORTEST_S),
    )


def _scaled(tokens: int, scale: float) -> int:
    return min(max(1, round(tokens * scale)), LONGEST)


def _rows(path: Path, file: TextIO) -> tuple[str, Iterator[tuple[int, _Row]]]:
    begin = file.readline()
    file.seek(0)
    if begin.lstrip().startswith("{"):
        return "Mooncake", _read_rows(path, _json_lines(path, file), _mooncake)
    reader = csv.DictReader(file)
    columns = set(reader.fieldnames or ())
    formats: tuple[tuple[str, set[str], _Read], ...] = (
        ("BurstGPT", {"Timestamp", "Request tokens", "Response tokens"}, _burst),
        ("Azure", {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, _azure),
    )
    for name, needed, read in formats:
        if needed <= columns:
            numbered = ((reader.line_num, row) for row in reader)
            return name, _read_rows(path, numbered, read)
    raise DataError(f"{path}: not a trace.", _FORMS)


def _json_lines(path: Path, file: TextIO) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                content = load_json(line)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: not JSON: {error}.", _FORMS) from error
            yield number, content


def _read_rows(
    path: Path, rows: Iterator[tuple[int, dict[str, Any]]], read: _Read
) -> Iterator[tuple[int, _Row]]:
    for line, content in rows:
        try:
            row = read(content)
            time_s, prompt, answer, _ = row
            if not math.isfinite(time_s) or min(prompt, answer) < 0:
                raise ValueError("negative or infinite")
        except KeyError as error:
            raise DataError(f"{path}, line {line}: has no {error.args[0]}.", _FORMS) from error
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise DataError(
                f"{path}, line {line}: must have a time, and lengths of 0 or more.", _FORMS
            ) from error
        yield line, row


def _mooncake(content: dict[str, Any]) -> _Row:
    blocks = tuple(int(each) for each in content.get("hash_ids") or ())
    lengths = (int(content["input_length"]), int(content["output_length"]))
    return (float(content["timestamp"]) / 1000, *lengths, blocks)


def _burst(content: dict[str, Any]) -> _Row:
    lengths = (int(float(content["Request tokens"])), int(float(content["Response tokens"])))
    return (float(content["Timestamp"]), *lengths, ())


def _azure(content: dict[str, Any]) -> _Row:
    at = datetime.fromisoformat(content["TIMESTAMP"])
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at.timestamp(), int(content["ContextTokens"]), int(content["GeneratedTokens"]), ())
