"""The one JSON document that ``--json`` promises on standard output."""

from __future__ import annotations

import json
import re
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

_is_owed: ContextVar[bool] = ContextVar("_is_owed", default=False)


def promise_document(*, wanted: bool) -> None:
    """Say at a verb's start whether it owes a document."""
    _is_owed.set(wanted)


def is_document_owed() -> bool:
    """Say whether the verb promised a document and has not printed it yet."""
    return _is_owed.get()


def show_document(value: BaseModel) -> None:
    """Print a verb's document.

    Characters that standard output's encoding lacks are written as JSON's escapes.
    """
    from armload.core.values import as_json

    text = as_json(value)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], text)
    # Half a document is none, but two are worse: an interruption from here on prints no other.
    _is_owed.set(False)
    print(text, end="")
