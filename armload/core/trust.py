"""What this user has agreed to let files decide: kept per file, with the keys as they were then.

A file is trusted by its path in its folder, so that a folder that was moved or copied is asked
about again, and so is a file whose deciding keys have changed. What is compared are the keys of the
very content that is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from armload.core.errors import DataError, UntrustedError, UsageError
from armload.core.files import unreadable, write_whole
from armload.core.shell import join
from armload.core.values import Value, visible

VARIABLE = "ARMLOAD_TRUST"
"""Names folders that are trusted whatever is in them, as git's ``safe.directory`` does."""

DEFAULTS_FILE = "pyproject.toml"

_SHOWN_CHARACTERS = 100

Keys = Mapping[str, str]
"""Keys that decide, with their values as JSON."""


class TrustedFile(Value):
    """A file, and which of its keys are trusted.

    Attributes:
        folder: the workspace, or the folder that the file lies in.
        path: of the file.
        keys: that decide, with their values as JSON.
    """

    folder: Path
    path: Path
    keys: dict[str, str]


class _Record(Value):
    format: int = 1
    files: tuple[TrustedFile, ...] = ()


class UntrustedFileError(UntrustedError):
    """A file of this machine would decide what runs, and this user has not agreed to that.

    Args:
        asked: what would have to be trusted.
    """

    def __init__(self, message: str, remedy: str, asked: TrustedFile) -> None:
        super().__init__(message, remedy)
        self.asked = asked


_describing: ContextVar[bool] = ContextVar("describing", default=False)


@contextmanager
def describing() -> Iterator[None]:
    """Read files in the block whatever they decide: their values are shown, and nothing else."""
    token = _describing.set(True)
    try:
        yield
    finally:
        _describing.reset(token)


def keys_of(path: Path, found: Mapping[str, object]) -> dict[str, str]:
    """Return keys that decide as they are compared."""
    try:
        return {
            key: json.dumps(value, default=str, sort_keys=True, ensure_ascii=False)
            for key, value in found.items()
        }
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path}: the values are nested too deeply.") from error


def require_trust(asked: TrustedFile) -> None:
    """Refuse a file whose keys decide what runs, unless the user has agreed to them."""
    if not asked.keys or _describing.get() or is_trusted(asked):
        return
    said = "; ".join(shown_keys(asked.keys))
    is_alone = asked.path.parent == asked.folder and asked.path.name != DEFAULTS_FILE
    target = asked.path if is_alone else asked.folder
    raise UntrustedFileError(
        f"{asked.path}: not trusted, and it decides what runs: {said}.",
        f"To see all of it and to trust it: {join(['armload', 'trust', target])}",
        asked,
    )


def shown_keys(keys: Keys) -> list[str]:
    """Return keys and values for people, one of them each; long ones are cut."""
    lines = []
    for key, value in keys.items():
        line = visible(f"{key}: {value}")
        cut = len(line) > _SHOWN_CHARACTERS
        lines.append(f"{line[:_SHOWN_CHARACTERS]}…" if cut else line)
    return lines


def is_trusted(asked: TrustedFile) -> bool:
    """Say whether the user has agreed to exactly these keys of a file, or to all of its folder."""
    if is_named(asked.folder):
        return True
    return any(each.path == asked.path and each.keys == asked.keys for each in trusted_files())


def is_named(folder: Path) -> bool:
    """Say whether ``ARMLOAD_TRUST`` names a folder, itself or as one below ``FOLDER/*``."""
    real = folder.resolve()
    for word in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if not word.startswith("/"):
            raise UsageError(
                f"{VARIABLE}: {word!r} is not an absolute path.",
                f"Name folders by their whole paths, with {os.pathsep!r} between them.",
            )
        named = Path(word)
        if real == named.resolve():
            return True
        if named.name == "*" and real.is_relative_to(named.parent.resolve()):
            return True
    return False


def trusted_files() -> tuple[TrustedFile, ...]:
    path = record_file()
    try:
        return _Record.model_validate_json(path.read_bytes()).files
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise unreadable(path, error) from error
    except ValidationError as error:
        raise DataError(
            f"{path}: this record of trusted files is damaged.",
            f"Remove it, and trust your folders again: {join(['rm', path])}",
        ) from error


def record_file() -> Path:
    """Return the file that records what this user trusts."""
    return Path(platformdirs.user_state_dir("armload")) / "trusted.json"


def trust(*files: TrustedFile) -> None:
    """Record that the user agrees to the keys of files; what a file had before is forgotten.

    Those in a folder that ``ARMLOAD_TRUST`` names need no record.
    """
    new = {each.path: each for each in files if not is_named(each.folder)}
    if new:
        with _changing() as kept:
            kept[:] = [each for each in kept if each.path not in new]
            kept += [each for each in new.values() if each.keys]


def forget(place: Path) -> list[TrustedFile]:
    """Take back the trust in a file, or in all files of a folder; return them."""
    with _changing() as kept:
        gone = [each for each in kept if place in (each.folder, each.path)]
        kept[:] = [each for each in kept if each not in gone]
    return gone


@contextmanager
def _changing() -> Iterator[list[TrustedFile]]:
    from armload.core.locks import locked
    from armload.core.progress import Silent

    path = record_file()
    with locked(path.with_name(".trusted.lock"), Silent(), waiting=""):
        before = trusted_files()
        files = list(before)
        yield files
        if tuple(files) != before:
            record = _Record(files=tuple(sorted(files, key=lambda each: str(each.path))))
            write_whole(path, f"{record.model_dump_json(indent=1)}\n".encode())
            path.chmod(0o600)
