"""What models leave in the cache."""

from __future__ import annotations

from armload.core.cache import (
    CacheItem,
    Kind,
    disk_usage,
    entries,
    is_left_over,
    items_of,
    left_over,
)


def model_kinds() -> tuple[Kind, ...]:
    """Return models that armload made, and the checksums that it remembers."""
    hashes = tuple(path for path in entries("hashes") if not is_left_over(path))
    remembered = CacheItem(label="all", paths=hashes, size_bytes=disk_usage(hashes))
    return (
        Kind(
            name="models",
            what="models of random weights",
            again="seconds",
            items=items_of("models"),
        ),
        Kind(
            name="slices",
            what="times of slices of models on boards",
            again="timing the slices again",
            items=items_of("slices"),
        ),
        Kind(
            name="hashes",
            what="checksums of model files",
            again="reading each model once",
            items=(*([remembered] if hashes else []), *left_over("hashes")),
        ),
    )
