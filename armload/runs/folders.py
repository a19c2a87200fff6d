"""The folders of runs on this machine, which are found without opening a run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from armload.core.workspace import RUN_FILE, imports_folder, runs_folder
from armload.runs.selection import RunSelection


def run_folders(selection: RunSelection | None = None, *, imported: bool = False) -> list[Path]:
    """Return the folders of all finished runs, the oldest first.

    They are not opened: among ten thousand runs, that takes minutes. Of those that began within
    the same second the last to be kept is the latest.

    Args:
        selection: leaves out others.
        imported: with those that others published.
    """
    kept = []
    for folder in (runs_folder(), imports_folder()) if imported else (runs_folder(),):
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            if selection is not None and not selection.holds(name):
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                kept_ns = (folder / name / RUN_FILE).stat().st_mtime_ns
                kept.append((name.partition("-")[0], kept_ns, name, folder))
    return [folder / name for _, _, name, folder in sorted(kept)]
