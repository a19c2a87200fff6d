"""The most memory that a program takes is what was forecast, whatever the model's layers are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from armload.analysis.run import Run
from tests.other_models import WRITERS
from tests.person import Person
from tests.system.people import MODELS

pytestmark = [
    pytest.mark.build,
    pytest.mark.machine,
    pytest.mark.exhaustive(
        covers=[
            "armload/engines/footprint.py",
            "armload/models/context_memory.py",
            "armload/runs/footprint.py",
            "tests/other_models.py",
            "toolchains/native/armload_footprint.cpp",
            "toolchains/sources/llama-cpp.yaml",
        ]
    ),
]

WITHIN = 0.03


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    person.add_board("mine", "extends: single-core\nreach: {memory: 1536 MiB}\n")
    yield person
    person.types("board.down", "--board", "mine", "--yes")


@pytest.mark.parametrize("kind", WRITERS)
def test_the_peak_is_within_three_percent_of_the_forecast(
    ann: Person, tmp_path: Path, kind: str
) -> None:
    model = tmp_path / f"{kind}.gguf"
    WRITERS[kind](model)
    words = ("--prompt", "one two three four five six", "-n", "3", "--context", "2048")
    run = Run.model_validate(ann.benches("--model", str(model), *words))
    ann.on_board(f"rm -r {MODELS}/*")
    model.unlink()
    assert run.prediction is not None
    said = run.prediction.memory
    assert said is not None
    assert said.is_exact
    assert run.memory is not None
    forecast_bytes = said.weights_bytes + said.kv_bytes + said.program_bytes
    difference = forecast_bytes / run.memory.max_rss_bytes - 1
    assert abs(difference) < WITHIN, (
        f"{kind}: {forecast_bytes / 1e6:.1f} MB forecast, "
        f"{run.memory.max_rss_bytes / 1e6:.1f} MB taken"
    )
