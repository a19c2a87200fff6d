"""Reading a file of results that another benchmark wrote, whichever it was.

Fields as written by tools/llama-bench/llama-bench.cpp (struct test).
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from armload.core.bounds import read_bounded
from armload.core.errors import DataError
from armload.core.validation_messages import explain_mistake
from armload.core.values import load_json
from armload.core.workspace import data_names
from armload.engines.measurement import Measurement, Method, Work
from armload.engines.watched.mnn import llm_bench_figures
from armload.engines.watched.output import figures_of_output, reports
from armload.engines.watched.reader import READERS, load_reader

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Test(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    model_filename: str
    n_prompt: Annotated[int, Field(ge=0)]
    n_gen: Annotated[int, Field(ge=0)]
    avg_ts: _Positive
    samples_ns: tuple[Annotated[int, Field(gt=0)], ...] = ()
    build_commit: str = "unknown"
    build_number: int = 0
    n_threads: int | None = None
    n_depth: Annotated[int, Field(ge=0)] = 0
    n_batch: int | None = None
    n_ubatch: int | None = None
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: int | bool | None = None
    load_mode: str | None = None
    repack: bool | None = None


_TESTS = TypeAdapter(tuple[_Test, ...])


def llama_bench_figures(path: Path, content: object) -> list[Measurement]:
    """Return one measurement for each repetition of each test.

    A ``pp`` test fills prefill, a ``tg`` test decode. A ``pg`` test, which times both in one,
    fills neither and is left out.
    """
    try:
        tests = _TESTS.validate_python(content if isinstance(content, list) else [content])
    except ValidationError as error:
        raise DataError(
            f"{path}: {explain_mistake(error, _Test)}.",
            "armload reads what llama-bench -o json writes.",
        ) from error
    found = []
    for number, test in enumerate(tests):
        if (test.n_prompt > 0) == (test.n_gen > 0):
            continue
        tokens = test.n_prompt or test.n_gen
        rates = [tokens / (ns / 1e9) for ns in test.samples_ns] or [test.avg_ts]
        for repeat, rate in enumerate(rates):
            found.append(_one(path, test, f"test {number}, repetition {repeat + 1}", rate))
    return found


def _one(path: Path, test: _Test, which: str, rate: float) -> Measurement:
    options = {
        "-b": test.n_batch,
        "-ub": test.n_ubatch,
        "-fa": None if test.flash_attn is None else int(test.flash_attn),
        "--load-mode": test.load_mode,
    }
    return Measurement(
        name=f"{path.name}: {which}",
        work=Work(
            model=PurePosixPath(test.model_filename.replace("\\", "/")).name,
            prompt_tokens=test.n_prompt or None,
            output_tokens=test.n_gen or None,
            depth_tokens=test.n_depth,
            kv_type=f"{test.type_k}/{test.type_v}",
        ),
        method=Method(
            engine=f"llama-bench {test.build_commit} ({test.build_number})",
            threads=test.n_threads,
            repacked=test.repack,
            options=" ".join(
                f"{key} {value}" for key, value in options.items() if value is not None
            ),
        ),
        prefill_tps=rate if test.n_prompt else None,
        decode_tps=rate if test.n_gen else None,
    )


LARGEST_BYTES = 64 << 20


def read_benchmark_file(path: Path) -> list[Measurement]:
    """Read what a benchmark wrote.

    It may be ``llama-bench -o json`` (or ``jsonl``), MNN's ``llm_bench -j``, or the output of a
    program that a reader describes.
    """
    written = read_bounded(path, LARGEST_BYTES, "Check the file name.")
    text = written.decode("utf-8", "replace")
    content = _json(path, text)
    if content is None:
        found = _by_reader(path, written)
    elif isinstance(content, dict) and "results" in content:
        found = llm_bench_figures(path, content)
    else:
        found = llama_bench_figures(path, content)
    if not found:
        raise DataError(
            f"{path}: this file contains no results that armload can read.",
            "Supported: llama-bench -o json, MNN's llm_bench -j, and the output of programs that "
            "have a reader, such as MNN's llm_demo.",
        )
    return found


def _by_reader(path: Path, output: bytes) -> list[Measurement]:
    """Return what the reader finds that finds the most lines of its own."""
    found = [
        (len(reader.lines) - min(len(each.lacking) for each in seen), reader)
        for name in data_names(READERS)
        if (seen := reports(reader := load_reader(name), output))
    ]
    best = max(found, key=lambda each: each[0], default=None)
    return figures_of_output(path, best[1], output) if best and best[0] else []


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
                "Wait until the benchmark has ended; until then, its output is incomplete.",
            ) from error
