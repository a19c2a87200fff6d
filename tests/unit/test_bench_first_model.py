"""Which model ``init`` proposes for a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.fitted import FittedModel
from armload.bench.fitting import first_models, fit, fit_hardware, proposed
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.find import header_of, published, resolve
from armload.models.outline import listed_models
from armload.models.published import PUBLISHED
from armload.runs.request import Request


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def offered(board: str) -> tuple[FittedModel, ...]:
    return first_models(Request(board=board), Plan(), Silent())


def offered_on(hardware: str) -> list[str]:
    (found,) = fit_hardware(Request(board="virtual"), [hardware], (), Plan(), Silent()).boards
    return [each.model for each in proposed(found)]


def test_every_published_model_is_one_that_fit_lists() -> None:
    listed = {name for name, _, _ in listed_models()}
    for name, (_, file_types) in PUBLISHED.items():
        assert {f"{name}:{each}" for each in file_types} <= listed


def test_a_model_that_fit_lists_is_called_by_that_name(tmp_path: Path) -> None:
    assert published("smollm2-135m:q4_1") == "smollm2"
    assert published("qwen2.5-0.5b:q4_0") == "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_0"
    assert header_of("qwen2.5-0.5b:Q4_0", Silent()) == header_of("like:qwen2.5-0.5b:Q4_0", Silent())
    with pytest.raises(UsageError, match="does not know where to download") as found:
        resolve("qwen2.5-7b:Q4_0", Silent())
    assert "like:qwen2.5-7b:Q4_0" in found.value.remedy
    with pytest.raises(UsageError, match="where to download") as found:
        resolve("gemma-3-1b:Q4_0", Silent())
    assert "Q4_K_M, Q8_0" in found.value.remedy
    assert "like:" not in found.value.remedy, "of which none can be made"
    (tmp_path / "qwen2.5-7b:Q4_0").write_bytes(b"")
    assert resolve("qwen2.5-7b:Q4_0", Silent()) == Path("qwen2.5-7b:Q4_0")


def test_what_fits_is_proposed_the_fastest_first() -> None:
    small, large = offered_on("raspberry-pi-4-1gb"), offered_on("raspberry-pi-5-8gb")
    assert small[0] == "qwen2.5-0.5b:Q4_0"
    assert set(small) < set(large)
    assert "qwen3-4b:Q4_K_M" in large
    assert not [name for name in large if name.startswith("smollm2")]


def test_a_model_is_proposed_with_the_times_that_fit_predicts_from_the_measured_memory() -> None:
    Path("boards").mkdir()
    Path("boards/here.yaml").write_text("extends: this-machine\n", encoding="utf-8")
    found = offered("here")
    listed = {each.model: each for each in fit(Request(board="here"), (), Plan(), Silent()).models}
    assert found
    for each in found:
        assert each.prediction.token_s is not None
        assert each.prediction.token_s == listed[each.model].prediction.token_s


def test_nothing_is_proposed_for_an_emulated_board() -> None:
    assert offered("virtual") == ()
