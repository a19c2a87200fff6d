"""The forwarding rules that armload has made in hdc's server, which outlive a process of ours.

Each has a file in this user's state folder for as long as it is wanted, so that a later command
removes what a killed one has left.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from armload.boards.virtual.process import Started
from armload.core.files import write_whole
from armload.core.values import Value, as_json


class Rule(Value):
    """A local port of hdc's server that leads to one of a device.

    Attributes:
        key: of the device; none for the only one.
        local_port, port: of this machine, and of the device.
        process: that wants it.
    """

    key: str | None
    local_port: int
    port: int
    process: Started


def note(key: str | None, local_port: int, port: int) -> None:
    """Keep that this process wants a rule; where that cannot be written, it outlives a kill."""
    process = Started.of(os.getpid())
    if process is not None:
        rule = Rule(key=key, local_port=local_port, port=port, process=process)
        with contextlib.suppress(OSError):
            write_whole(_file(local_port), as_json(rule).encode())


def forget(local_port: int) -> None:
    """Drop the note of a rule that is not there any more."""
    with contextlib.suppress(OSError):
        _file(local_port).unlink(missing_ok=True)


def left_behind(key: str | None) -> list[Rule]:
    """Return the rules of a device whose processes have ended without removing them."""
    return [each for each in _noted() if each.key == key and each.process.is_gone()]


def _noted() -> list[Rule]:
    found = []
    for path in sorted(_folder().glob("*.json")):
        with contextlib.suppress(OSError, ValidationError):
            found.append(Rule.model_validate_json(path.read_bytes()))
    return found


def _folder() -> Path:
    return Path(platformdirs.user_state_dir("armload")) / "hdc-forwards"


def _file(local_port: int) -> Path:
    return _folder() / f"{local_port}.json"
