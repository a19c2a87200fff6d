"""A folder that shows a converter a checkpoint's data and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from armload.conversion.checkpoints.checkpoint import NEEDED_PATTERNS, Checkpoint


@contextmanager
def staged(checkpoint: Checkpoint) -> Iterator[Path]:
    """Yield a temporary folder, named like the checkpoint, of links to its files.

    The converters' libraries run Python that lies beside a checkpoint's weights. It is not
    linked, so it is not found.
    """
    with tempfile.TemporaryDirectory(prefix="armload-") as name:
        folder = Path(name) / checkpoint.name
        folder.mkdir()
        for path in sorted(checkpoint.folder.iterdir()):
            if path.is_file() and any(fnmatchcase(path.name, each) for each in NEEDED_PATTERNS):
                (folder / path.name).symlink_to(path.resolve())
        yield folder
