"""The converters' virtual environment: what is in it, and programs that run there."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from armload.core.children import run_watched
from armload.core.places import data_path
from armload.core.values import Value
from armload.core.yamlfile import load_file


class Packages(Value):
    """Packages of the package index, pinned.

    Attributes:
        description: what they are, for people.
        pip: the version of pip that installs them.
        packages: requirements, as pip writes them; their own requirements come along.
        alone: requirements whose own requirements do not.
        comparing: requirements of the comparison, in a folder that only it sees; nothing comes
            along with them.
        mnn_types: the ``model_type`` of each checkpoint that can become an MNN model.
        pieces_alone: architectures whose vocabulary must consist of sentence pieces.
    """

    description: str
    pip: str
    packages: tuple[str, ...]
    alone: tuple[str, ...]
    comparing: tuple[str, ...]
    mnn_types: tuple[str, ...]
    pieces_alone: tuple[str, ...]

    @property
    def environment_id(self) -> str:
        """Names an environment by what is in it and whose Python it needs."""
        python = (sys.implementation.cache_tag, sys.platform, platform.machine(), sys.base_prefix)
        content = "\0".join(
            (*python, self.pip, *self.packages, "", *self.alone, "", *self.comparing)
        )
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def version_of(self, name: str) -> str:
        """Return the pinned version of a package of the converters."""
        pins = dict(each.split("==") for each in (*self.packages, *self.alone))
        return pins[name]


def pinned_packages() -> Packages:
    """Read the shipped file; a workspace's own does not count, for what it names is run."""
    path = data_path("toolchains", "converters", "checkpoints.yaml")
    return load_file(path, Packages, is_shipped=True)


_LINES_KEPT = 40
COMPARING = "comparing"
_COMPILED = "compiled"


class FailedProgramError(Exception):
    """A program ended with a status other than 0.

    Args:
        status: that it ended with; negative for the signal that killed it.
        lines: the end of what it wrote.
    """

    def __init__(self, status: int, lines: Sequence[str]) -> None:
        super().__init__(status)
        self.status = status
        self.lines = tuple(lines)

    @property
    def shown(self) -> str:
        """The end of its output, indented."""
        return "\n".join(f"  {line}" for line in self.lines[-12:])


class Environment(Value):
    """An environment that holds the converters' packages.

    Attributes:
        python: its interpreter.
        lock: the descriptor of the lock that keeps it from being removed.
    """

    python: Path
    lock: int

    @property
    def comparing(self) -> Path:
        return self.python.parents[1] / COMPARING

    def run(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        variables: Mapping[str, str],
        watch: Callable[[str], None],
    ) -> None:
        """Run its interpreter and show each line to ``watch``; a carriage return ends one, too.

        The program inherits the lock, and so keeps it even if this process is killed.

        Args:
            words: the interpreter's arguments.
            folder: it runs in.
            variables: in addition to this process's own.

        Raises:
            FailedProgramError: its status is not 0.
        """
        tail: deque[str] = deque(maxlen=_LINES_KEPT)

        def note(line: str) -> None:
            if line.strip():
                tail.append(line.rstrip())
                watch(line)

        # Compiled modules stay here: compiling torch and transformers takes longer than all else,
        # and llama.cpp's source must stay as it is.
        compiled = {"PYTHONPYCACHEPREFIX": str(self.python.parents[1] / _COMPILED)}
        # Not the variables that lead a Python to other packages.
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PYTHON") and name != "__PYVENV_LAUNCHER__"
        }
        status = run_watched(
            [str(self.python), *words],
            environment={**own, **compiled, **variables},
            watch=note,
            keep_open=self.lock,
            folder=folder,
        )
        if status != 0:
            raise FailedProgramError(status, tail)
