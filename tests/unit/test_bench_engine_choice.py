"""Which engine ``--engine auto`` takes, and why."""

from __future__ import annotations

import pytest

from armload.bench.engine_choice import faster_engine
from armload.engines.prediction import Alternative, Division, Expected, Prediction


def _predicted(
    llama_s: float | None,
    shared: Alternative,
    *,
    tensor_s: float | None = None,
    refused: str = "",
) -> Prediction:
    division = Division(refused=refused, tensor_s=_around(tensor_s), alternatives=(_ALONE, shared))
    return Prediction(
        verdict="cannot run" if refused else "fits",
        context_tokens=512,
        prompt_tokens=8,
        token_s=_around(llama_s),
        division=division,
    )


def _around(value: float | None) -> Expected | None:
    return None if value is None else Expected.within(value, 0.2)


_ALONE = Alternative(kind="alone, mapped", token_s=_around(0.01))


def _shared(token_s: float | None, refused: str = "") -> Alternative:
    return Alternative(kind="dllama", token_s=_around(token_s), refused=refused)


@pytest.mark.parametrize(
    ("found", "engine", "why"),
    [
        (_predicted(0.2, _shared(0.1)), "dllama", "100 ms"),
        (_predicted(0.1, _shared(0.2)), "llama.cpp", "200 ms"),
        (_predicted(0.3, _shared(0.2), tensor_s=0.1), "llama.cpp", "100 ms"),
        (_predicted(0.2, _shared(None)), "llama.cpp", "cannot be predicted"),
        (_predicted(None, _shared(0.1)), "llama.cpp", "cannot be predicted"),
        (_predicted(0.2, _shared(None, "it has biases.")), "llama.cpp", "it has biases"),
        (_predicted(None, _shared(0.1), refused="No room."), "dllama", "No room"),
    ],
)
def test_the_faster_engine_is_taken_and_what_is_unknown_runs_with_llama_cpp(
    found: Prediction, engine: str, why: str
) -> None:
    chosen, reason = faster_engine(found)
    assert chosen == engine
    assert why in reason
