"""The published JSON schemas: of ``run.json``, and of the plan files that a person writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from armload.bench.run import FORMAT, Run
from armload.bench.wishes import Wishes

PLAN_FORMAT = 1


def run_schema() -> str:
    """Return the schema of a run's current format as a JSON document."""
    return _document(Run, "serialization", f"armload run.json, format {FORMAT}")


def plan_schema() -> str:
    """Return the schema of plan files as a JSON document."""
    return _document(Wishes, "validation", "armload plan file")


def _document(
    value: type[BaseModel], mode: Literal["validation", "serialization"], title: str
) -> str:
    schema = value.model_json_schema(mode=mode)
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **{key: value for key, value in schema.items() if key != "title"},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / f"run-{FORMAT}.json").write_text(run_schema(), encoding="utf-8")
    (folder / f"plan-{PLAN_FORMAT}.json").write_text(plan_schema(), encoding="utf-8")
