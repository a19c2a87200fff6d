"""What every request of a load asks for, where it does not say otherwise itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, unreadable
from armload.core.values import Value, load_json
from armload.serving.answer_format import check_schema
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.request_file import check_extra
from armload.serving.workload import Workload


class RequestDefaults(Value):
    """For requests without these of their own.

    Attributes:
        json_schema: that an answer must fit; none for any text.
        schema_file: that it is from.
        extra_body: further keys of a request.
    """

    json_schema: dict[str, Any] | None = None
    schema_file: str = ""
    extra_body: dict[str, Any] = Field(default_factory=dict)

    def applied(self, request: CompletionRequest) -> CompletionRequest:
        """Return a request with these; what it says itself stays."""
        changed: dict[str, Any] = {"extra_body": {**self.extra_body, **request.extra_body}}
        if request.response_format is None and request.json_schema is None and not request.tools:
            changed["json_schema"] = self.json_schema
        return request.model_copy(update=changed)

    @property
    def described(self) -> str:
        """Name them after the requests that they are for; empty where there are none."""
        schema = f", answers that fit {self.schema_file}" if self.schema_file else ""
        return schema + (f", with {json.dumps(self.extra_body)}" if self.extra_body else "")


def read_defaults(schema: Path | None, extra: str) -> RequestDefaults:
    """Read what a person typed.

    Args:
        schema: the file of a JSON schema.
        extra: a JSON object.
    """
    content: object = {}
    if extra:
        try:
            content = load_json(extra)
        except ValueError as error:
            raise UsageError(
                f"--extra-body {extra!a:.100}: not JSON: {error}.",
                "Example: --extra-body '{\"top_p\": 0.9}'",
            ) from error
    return RequestDefaults(
        json_schema=None if schema is None else _schema_in(schema),
        schema_file="" if schema is None else str(schema),
        extra_body=check_extra("--extra-body", content, UsageError),
    )


def _schema_in(path: Path) -> dict[str, Any]:
    require_file(path, "file of a JSON schema", "Give another file with --json-schema.")
    try:
        content = load_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}.", "Give a JSON schema.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    return check_schema(str(path), content)


@dataclass(frozen=True, kw_only=True)
class WithDefaults:
    """A workload whose requests have these defaults."""

    work: Workload
    defaults: RequestDefaults

    @property
    def described(self) -> str:
        return f"{self.work.described}{self.defaults.described}"

    def request(self, number: int) -> CompletionRequest:
        return self.defaults.applied(self.work.request(number))
