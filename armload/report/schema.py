"""The published JSON schema of ``run.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from armload.bench.run import FORMAT, Run


def run_schema() -> str:
    """Return the schema of the current format as a JSON document."""
    schema = Run.model_json_schema(mode="serialization")
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"armload run.json, format {FORMAT}",
        **{key: value for key, value in schema.items() if key != "title"},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(run_schema(), encoding="utf-8")
