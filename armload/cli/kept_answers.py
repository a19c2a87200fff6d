"""The answers of an ``init`` that has not ended, for the next one in the same workspace."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import platformdirs

from armload.core.files import write_whole
from armload.core.options import OptionGroup
from armload.core.values import parse_json
from armload.core.workspace import workspace

_MOST_BYTES = 1 << 16
_Options = TypeVar("_Options", bound=OptionGroup)


def _file() -> Path:
    folder = hashlib.sha256(str(workspace().resolve()).encode("utf-8", "replace")).hexdigest()
    return Path(platformdirs.user_state_dir("armload")) / "init" / f"{folder[:32]}.json"


def keep(answers: Mapping[str, object]) -> None:
    """Keep answers by their fields, where that is possible: not to is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        write_whole(_file(), json.dumps(answers, default=str).encode())


def forget() -> None:
    """Delete the answers that were kept, if any."""
    with contextlib.suppress(OSError):
        _file().unlink(missing_ok=True)


def kept(options: type[_Options]) -> _Options | None:
    """Return the answers that were kept, as options; none where there are none to be read."""
    try:
        with _file().open("rb") as file:
            return options.model_validate(parse_json(file.read(_MOST_BYTES)))
    except (OSError, ValueError, RecursionError):
        return None
