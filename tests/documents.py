"""What ``--json`` prints, checked against the published schemas."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from armload.report.schema import DOCUMENTS, ERROR

SCHEMAS = Path(__file__).parents[1] / "docs" / "schema"


@cache
def validator(file_name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / file_name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def document_of(verb: str, text: str, *, status: int = 0) -> Any:
    """Return the one document that a verb printed, which fits a schema of its own."""
    content = json.loads(text)
    assert text == _as_documents_are_written(text), f"{verb} has a style of its own"
    if status and isinstance(content, dict) and "error" in content:
        validator(ERROR.file_name).validate(content)
        assert content["error"]["exit_status"] == status
        return content
    published = [validator(each.file_name) for each in DOCUMENTS if verb in each.verbs]
    assert published, f"{verb} has no schema"
    if not any(each.is_valid(content) for each in published):
        published[0].validate(content)
        raise AssertionError
    return content


def _as_documents_are_written(text: str) -> str:
    # Numbers stay as they are: Python writes some with other digits.
    content = json.loads(text, parse_float=lambda number: f"<number {number}>")
    written = json.dumps(content, indent=1, ensure_ascii=False)
    written = re.sub("[\ud800-\udfff]", lambda match: json.dumps(match[0])[1:-1], written)
    return re.sub(r'"<number (\S+)>"', r"\1", written) + "\n"
