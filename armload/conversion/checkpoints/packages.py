"""Which packages convert checkpoints: ``toolchains/converters/checkpoints.yaml``."""

from __future__ import annotations

import hashlib
import platform
import sys

from armload.core.values import Value
from armload.core.workspace import data_path
from armload.core.yamlfile import load_file


class Packages(Value):
    """Packages of the package index, pinned.

    Attributes:
        description: what they are, for people.
        pip: the version of pip that installs them.
        packages: requirements, as pip writes them; their own requirements come along.
        alone: requirements whose own requirements do not.
        mnn_types: the ``model_type`` of each checkpoint that can become an MNN model.
        pieces_alone: architectures whose vocabulary must consist of sentence pieces.
    """

    description: str
    pip: str
    packages: tuple[str, ...]
    alone: tuple[str, ...]
    mnn_types: tuple[str, ...]
    pieces_alone: tuple[str, ...]

    @property
    def environment_id(self) -> str:
        """Names an environment by what is in it and whose Python it needs."""
        python = (sys.implementation.cache_tag, sys.platform, platform.machine(), sys.base_prefix)
        content = "\0".join((*python, self.pip, *self.packages, "", *self.alone))
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def version_of(self, name: str) -> str:
        """Return the pinned version of a package."""
        pins = dict(each.split("==") for each in (*self.packages, *self.alone))
        return pins[name]


def pinned_packages() -> Packages:
    """Read the shipped file; a workspace's own does not count, for what it names is run.

    Raises:
        DataError: the installation's file is malformed.
    """
    return load_file(data_path("toolchains", "converters", "checkpoints.yaml"), Packages)
