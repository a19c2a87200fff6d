"""A folder that shows a converter a checkpoint's data and nothing else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from armload.conversion.checkpoints.checkpoint import NEEDED_PATTERNS, Checkpoint, read_object

_TOKENIZER = "tokenizer_config.json"
_CLASSES = {"TokenizersBackend": "PreTrainedTokenizerFast"}
"""What transformers 5 calls classes of its tokenizers, and how the converters know them."""


@contextmanager
def staged(checkpoint: Checkpoint) -> Iterator[Path]:
    """Yield a temporary folder, named like the checkpoint, of links to its files.

    The converters' libraries run Python that lies beside a checkpoint's weights. It is not
    linked, so it is not found. What transformers 5 writes otherwise than the version that the
    converters need is put into that version's words.

    Raises:
        DataError: ``tokenizer_config.json`` is malformed.
        DiskError: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="armload-") as name:
        folder = Path(name) / checkpoint.name
        folder.mkdir()
        for path in sorted(checkpoint.folder.iterdir()):
            if path.is_file() and any(fnmatchcase(path.name, each) for each in NEEDED_PATTERNS):
                (folder / path.name).symlink_to(path.resolve())
        settings = folder / _TOKENIZER
        if settings.is_file():
            content = _in_older_words(read_object(checkpoint.folder / _TOKENIZER))
            settings.unlink()
            settings.write_text(json.dumps(content), encoding="utf-8")
        yield folder


def _in_older_words(content: dict[str, Any]) -> dict[str, Any]:
    named = content.get("tokenizer_class")
    changed = {"tokenizer_class": _CLASSES[named]} if named in _CLASSES else {}
    extra = content.get("extra_special_tokens")
    if not isinstance(extra, list):
        return content | changed
    others = {key: value for key, value in content.items() if key != "extra_special_tokens"}
    return others | changed | {"additional_special_tokens": extra}
