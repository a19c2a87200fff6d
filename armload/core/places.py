"""Where the cache, the installation's own files and a workspace's beginnings lie."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import platformdirs

_OWN_KEYS = {
    "boards": re.compile(rb"^(?:reach|workdir|members|extends)[ \t]*:", re.MULTILINE),
    "toolchains": re.compile(rb"^(?:cpu|extends)[ \t]*:", re.MULTILINE),
    "toolchains/sources": re.compile(rb"^(?:project|extends)[ \t]*:", re.MULTILINE),
}
_LOOKED_AT_BYTES = 1 << 16


def nearest_workspace(here: Path) -> Path | None:
    """Return the nearest folder upwards with a board's or target's file, whoever owns it.

    Many projects have folders called ``boards`` or ``toolchains``; the keys of a file in them tell
    whether it is armload's.
    """
    return next(filter(_is_workspace, (here, *here.parents)), None)


def user_name(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _is_workspace(folder: Path) -> bool:
    try:
        return any(
            keys.search(_begin(path))
            for kind, keys in _OWN_KEYS.items()
            if (folder / kind).is_dir()
            for path in (folder / kind).glob("*.yaml")
        )
    except OSError:  # a folder of somebody else's, who keeps it to themselves
        return False


def _begin(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_LOOKED_AT_BYTES)
    except OSError:
        return b""


def cache_folder() -> Path:
    """Return the folder for what can be made again: sources, builds, packages, images.

    ``ARMLOAD_CACHE`` overrides the platform's usual place.
    """
    chosen = os.environ.get("ARMLOAD_CACHE")
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("armload"))


def shipped_folders(kind: str) -> Iterator[Path]:
    """Yield the existing folders of a kind that belong to the installation."""
    package = Path(__file__).resolve().parent.parent
    candidates = [package / "data" / kind]
    if (package.parent / "pyproject.toml").is_file():  # an editable installation
        candidates.append(package.parent / kind)
    yield from filter(Path.is_dir, candidates)


def data_path(kind: str, *parts: str) -> Path:
    """Return a shipped file or folder other than a YAML file, such as a C source.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    for folder in shipped_folders(kind):
        path = folder.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError("/".join((kind, *parts)))
