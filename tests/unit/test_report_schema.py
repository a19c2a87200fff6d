"""The published schemas and the formats they describe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
import yaml

from armload.analysis.run import Run
from armload.analysis.verdict import FindingName
from armload.cli.verb import VERBS
from armload.engines.registry import ENGINES
from armload.engines.trace import Step
from armload.report.schema import DOCUMENTS, INPUTS, PLAN, RUN, SPACE, Schema
from armload.tuning.choices import SEARCHED
from armload.tuning.wanted import Objective
from tests.unit.runs import failed_run, quick_run, storage_run

FOLDER = Path(__file__).parents[2] / "docs" / "schema"
PUBLISHED = FOLDER / RUN.file_name
PUBLISHED_PLAN = FOLDER / PLAN.file_name
DOCUMENTED = Path(__file__).parents[2] / "docs" / "json.md"


@pytest.mark.parametrize("schema", [*INPUTS, *DOCUMENTS], ids=lambda schema: schema.name)
def test_each_published_schema_is_current(schema: Schema) -> None:
    assert (FOLDER / schema.file_name).read_text(encoding="utf-8") == schema.text(), (
        "the format changed: python docs/regenerate.py, "
        "or a new format number when former files no longer fit"
    )


def test_the_reference_of_a_run_names_every_field_finding_and_engine() -> None:
    page = (FOLDER.parent / "results.md").read_text(encoding="utf-8")
    named = {name.partition(".")[0] for name in re.findall(r"`([^`\n]+)`", page)}
    fields = {*Run.model_fields, *Step.model_fields}
    engines = {engine.name for engine in ENGINES}
    assert {*fields, *get_args(FindingName), *engines} <= named


@pytest.mark.parametrize("run", [quick_run(), storage_run(), failed_run()], ids=lambda run: run.id)
def test_every_run_fits_the_published_schema(run: Run) -> None:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(run.model_dump_json()))


def test_a_run_without_its_figures_does_not_fit() -> None:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    content = json.loads(quick_run().model_dump_json())
    del content["summary"]["decode_tps"]
    with pytest.raises(jsonschema.ValidationError, match="decode_tps"):
        jsonschema.Draft202012Validator(schema).validate(content)


def test_every_schema_is_published_and_documented_and_no_other() -> None:
    names = {each.file_name for each in (*INPUTS, *DOCUMENTS)}
    assert {path.name for path in FOLDER.iterdir()} == names
    lines = DOCUMENTED.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and "(schema/" in line]
    told = {
        (verb, name)
        for row in rows
        for name in re.findall(r"\(schema/([a-z0-9-]+\.json)\)", row)
        for verb in re.findall(r"`([a-z.]+)", row.split("|")[1])
    }
    assert told == {(verb, each.file_name) for each in DOCUMENTS for verb in each.verbs}


def test_every_verb_with_json_has_a_schema() -> None:
    having = {name for name, verb in VERBS.items() if "as_json" in verb.options.model_fields}
    assert {verb for each in DOCUMENTS for verb in each.verbs} == having


@pytest.mark.parametrize(
    ("content", "fits"),
    [
        ({"threads": 2}, True),
        ({"threads": [1, 2], "model": ["a.gguf", "b.gguf"], "repeats": 5}, True),
        ({"threads": "two"}, False),
        ({"thread": 2}, False),
    ],
)
def test_a_plan_file_fits_when_it_is_one(content: dict[str, object], *, fits: bool) -> None:
    schema = json.loads(PUBLISHED_PLAN.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(content) == fits


@pytest.mark.parametrize("objective", SEARCHED)
def test_a_search_space_may_list_what_is_searched_for_each_objective(objective: Objective) -> None:
    schema = json.loads((FOLDER / SPACE.file_name).read_text(encoding="utf-8"))
    assert set(SEARCHED[objective]) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("threads: [2, 4]\ncpus: [4-7, 0-7]\nkv_type: f16\n", ""),
        ("threads: [two]\n", "is not valid"),
        ("threads: []\n", "is not valid"),
        ("model: [a.gguf]\n", "'model' was unexpected"),
    ],
)
def test_an_editor_marks_what_a_search_space_cannot_hold(text: str, wrong: str) -> None:
    schema = json.loads((FOLDER / SPACE.file_name).read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    said = [each.message for each in validator.iter_errors(yaml.safe_load(text))]
    assert bool(said) == bool(wrong)
    assert all(wrong in each for each in said)
