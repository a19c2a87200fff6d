"""Locations on this machine: the data folders, the cache, the runs and their reports.

YAML files of boards, targets, shapes, outlines and tasks are looked up in the workspace
and then in the installation, so a user's own file overrides a shipped one, as far as they trust
it. Scripts for boards and C sources of ours (``deploy``, and those in ``toolchains``) come from the
installation alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from armload.core.errors import UsageError
from armload.core.places import cache_folder, nearest_workspace, shipped_folders, user_name

_ONE_OF = {
    "boards": "board",
    "toolchains": "target",
    "shapes": "shape",
    "outlines": "outline",
    "tasks": "task",
    "suites": "suite",
    "hardware": "hardware",
    "readers": "reader",
}


_LISTED_BY = {"boards": "armload board.list", "hardware": "armload board.hardware"}


def workspace() -> Path:
    """Return the nearest folder upwards with a board's or target's file, else this one.

    Many projects have folders called ``boards`` or ``toolchains``; the keys of a file in them tell
    whether it is armload's. A folder above this one that belongs to another user does not count
    unless it is trusted: anybody can put one into ``/tmp``.
    """
    here = Path.cwd()
    found = nearest_workspace(here)
    return here if found is None or _is_foreign(found, here) else found


def foreign_workspace() -> Path | None:
    """Return the folder that would be the workspace if it did not belong to another user."""
    here = Path.cwd()
    found = nearest_workspace(here)
    return found if found is not None and _is_foreign(found, here) else None


def _is_foreign(folder: Path, here: Path) -> bool:
    if folder == here or not owner_of(folder):
        return False
    from armload.core.trust import is_named, trusted_files

    return not is_named(folder) and all(each.path != folder for each in trusted_files())


def owner_of(folder: Path) -> str:
    """Return which other user owns a workspace or what armload reads in it; empty for none.

    The system's administrator is none, nor is whoever became it by ``sudo``.
    """
    own = {0, os.geteuid()}
    if os.geteuid() == 0 and (caller := os.environ.get("SUDO_UID", "")).isdecimal():
        own.add(int(caller))
    for part in ("", *_ONE_OF, "toolchains/sources", "pyproject.toml"):
        for look in (os.stat, os.lstat):
            try:
                owner = look(folder / part).st_uid
            except OSError:
                continue
            if owner not in own:
                return user_name(owner)
    return ""


RUN_FILE = "run.json"
"""In the folder of each run that is kept: what came back."""


def runs_folder() -> Path:
    """Return the folder that results are kept in; it may not exist yet."""
    return workspace() / "runs"


def imports_folder() -> Path:
    """Return the folder of runs that others published; it may not exist yet."""
    return workspace() / "imports"


def sweeps_folder() -> Path:
    return workspace() / "sweeps"


def evaluations_folder() -> Path:
    return workspace() / "evaluations"


def loads_folder() -> Path:
    return workspace() / "loads"


def tunings_folder() -> Path:
    return workspace() / "tunings"


def bisections_folder() -> Path:
    return workspace() / "bisections"


def reports_folder() -> Path:
    return workspace() / "reports"


def compiling_folder(kind: str) -> Path:
    """Return a folder of the cache that compilers read or write, by its one path without links.

    A compiler that is called by another path counts as another one, and so does what it compiled.
    """
    return (cache_folder() / kind).resolve()


def data_folders(kind: str) -> Iterator[Path]:
    """Yield the existing folders of a kind (``"boards"``, …), the person's own first."""
    own = workspace() / kind
    shipped = list(shipped_folders(kind))
    if own.is_dir() and own.resolve() not in shipped:
        yield own
    yield from shipped


def data_names(kind: str) -> list[str]:
    """Return the names (without ``.yaml``) of all data files of a kind, sorted."""
    return sorted(
        {
            path.stem
            for folder in data_folders(kind)
            for path in folder.glob("*.yaml")
            if path.is_file()
        }
    )


def no_files(kind: str) -> dict[Path, str]:
    """Return what is called as a data file of a kind and is none: what each is, in words."""
    return {
        path: _what_it_is(path)
        for folder in data_folders(kind)
        for path in sorted(folder.glob("*.yaml"))
        if not path.is_file()
    }


def _what_it_is(path: Path) -> str:
    if path.is_dir():
        return "a folder, not a file"
    if path.is_symlink() and not path.exists():
        return f"a link to {path.readlink()}, which does not exist"
    return "not a regular file"


def spelled_name(kind: str, name: str) -> str:
    """Return the name of the data file that is meant, in whatever case; else what was written."""
    alike = [each for each in data_names(kind) if each.casefold() == name.casefold()]
    if name in alike:
        return name
    if len(alike) > 1:
        raise UsageError(
            f"{name!r} may be {' or '.join(alike)}.", "Spell one of them with its capitals."
        )
    return alike[0] if alike else name


def data_file(kind: str, name: str) -> Path:
    """Return the file ``<kind>/<name>.yaml`` that counts, in whatever case the name is written.

    Raises:
        UsageError: there is none; the nearest names are offered.
    """
    for path in data_files(kind, spelled_name(kind, name)):
        return path
    # Shells' completion lists names within milliseconds, without pydantic.
    from armload.core.near_names import available

    names = data_names(kind)
    is_a_name = name not in {"", ".", ".."} and not set(name) & set("/,\\\0")
    new = f"To add it, create {kind}/{name}.yaml." if is_a_name else ""
    if new and kind == "boards":
        new = f"To add it: armload board.add {name} --host ADDRESS, or create {kind}/{name}.yaml."
    others = {path.stem: f": {path} is {what}" for path, what in no_files(kind).items()}
    raise UsageError(
        f"There is no {_ONE_OF.get(kind, 'file')} named {name!r}{others.get(name, '')}.",
        available(name.lower(), names, listing_of(kind), new),
    )


def listing_of(*kinds: str) -> str:
    """Return the command that lists all data files of some kinds."""
    from armload.core.shell import join

    folders = [folder for kind in kinds for folder in data_folders(kind)]
    return _LISTED_BY.get(kinds[0]) or join(["ls", *folders])


def data_files(kind: str, name: str) -> Iterator[Path]:
    """Yield every ``<kind>/<name>.yaml``, the one that counts first."""
    if name == Path(name).name:
        for folder in data_folders(kind):
            path = folder / f"{name}.yaml"
            if path.is_file():
                yield path
