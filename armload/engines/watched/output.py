"""What a watched engine prints on standard output: its answer and its own figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

from armload.core.errors import DataError
from armload.core.values import Value
from armload.deploy.layout import STDOUT_FILE
from armload.engines.measurement import Measurement
from armload.engines.watched.mnn import llm_bench_figures, llm_demo_summaries

Reads = Literal["mnn", "llm_bench", "text"]
"""Whose output: MNN's ``llm_demo`` or ``cli_demo``, its ``llm_bench -j``, or nobody's."""

_LOG = (
    r"(?:(?:config path is |The device supports|CPU Group|Prepare for tuning |main, \d+, cost time"
    r"|Set not thinking|load tokenizer|### ).*\n|\n)*"
)
# What llm_demo prints before its answer; the last of it is printed right before.
_LAST_BEFORE_ANSWER = re.compile(
    r"^prompt file is .*\n"
    # MNN's wheel tells of its own call, with the prompt's text in it, and of its end. What it has
    # said of the device may be written only then.
    rf"(?P<wheel>{_LOG}\[MNNLLM\] response: text=(?s:.*?), stream=\d, max_new_tokens=-?\d+\n)?",
    re.MULTILINE,
)
_WHEEL_AFTER_ANSWER = "[MNNLLM] response: "
_BEFORE_ANSWER = re.compile(_LOG)
_STDOUT = Path(STDOUT_FILE)


class EngineOutput(Value):
    """What was found in an output; a figure that the engine does not give stays none.

    Attributes:
        answer: where the model's text lies in the output, from byte to byte; none where no
            text is to be expected.
        prefill_tokens, prefill_s, prefill_tps, decode_tokens, decode_s, decode_tps: as printed.
        missing: what should have been there; empty when nothing lacks.
        notes: what a reader of the figures should know.
    """

    answer: tuple[int, int] | None = None
    prefill_tokens: int | None = None
    prefill_s: float | None = None
    prefill_tps: float | None = None
    decode_tokens: int | None = None
    decode_s: float | None = None
    decode_tps: float | None = None
    missing: str = ""
    notes: tuple[str, ...] = ()


def read_output(reads: Reads, stdout: bytes) -> EngineOutput:
    """Read a program's whole output; whatever is in it, this raises nothing."""
    if reads == "mnn":
        return _llm_demo(stdout)
    if reads == "llm_bench":
        return _llm_bench(stdout)
    return EngineOutput(answer=(0, len(stdout)))


def _llm_demo(stdout: bytes) -> EngineOutput:
    text = stdout.decode("latin-1")  # one character for each byte
    summaries = llm_demo_summaries(text)
    end = summaries[0].begin if summaries else len(text)
    answer = _answer(text, end)
    if not summaries:
        return EngineOutput(
            answer=answer,
            missing="MNN's summary between lines of # is missing from the output: the program "
            "ended too early, or is not llm_demo with a prompt file.",
        )
    if len(summaries) > 1:
        note = (
            f"The output contains {len(summaries)} summaries, so none was used; to compare them, "
            "pass the file stdout to armload compare."
        )
        return EngineOutput(answer=answer, notes=(note,))
    (one,) = summaries
    return EngineOutput(
        answer=answer,
        prefill_tokens=one.count("prompt tokens num"),
        prefill_s=one.positive("prefill time"),
        prefill_tps=one.positive("prefill speed"),
        decode_tokens=one.count("decode tokens num"),
        decode_s=one.positive("decode time"),
        decode_tps=one.positive("decode speed"),
    )


def _answer(text: str, end: int) -> tuple[int, int]:
    """Return where the answer begins and ends, in an output whose summary begins at ``end``."""
    before = _LAST_BEFORE_ANSWER.search(text, 0, end) or _BEFORE_ANSWER.match(text, 0, end)
    begin = before.end() if before else 0
    if before and before.groupdict().get("wheel"):
        after = text.rfind(_WHEEL_AFTER_ANSWER, begin, end)
        if after >= 0:
            return begin, after
    # The ruler begins on a line of its own.
    return begin, end - 1 if end > begin and text[end - 1] == "\n" else end


def _llm_bench(stdout: bytes) -> EngineOutput:
    content = _document(stdout.decode("utf-8", "replace"))
    if content is None:
        return EngineOutput(
            missing="The output contains no JSON of llm_bench: run it with -j and without -fp."
        )
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
