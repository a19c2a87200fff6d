"""What fit shows in a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from armload.analysis.fitted import fitted, recommendation
from armload.analysis.prediction_notes import note
from armload.bench.fitting import BoardsFit, Fit
from armload.models.model import Model
from armload.report import fitted as module
from armload.report.fitted import boards_view, fit_view, listing_view
from tests.unit.samples import model
from tests.unit.test_analysis_prediction import computing, need, predicted, resources


def _of_size(size_bytes: int) -> Model:
    mixture = {"parameters": 30_500_000_000, "active_parameters": 3_040_000_000}
    return model().model_copy(update={"size_bytes": size_bytes} | mixture)


def three_models() -> Fit:
    found = {
        "like:llama-3.1-8b:Q2_K": predicted(need(), resources(), computing(1.9), may_stream=True),
        "small.gguf": predicted(need((400_000_000, 390_000_000)), resources(), computing(0.4)),
        "large.gguf": predicted(need(kv_bytes=4_000_000_000), resources(), None),
    }
    models = tuple(
        fitted(name, "dayu200", _of_size(each.memory.weights_bytes if each.memory else 0), each)
        for name, each in found.items()
    )
    return Fit(
        board="dayu200",
        prompt_tokens=128,
        models=models,
        recommendation=recommendation("dayu200", models),
    )


def printed(view: RenderableType) -> str:
    console = Console(file=StringIO(), width=100)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_one_board_of_the_catalogue_is_shown_as_one_at_hand() -> None:
    one = three_models()
    found = BoardsFit(boards=(one,), recommendation=one.recommendation)
    assert printed(boards_view(found)) == printed(fit_view(one))


def test_the_listing_shows_memory_times_and_active_parameters_in_100_columns() -> None:
    fit = three_models()
    longest = "nemotron-3-nano-30b-a3b:Q4_K_M"
    models = (fit.models[0].model_copy(update={"model": longest}), *fit.models[1:])
    text = printed(listing_view(fit.model_copy(update={"models": models})))
    assert max(len(line) for line in text.splitlines()) <= 100
    row = next(line for line in text.splitlines() if "nemotron" in line)
    assert row.split()[0] == longest
    assert "30.5 B (3.04 B)" in row
    assert "streams" in row
    assert "3.3 GB" in row  # weights, KV cache and program
    assert "Recommended: small" in text


def test_the_listing_says_from_where_armload_gets_a_model() -> None:
    fit = three_models()
    longest = "nemotron-3-nano-30b-a3b:Q4_K_M"
    unknown = fit.models[0].model_copy(update={"model": longest, "has_file": False})
    models = (unknown, *fit.models[1:])
    text = printed(listing_view(fit.model_copy(update={"models": models})))
    assert max(len(line) for line in text.splitlines()) <= 100
    ends = {line.split()[0]: line.split()[-1] for line in text.splitlines() if "B (" in line}
    assert ends == {longest: "-", "small.gguf": "hub"}
    assert "Not listed: 1 model that cannot run on dayu200" in text
    assert "hub" not in printed(listing_view(fit)).partition("Memory covers")[0]


def test_of_each_size_the_fastest_is_listed_also_of_those_with_a_file() -> None:
    fit = three_models()
    sizes = {"tiny:Q4_0": 1, "tiny:Q8_0": 1, "small:Q4_0": 3, "hub:Q4_0": 2, "large:Q4_0": 4}
    models = tuple(
        fit.models[0].model_copy(
            update={"model": name, "parameters": size, "has_file": name.startswith("hub")}
        )
        for name, size in sizes.items()
    )
    every = fit.model_copy(update={"models": models})
    text = " ".join(printed(listing_view(every)).split())
    assert [name for name in sizes if name in text.partition("Memory covers")[0]] == [
        *("tiny:Q4_0", "small:Q4_0", "hub:Q4_0", "large:Q4_0")
    ]
    assert "Not listed: 1 model for which a larger one is at least as fast;" in text
    whole = printed(listing_view(every, lists_all=True))
    assert "tiny:Q8_0" in whole
    assert "--all" not in whole


def test_per_layer_embeddings_are_noted_once_for_all_models_and_types() -> None:
    fit, models = three_models(), []
    for name, size_bytes in {"a:Q4_0": 10**9, "a:Q8_0": 2 * 10**9, "b:Q8_0": 3 * 10**9}.items():
        of_rows = need((8 * 10**9, 10**9)).model_copy(update={"row_table_bytes": size_bytes})
        found = predicted(of_rows, resources(), computing(1.9))
        family = name.partition(":")[0]
        models.append(fitted(name, "dayu200", _of_size(8 * 10**9), found, family=family))
    every = fit.model_copy(update={"models": models})
    text = " ".join(printed(listing_view(every, lists_all=True)).split())
    assert text.count("per-layer embeddings") == 1
    assert "reads only one row: 1.0 GB to 2.0 GB of a, 3.0 GB of b." in text


def test_the_level_of_a_range_is_said_where_a_range_is_shown() -> None:
    fit = three_models()
    estimated = note("estimated from facts")
    models = tuple(
        each.model_copy(
            update={"prediction": each.prediction.model_copy(update={"notes": (estimated,)})}
        )
        for each in fit.models
    )
    fit = fit.model_copy(update={"models": models})
    for view, has_ranges in ((listing_view(fit), False), (fit_view(fit), True)):
        text = " ".join(printed(view).split())
        assert text.count("estimated from its cores and memory.") == 1
        assert ("80% interval" in text) == has_ranges
        assert ("–" in text) == has_ranges


def test_without_times_only_what_stays_in_memory_is_listed() -> None:
    fit = three_models()
    models = [
        each.model_copy(update={"prediction": each.prediction.model_copy(update={"token_s": None})})
        for each in fit.models
    ]
    text = printed(listing_view(fit.model_copy(update={"models": models})))
    assert [line.split()[0] for line in text.splitlines() if "B (" in line] == ["small.gguf"]
    assert "per token" not in text.partition("Memory covers")[0]
    assert "Not listed: 2 models too large for its memory" in text
    assert "the models that need the least memory come first" in " ".join(text.split())
    assert "come first" not in printed(listing_view(fit))


def test_the_listing_says_which_model_needs_no_hub() -> None:
    fit, (one, two, refused) = three_models(), three_models().models
    models = (
        one.model_copy(update={"model": "smollm2-135m:Q4_1", "family": "smollm2-135m"}),
        two.model_copy(update={"model": "qwen2.5-0.5b:Q4_0", "family": "qwen2.5-0.5b"}),
        refused.model_copy(update={"model": "qwen3-4b:Q8_0", "family": "qwen3-4b"}),
    )
    text = " ".join(printed(listing_view(fit.model_copy(update={"models": models}))).split())
    assert "Available from the Hugging Face Hub: qwen2.5-0.5b. smollm2-135m:Q4_1 is smollm2" in text
    assert "word-problems:Q8_0 comes with armload" in text
    assert "like:NAME:TYPE" in text


def test_below_the_table_stands_the_command_that_runs_the_recommended_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit = three_models()
    commands = ("", "armload bench --board b --model one:Q4_0", "")
    models = tuple(
        each.model_copy(update={"command": command, "family": "one"})
        for each, command in zip(fit.models, commands, strict=True)
    )
    monkeypatch.setattr(module, "program_name", lambda: "bin/armload")
    text = printed(listing_view(fit.model_copy(update={"models": models})))
    assert "Recommended: small.gguf" in text
    assert text.count("bin/armload bench --board b --model one:Q4_0") == 1
    assert "Available from the Hugging Face Hub: one." in text
    assert "bench" not in printed(listing_view(fit))
