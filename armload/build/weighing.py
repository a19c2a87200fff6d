"""How far a build is, by what its files take to compile and not by their number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_HEADERS_BYTES = 45_000
"""What the headers of a file weigh. Over the times of a whole build of llama.cpp by zig, a line
through bytes and seconds has its zero there."""

_LINKING_BYTES = 1_000


class Weights:
    """What the steps of a build weigh, in bytes of source.

    Args:
        outputs: of all steps, as ninja names them.
        source: of llama.cpp.
        tree: that is built in.
    """

    def __init__(self, outputs: Iterable[str], source: Path, tree: Path) -> None:
        self._bytes = {each: _weight(each, source, tree) for each in outputs}
        self._done: set[str] = set()

    def after(self, output: str, *, done: int, total: int) -> tuple[int, int]:
        """Note that a step is done, and return what those that are and all steps weigh.

        Args:
            done, total: numbers of steps, which count where not all of them were foreseen.
        """
        if len(self._bytes) < total:
            return done, total
        self._done.add(output)
        return sum(self._bytes.get(each, 0) for each in self._done), sum(self._bytes.values())


def _weight(output: str, source: Path, tree: Path) -> int:
    folder, is_object, name = output.partition(".dir/")
    if not is_object:
        return _LINKING_BYTES
    file = name.removesuffix(".o")
    beside = folder.rpartition("CMakeFiles/")[0].removeprefix("llama.cpp/")
    grouped = tree / "together" / Path(file).name
    if grouped.is_file():
        parts = re.findall(r'#include "(.+)"', grouped.read_text(encoding="utf-8"))
        return _HEADERS_BYTES + sum(map(_size, map(Path, parts)))
    return _HEADERS_BYTES + _size(source / beside / file.replace("__/", "../"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # one of ours, which are small, or made by the build
        return 0
