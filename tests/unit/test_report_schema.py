"""The published schemas and the formats they describe."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from armload.bench.run import FORMAT, Run
from armload.report.schema import PLAN_FORMAT, plan_schema, run_schema
from tests.unit.runs import failed_run, quick_run, storage_run

FOLDER = Path(__file__).parents[2] / "docs" / "schema"
PUBLISHED = FOLDER / f"run-{FORMAT}.json"
PUBLISHED_PLAN = FOLDER / f"plan-{PLAN_FORMAT}.json"


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == run_schema(), (
        f"the format changed: python -m armload.report.schema {FOLDER}, "
        "or a new format number when former files no longer fit"
    )


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


def test_a_run_of_the_same_format_that_was_kept_before_a_field_was_added_is_read() -> None:
    content = json.loads(failed_run().model_dump_json())
    del content["exit"]["kind"], content["asked_for"]
    assert Run.model_validate(content).exit.kind is None


def test_the_published_schema_of_plan_files_is_current() -> None:
    assert PUBLISHED_PLAN.read_text(encoding="utf-8") == plan_schema()


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
