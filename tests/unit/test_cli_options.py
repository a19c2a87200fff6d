"""An option is declared once, and found wherever a person meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest

from armload.bench.options import Options, _listed_options, read_options
from armload.cli import generated
from armload.cli.help import grouped, shown
from armload.cli.options import OutputOptions
from armload.cli.verb import VERBS, Verb
from armload.core.errors import DataError, UsageError
from armload.core.options import Duration, Names, Option, OptionGroup, Share, declared_options
from armload.core.yamlfile import load_file
from armload.engines.plan import Plan
from tests.command_line import ROOT

HELP = "draw each token this many times"


class LargerPlan(Plan):
    """A plan with one more field."""

    draws: Annotated[int, Option(HELP, "N", several="commas", heading="Plan")] = 1


def test_a_field_of_a_plan_is_an_option_of_help_plan_file_schema_and_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _listed_options(LargerPlan)
    (declared,) = (each for each in declared_options(model) if each.name == "draws")
    assert shown(declared) == "    --draws N"
    assert declared.help == f"{HELP}; several: a,b [default: 1]"
    assert declared in grouped(list(declared_options(model)))["Plan"]
    assert model.typed({"draws": "1,2"}) == model.model_validate({"draws": (1, 2)})
    with pytest.raises(UsageError, match="--draws: must be a whole number, but is 'many'"):
        model.typed({"draws": "many"})
    (tmp_path / "plan.yaml").write_text("draws: 3\n")
    assert load_file(tmp_path / "plan.yaml", model) == model.model_validate({"draws": (3,)})
    with pytest.raises(DataError, match="draws"):
        read_options(tmp_path / "plan.yaml")
    assert HELP.capitalize() in json.dumps(model.model_json_schema())

    def body(options: OptionGroup) -> None:
        """Run it. Example: armload bench --draws 2."""

    monkeypatch.setattr(generated, "VERBS", {"bench": Verb(body, model)})
    assert f"| `--draws N` | {HELP}; several: a,b | 1 |" in generated._section("bench")


def test_the_page_of_options_is_that_of_the_program() -> None:
    assert (ROOT / "docs" / "options.md").read_text() == generated.page(), (
        "make it anew: python docs/regenerate.py"
    )


def test_every_option_of_a_plan_is_one_of_bench_and_of_plan_files() -> None:
    of_plan = {each.name for each in declared_options(Plan)}
    assert of_plan <= {each.name for each in declared_options(Options)}
    assert {"threads", "n-predict", "resident", "time-limit"} <= of_plan


class Words(OutputOptions):
    """Options of each kind."""

    names: Annotated[Names, Option("some", several="commas")] = ()
    files: Annotated[Names, Option("some", several="files")] = ()
    texts: Annotated[Names, Option("some", several="repeat")] = ()
    time: Annotated[Duration | None, Option("how long")] = None
    share: Annotated[Share, Option("how much")] = 0.05


def test_values_are_read_as_their_option_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").touch()
    words = Words.typed(
        {"names": "a,b", "files": "a,b", "texts": ["a,b", "c"], "time": "2m", "share": "7%"}
    )
    assert (words.names, words.files, words.texts) == (("a", "b"), ("a,b",), ("a,b", "c"))
    assert (words.time, words.share) == (120.0, 0.07)
    assert Words.typed({"files": "a,c"}).files == ("a", "c")
    assert Words.typed({}).given(Words.model_fields) == []
    assert words.given(("time", "share", "as_json")) == ["--time", "--share"]
    part = words.part(OutputOptions)
    assert (part, part.model_fields_set) == (OutputOptions(), set())


@pytest.mark.parametrize("text", ["0%", "100%", "-5", "half", "nan", "1e999"])
def test_a_percentage_lies_between_none_and_all(text: str) -> None:
    with pytest.raises(UsageError, match="--share: must be a percentage above 0 and below 100"):
        Words.typed({"share": text})


@pytest.mark.parametrize("name", VERBS)
def test_a_value_is_shown_as_it_is_typed_and_a_placeholder_in_capitals(name: str) -> None:
    for option in declared_options(VERBS[name].options):
        words = option.value.split("|")
        typed_words = {each for each in words if each.islower()}
        if len(words) > 1:
            assert all(each.isupper() for each in words if each not in typed_words), option.name
        if len(words) > 1 and (known := _literals(option.info.annotation)):
            assert typed_words == known, option.name


def _literals(annotation: Any) -> set[str]:
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return set(parts)
    return set().union(*map(_literals, parts)) if parts else set()
