"""What MNN's programs print: ``llm_demo`` (formerly ``cli_demo``) and ``llm_bench -j``.

Formats as in transformers/llm/engine of MNN's repository.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from armload.core.errors import DataError
from armload.core.validation_messages import explain_mistake
from armload.core.values import Value
from armload.engines.measurement import Measurement, Method, Work

_LINE = re.compile(
    r"^\s*(prompt tokens num|decode tokens num|(?:prefill|decode) (?:time|speed))"
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


class DemoSummary(Value):
    """What ``llm_demo`` prints between two rulers.

    Attributes:
        begin: where in the text its first ruler stands.
        values: the lines that are known, as printed.
    """

    begin: int
    values: Mapping[str, str]

    def count(self, name: str) -> int | None:
        """Return a number of tokens; none where it was not printed."""
        text = self.values.get(name, "")
        return int(float(text)) if text[:1].isdigit() else None

    def positive(self, name: str) -> float | None:
        """Return a time or a speed; none where it is nothing or was not printed."""
        number = float(self.values.get(name, "nan"))
        return number if 0 < number < math.inf else None


def llm_demo_summaries(text: str) -> list[DemoSummary]:
    """Return each summary between rulers of ``#`` in what ``llm_demo`` printed."""
    rulers = [match.start() for match in _RULER.finditer(text)]
    found = []
    for start, end in pairwise(rulers):
        values = dict(_LINE.findall(text[start:end]))
        if values:
            found.append(DemoSummary(begin=start, values=values))
    return found


def llm_demo_figures(path: Path, text: str) -> list[Measurement]:
    """Return a measurement for each summary between rulers of ``#``.

    MNN rounds times to 10 ms, so a speed is taken as printed, not computed again.
    """
    found: list[Measurement] = []
    for summary in llm_demo_summaries(text):
        speeds = ("prefill", "decode")
        missing = next((name for name in speeds if f"{name} speed" not in summary.values), None)
        if missing is not None:
            raise DataError(
                f"{path}: the line '{missing} speed' is missing from MNN's summary.",
                "Use llm_demo's complete output.",
            )
        prefill, decode = (summary.positive(f"{name} speed") for name in speeds)
        if prefill is None and decode is None:
            continue
        found.append(
            Measurement(
                name=f"{path.name}: summary {len(found) + 1}",
                work=Work(
                    prompt_tokens=summary.count("prompt tokens num"),
                    output_tokens=summary.count("decode tokens num"),
                ),
                method=Method(engine="MNN llm_demo"),
                prefill_tps=prefill,
                decode_tps=decode,
            )
        )
    return found


def llm_bench_figures(path: Path, content: object) -> list[Measurement]:
    """Return a measurement for each result; MNN gives means only, no repetition's own time.

    A ``prefill_and_decode`` result that has but one speed for both is left out.

    Raises:
        DataError: a field is missing or makes no sense.
    """
    try:
        document = _Document.model_validate(content)
    except ValidationError as error:
        raise DataError(
            f"{path}: {explain_mistake(error, _Document)}.",
            "armload reads what MNN's llm_bench -j writes.",
        ) from error
    found = []
    for number, result in enumerate(document.results):
        prefill = result.prefill_tps or (result.tps if result.type == "prefill" else None)
        decode = result.decode_tps or (result.tps if result.type == "decode" else None)
        if prefill is None and decode is None:
            continue
        options = {"precision": document.precision, "memory": document.memory}
        found.append(
            Measurement(
                name=f"{path.name}: result {number}",
                work=Work(
                    model=PurePosixPath(document.model.replace("\\", "/")).name,
                    prompt_tokens=result.prompt_len or None,
                    output_tokens=result.generate_len or None,
                ),
                method=Method(
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
