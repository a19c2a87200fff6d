"""Where things lie on the laptop: the data folders, the cache, the runs and their reports.

The data folders ``boards``, ``toolchains`` and ``deploy`` are looked up in the workspace
(the nearest folder upwards that holds ``boards/`` or ``toolchains/``) and then in the
installed package, so a person's own file wins. So are ``shapes``, which are shipped inside
the package alone.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from armload.core.errors import UsageError

_ONE_OF = {"boards": "board", "toolchains": "target", "shapes": "shape"}


def workspace() -> Path:
    """Return the nearest folder upwards with ``boards/`` or ``toolchains/``, else this one."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "boards").is_dir() or (folder / "toolchains").is_dir():
            return folder
    return here


def runs_folder() -> Path:
    """Return the folder that results are kept in; it may not exist yet."""
    return workspace() / "runs"


def sweeps_folder() -> Path:
    """Return the folder that says which runs belong together; it may not exist yet."""
    return workspace() / "sweeps"


def reports_folder() -> Path:
    """Return the folder that reports of several runs are kept in; it may not exist yet."""
    return workspace() / "reports"


def cache_folder() -> Path:
    """Return the folder for what can be made again: sources, builds, packages, images.

    ``ARMLOAD_CACHE`` overrides the platform's usual place.
    """
    chosen = os.environ.get("ARMLOAD_CACHE")
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("armload"))


def data_folders(kind: str) -> Iterator[Path]:
    """Yield the existing folders of a kind (``"boards"``, …), the person's own first."""
    package = Path(__file__).resolve().parent.parent
    candidates = [workspace() / kind, package / "data" / kind]
    if (package.parent / "pyproject.toml").is_file():  # an editable installation
        candidates.append(package.parent / kind)
    seen = set()
    for candidate in candidates:
        if candidate.is_dir() and candidate.resolve() not in seen:
            seen.add(candidate.resolve())
            yield candidate


def data_names(kind: str) -> list[str]:
    """Return the names (without ``.yaml``) of all data files of a kind, sorted."""
    return sorted({path.stem for folder in data_folders(kind) for path in folder.glob("*.yaml")})


def data_file(kind: str, name: str) -> Path:
    """Return the file ``<kind>/<name>.yaml`` that counts.

    Raises:
        UsageError: there is none; the nearest names are offered.
    """
    for path in data_files(kind, name):
        return path
    names = data_names(kind)
    near = difflib.get_close_matches(name, names, n=3)
    names = [*near, *(each for each in names if each not in near)]
    is_a_name = name not in {"", ".", ".."} and not set(name) & set("/,\\\0")
    new = f" A new one is a file {kind}/{name}.yaml." if is_a_name else ""
    raise UsageError(
        f"No {_ONE_OF.get(kind, 'file')} is called {name!r}.",
        f"There are: {', '.join(names)}.{new}",
    )


def data_files(kind: str, name: str) -> Iterator[Path]:
    """Yield every ``<kind>/<name>.yaml``, the one that counts first."""
    if name == Path(name).name:
        for folder in data_folders(kind):
            path = folder / f"{name}.yaml"
            if path.is_file():
                yield path


def data_path(kind: str, *parts: str) -> Path:
    """Return a shipped file or folder other than a YAML file, such as a template's.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    for folder in data_folders(kind):
        path = folder.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError("/".join((kind, *parts)))
