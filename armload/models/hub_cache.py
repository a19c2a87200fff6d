"""Where downloads from hubs are kept, and which models are among them; imports next to nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from armload.core.places import cache_folder

_FOLDER = "models--"
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


def hugging_face_cache() -> Path:
    """Return the folder that the hub's own library, and llama.cpp, keep downloads in too."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := os.environ.get(variable):
            return expanded(chosen)
    return hugging_face_home() / "hub"


def hugging_face_home() -> Path:
    if chosen := os.environ.get("HF_HOME"):
        return expanded(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(base) / "huggingface"


def model_scope_cache() -> Path:
    """Return a folder of ours: the layout of the hub's own library has no place for revisions."""
    return cache_folder() / "models" / "modelscope"


def expanded(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()


def kept_models() -> Iterator[str]:
    """Yield ``hf:ORG/REPO/FILE.gguf`` of every downloaded GGUF file, ``ms:`` alike.

    Of a model in several files, that is the first.
    """
    for prefix, cache in (("hf:", hugging_face_cache()), ("ms:", model_scope_cache())):
        for folder in cache.glob(f"{_FOLDER}*"):
            repo = folder.name.removeprefix(_FOLDER).replace("--", "/")
            for snapshot in folder.glob("snapshots/*"):
                for file in snapshot.rglob("*.gguf"):
                    if not _LATER_PART.search(file.name):
                        yield f"{prefix}{repo}/{file.relative_to(snapshot).as_posix()}"
