"""The environment in which programs compile: made here, so that nothing a person exports is in it.

CMake, compilers, ninja, make and ccache read hundreds of variables, and newer versions more. So
what is set is listed, not what is left out. Nothing here decides a program's bytes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import PurePath

DECIDED: Mapping[str, str] = {
    # A compiler that is not called by its whole path brings the PATH that it was found in.
    "PATH": "/usr/bin:/bin",
    # It holds no settings of CMake, ccache or a compiler, and no package registry.
    "HOME": "/nonexistent",
    # What compilers say is read.
    "LANG": "C.UTF-8",
}
"""On any machine."""


def bare_environment() -> dict[str, str]:
    """Return the environment of a program that compiles, or was compiled, on this machine."""
    return {**DECIDED, "TMPDIR": tempfile.gettempdir()}


def ccache_environment(folder: PurePath, tree: PurePath) -> dict[str, str]:
    """Return the variables of ccache, whose settings are these alone.

    Args:
        folder: what it keeps. A person's own may be small, or shared with machines that they do not
            trust with what runs on their boards.
        tree: a build's; what is below it is the same to ccache in every build.
    """
    wish = {"CCACHE_DISABLE": "1"} if os.environ.get("CCACHE_DISABLE") else {}
    return {
        "CCACHE_DIR": str(folder),
        # With a path here, ccache does not read the system's settings either.
        "CCACHE_CONFIGPATH": str(folder / "ccache.conf"),
        "CCACHE_MAXSIZE": "2G",
        "CCACHE_BASEDIR": str(tree),
        "CCACHE_NOHASHDIR": "1",
        **wish,
    }
