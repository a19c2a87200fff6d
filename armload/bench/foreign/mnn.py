"""What MNN's programs print: ``llm_demo`` (formerly ``cli_demo``) and ``llm_bench -j``.

Formats as in transformers/llm/engine of MNN's repository.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from armload.bench.figures import Figures, Way, Work
from armload.core.errors import DataError

_LINE = re.compile(
    r"^\s*(prompt tokens num|decode tokens num|prefill speed|decode speed)"
    r"\s*=\s*([0-9]+(?:\.[0-9]+)?|inf|-?nan)\b",
    re.MULTILINE,
)
_RULER = re.compile(r"^#{20,}\s*$", re.MULTILINE)

_Speed = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Result(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    type: Literal["prefill", "decode", "prefill_and_decode"]
    prompt_len: Annotated[int, Field(ge=0)] = 0
    generate_len: Annotated[int, Field(ge=0)] = 0
    tps: _Speed | None = None
    prefill_tps: _Speed | None = None
    decode_tps: _Speed | None = None


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str
    backend: str = "CPU"
    threads: int | None = None
    precision: str | int | None = None
    memory: str | int | None = None
    results: tuple[_Result, ...]


def llm_demo_figures(path: Path, text: str) -> list[Figures]:
    """Return a measurement for each summary between rulers of ``#``.

    MNN rounds times to 10 ms, so a speed is taken as printed, not computed again.

    Raises:
        DataError: a summary lacks its speeds.
    """
    found: list[Figures] = []
    rulers = [match.start() for match in _RULER.finditer(text)]
    for start, end in pairwise(rulers):
        values = dict(_LINE.findall(text[start:end]))
        if not values:
            continue
        speeds = {name: values.get(f"{name} speed", "") for name in ("prefill", "decode")}
        if "" in speeds.values():
            missing = next(name for name, value in speeds.items() if not value)
            raise DataError(
                f"{path}: a summary of MNN lacks its line '{missing} speed'.",
                "Give the whole output of llm_demo.",
            )
        prefill, decode = (_speed(speeds[name]) for name in ("prefill", "decode"))
        if prefill is None and decode is None:
            continue
        found.append(
            Figures(
                name=f"{path.name}: summary {len(found) + 1}",
                work=Work(
                    prompt_tokens=_count(values.get("prompt tokens num")),
                    output_tokens=_count(values.get("decode tokens num")),
                ),
                way=Way(engine="MNN llm_demo"),
                prefill_tps=prefill,
                decode_tps=decode,
            )
        )
    return found


def llm_bench_figures(path: Path, content: object) -> list[Figures]:
    """Return a measurement for each result; MNN gives means only, no repetition's own time.

    A ``prefill_and_decode`` result that has but one speed for both is left out.

    Raises:
        DataError: a field is missing or makes no sense.
    """
    try:
        document = _Document.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"{path}: {where}: {first['msg']}.", "armload reads what MNN's llm_bench -j writes."
        ) from error
    found = []
    for number, result in enumerate(document.results):
        prefill = result.prefill_tps or (result.tps if result.type == "prefill" else None)
        decode = result.decode_tps or (result.tps if result.type == "decode" else None)
        if prefill is None and decode is None:
            continue
        options = {"precision": document.precision, "memory": document.memory}
        found.append(
            Figures(
                name=f"{path.name}: result {number}",
                work=Work(
                    model=PurePosixPath(document.model.replace("\\", "/")).name,
                    prompt_tokens=result.prompt_len or None,
                    output_tokens=result.generate_len or None,
                ),
                way=Way(
                    engine=f"MNN llm_bench ({document.backend})",
                    threads=document.threads,
                    options=" ".join(
                        f"{key} {value}" for key, value in options.items() if value is not None
                    ),
                ),
                prefill_tps=prefill,
                decode_tps=decode,
            )
        )
    return found


def _speed(text: str) -> float | None:
    number = float(text)
    return number if 0 < number < float("inf") else None


def _count(text: str | None) -> int | None:
    return int(float(text)) if text and text[0].isdigit() else None
