"""Folders that look like llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def llama_cpp(folder: Path, tools: Mapping[str, str], cmake: str = "") -> Path:
    """Make a llama.cpp whose folder ``tools`` holds folders with these CMake files."""
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "llama.h").write_text("")
    (folder / "CMakeLists.txt").write_text(cmake)
    (folder / "tools").mkdir()
    lines = [f"add_subdirectory({name})\n" for name in tools]
    (folder / "tools" / "CMakeLists.txt").write_text("".join(lines))
    for name, text in tools.items():
        (folder / "tools" / name).mkdir()
        (folder / "tools" / name / "CMakeLists.txt").write_text(text)
    return folder
