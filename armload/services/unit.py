"""What an init system is told of a service: the facts, the files, and the mark in them.

The mark is one line of each file, or the end of one, that says whose it is and whether somebody
has edited it since: ``armload-service NAME FOLDER-ID CHECKSUM``. The checksum is that of the text
with zeros in its place.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import Literal

from pydantic import field_validator

from armload.core.errors import UsageError
from armload.core.values import Count, Value

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?"
_NO_SUM = "0" * 64
_MARK = re.compile(rf"armload-service ({_NAME}) ([0-9a-f]{{12}}) ([0-9a-f]{{64}})")


def is_name(text: str) -> bool:
    """Say whether a service can have this name."""
    return re.fullmatch(_NAME, text) is not None


def check_name(name: str) -> str:
    """Return a service's name.

    Raises:
        UsageError: it is none.
    """
    if not is_name(name):
        raise UsageError(
            f"{name[:60]!r} is not a valid service name.",
            "Use up to 40 letters, digits, - and _, with a letter or digit first: --name chat",
        )
    return name


def unit_name(name: str) -> str:
    """Return what an init system calls a service."""
    return f"armload-{name}"


class UnitFacts(Value):
    """What an init system has to know of a service.

    Attributes:
        name: of the service.
        description: one line for people.
        folder: of the service, on the board.
        user: that it runs as; none for the login's, or root where that installs it.
        writable: paths besides the folder that it writes to.
        memory_max_bytes: where the init system can limit it; none for no limit.
        is_public: it listens beyond loopback, and so needs the network.
    """

    name: str
    description: str = ""
    folder: PurePosixPath
    user: str | None = None
    writable: tuple[PurePosixPath, ...] = ()
    memory_max_bytes: Count | None = None
    is_public: bool = False

    @property
    def run(self) -> PurePosixPath:
        """The script that the init system starts."""
        return self.folder / "run"

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        return check_name(name)

    @field_validator("user")
    @classmethod
    def _is_a_user(cls, user: str | None) -> str | None:
        if user is not None and not re.fullmatch(_USER, user):
            raise UsageError(
                f"{user[:60]!r} is not a valid user name.",
                "Log in there as another user, or as root.",
            )
        return user

    @field_validator("description")
    @classmethod
    def _is_one_line(cls, text: str) -> str:
        return " ".join(text.split())

    @field_validator("folder", "writable")
    @classmethod
    def _can_be_written(cls, value: object) -> object:
        for path in value if isinstance(value, tuple) else (value,):
            if not path.is_absolute() or not str(path).isprintable():
                raise UsageError(
                    f"A service cannot lie in {str(path)!r}: its path has control characters, or "
                    "is not absolute.",
                    "Choose another work folder in the board's file.",
                )
        return value


class UnitFile(Value):
    """A file that an init system reads.

    Attributes:
        path: on the board.
        content: with its mark.
        mode: its permissions.
    """

    path: PurePosixPath
    content: str
    mode: int


Presence = Literal["absent", "installed", "edited", "another's"]
"""Of a unit on the board: edited since it was written, or another work folder's or program's."""


def mark(unit: UnitFacts) -> str:
    """Return the mark for a text that ``sealed`` completes."""
    return f"armload-service {unit.name} {_folder_id(unit.folder)} {_NO_SUM}"


def sealed(text: str) -> str:
    """Return a text with its checksum in its mark."""
    return text.replace(_NO_SUM, _checksum(text), 1)


def presence(text: str, name: str, folder: PurePosixPath) -> Presence:
    """Say whose a text is that lies on the board; an empty one is not there."""
    if not text:
        return "absent"
    found = _MARK.search(text)
    if found is None or (found[1], found[2]) != (name, _folder_id(folder)):
        return "another's"
    bare = f"{text[: found.start(3)]}{_NO_SUM}{text[found.end(3) :]}"
    return "installed" if _checksum(bare) == found[3] else "edited"


def _folder_id(folder: PurePosixPath) -> str:
    return _checksum(str(folder))[:12]


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
