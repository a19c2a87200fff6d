"""Reading a file of results that another benchmark wrote, whichever it was."""

from __future__ import annotations

from pathlib import Path

from armload.analysis.llama_bench import llama_bench_figures
from armload.core.disk import unreadable
from armload.core.errors import DataError
from armload.core.values import load_json
from armload.engines.measurement import Measurement
from armload.engines.watched.mnn import llm_bench_figures, llm_demo_figures

LARGEST_BYTES = 64 << 20


def read_benchmark_file(path: Path) -> list[Measurement]:
    """Read what a benchmark wrote.

    It may be ``llama-bench -o json`` (or ``jsonl``), MNN's ``llm_bench -j``, or MNN's ``llm_demo``
    (formerly ``cli_demo``).

    Raises:
        DataError: it is none of them, or is truncated.
        DiskError: it cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise DataError(
                f"{path}: this file is too large for a benchmark's output.", "Check the file name."
            )
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise unreadable(path, error) from error
    content = _json(path, text)
    if content is None:
        found = llm_demo_figures(path, text)
    elif isinstance(content, dict) and "results" in content:
        found = llm_bench_figures(path, content)
    else:
        found = llama_bench_figures(path, content)
    if not found:
        raise DataError(
            f"{path}: this file contains no results that armload can read.",
            "Supported: llama-bench -o json, MNN's llm_bench -j, and the output of MNN's llm_demo.",
        )
    return found


def _json(path: Path, text: str) -> object:
    start = text.lstrip()[:1]
    if start not in ("[", "{"):
        return None
    try:
        content: object = load_json(text)
        return content
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:  # jsonl: one object on each line, of which the last may be cut with its program
            return [load_json(line) for line in lines]
        except ValueError:
            raise DataError(
                f"{path}: this JSON document is incomplete or malformed: {error}.",
                "Wait until the benchmark has ended; its output is incomplete before.",
            ) from error
