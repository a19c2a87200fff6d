"""The schemas that editors check YAML files with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from armload.report.input_schema import BOARD, SCHEMAS, InputSchema

ROOT = Path(__file__).parents[2]
EACH = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.noun)


def errors(schema: InputSchema, content: object) -> list[str]:
    return [each.message for each in Draft202012Validator(read(schema)).iter_errors(content)]


def read(schema: InputSchema) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(schema.text())
    return found


@EACH
def test_every_shipped_file_names_its_schema_and_satisfies_it(schema: InputSchema) -> None:
    folder = ROOT / schema.folder
    assert (folder / schema.file_name).read_text() == schema.text(), (
        "repeat: python docs/regenerate.py"
    )
    Draft202012Validator.check_schema(read(schema))
    files = sorted(folder.glob("*.yaml"))
    assert files
    for file in files:
        text = file.read_text()
        assert text.startswith(schema.comment), file
        assert errors(schema, yaml.safe_load(text)) == [], file


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ({"extends": "dayu200", "reahc": {}}, "'reahc' was unexpected"),
        ({"reach": {"kind": "telnet"}}, "is not valid"),
        ({"target": "rk3568"}, "'reach' is a required property"),
        ({"extends": "dayu200", "facts": {"memory": "2 gigs"}}, "is not valid"),
    ],
)
def test_what_armload_refuses_an_editor_marks(content: object, wrong: str) -> None:
    assert any(wrong in each for each in errors(BOARD, content))


def test_keys_have_their_explanations() -> None:
    schema = read(BOARD)
    assert "how to get there" in schema["properties"]["reach"]["description"]
    assert (
        "installed memory"
        in schema["$defs"]["DeclaredSpecs"]["properties"]["memory"]["description"]
    )
