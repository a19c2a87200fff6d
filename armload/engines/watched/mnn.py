"""What MNN's ``llm_bench -j`` prints, as in transformers/llm/engine of MNN's repository."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from armload.core.errors import DataError
from armload.core.validation_messages import explain_mistake
from armload.engines.measurement import Measurement, Method, Work

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
