"""JSON schemas for the YAML files that people write, which editors complete and check with.

python -m armload.report.input_schema     writes those of the shipped files
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from armload.bench.suite import Suite
from armload.boards.board import Board
from armload.boards.hardware import Hardware
from armload.build.archive import Archive
from armload.build.target import Target
from armload.core.files import write_whole
from armload.engines.watched.reader import Reader
from armload.evaluation.task import Task
from armload.models.outline import Outline
from armload.models.shape import Shape

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class InputSchema:
    """The schema of a kind of YAML file, which lies beside them.

    Attributes:
        noun: what such a file describes; the name of the schema's file begins with it.
        folder: of the shipped files, in the repository.
        value: what a file is read into.
    """

    noun: str
    folder: str
    value: type[BaseModel]

    @property
    def kind(self) -> str:
        """The folder of a person's own files, in a workspace."""
        return self.folder.removeprefix("armload/data/")

    @property
    def file_name(self) -> str:
        return f"{self.noun}.schema.json"

    @property
    def comment(self) -> str:
        """The line that tells an editor of the schema, at the top of a file beside it."""
        return f"# yaml-language-server: $schema={self.file_name}\n"

    def text(self) -> str:
        """Return the schema as a JSON document."""
        models = {each.__name__: each for each in _models(self.value)}
        schema = self.value.model_json_schema()
        for name, part in ((self.value.__name__, schema), *schema.get("$defs", {}).items()):
            if name in models:
                _explain(part, models[name])
            if part is not schema:
                # Where a file extends another, the other has what is missing.
                part.pop("required", None)
        # A file's name is that of what it describes, and what it extends says the rest.
        schema["properties"].pop("name", None)
        required = [each for each in schema.pop("required", ()) if each != "name"]
        schema["properties"] = {
            "extends": {"type": "string", "description": "A file with the keys that are not here."},
            **schema["properties"],
        }
        content = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **schema,
            "title": f"armload: {self.noun}",
            "if": {"required": ["extends"]},
            "else": {"required": required},
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def write(self, folder: Path) -> None:
        """Write the schema into the folder of a person's own files.

        Raises:
            DiskError: it cannot be written.
        """
        write_whole(folder / self.file_name, self.text().encode())


BOARD = InputSchema(noun="board", folder="boards", value=Board)
SCHEMAS = (
    BOARD,
    InputSchema(noun="target", folder="toolchains", value=Target),
    InputSchema(noun="source", folder="toolchains/sources", value=Archive),
    InputSchema(noun="hardware", folder="armload/data/hardware", value=Hardware),
    InputSchema(noun="outline", folder="armload/data/outlines", value=Outline),
    InputSchema(noun="shape", folder="armload/data/shapes", value=Shape),
    InputSchema(noun="reader", folder="armload/data/readers", value=Reader),
    InputSchema(noun="suite", folder="armload/data/suites", value=Suite),
    InputSchema(noun="task", folder="armload/data/tasks", value=Task),
)


def _models(value: type[BaseModel]) -> Iterator[type[BaseModel]]:
    found = {value}
    waiting = [value]
    while waiting:
        model = waiting.pop()
        yield model
        for field in model.model_fields.values():
            for part in _parts(field.annotation):
                if part not in found:
                    found.add(part)
                    waiting.append(part)


def _parts(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in getattr(annotation, "__args__", ()):
        yield from _parts(each)
    if (inner := getattr(annotation, "__value__", None)) is not None:
        yield from _parts(inner)


def _explain(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Put what a docstring says of fields where an editor shows it."""
    text = inspect.getdoc(model) or ""
    about, _, rest = text.partition("Attributes:\n")
    schema["description"] = " ".join(about.split())
    rest = rest.partition("\n\n")[0]
    for names, words in re.findall(r"^ {4}([\w, ]+): ((?:.|\n {5,})*)", rest, re.MULTILINE):
        for name in names.split(", "):
            if name in schema.get("properties", {}):
                schema["properties"][name]["description"] = " ".join(words.split())


if __name__ == "__main__":
    for each in SCHEMAS:
        each.write(_ROOT / each.folder)
