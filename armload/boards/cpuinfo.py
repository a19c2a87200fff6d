"""What ``/proc/cpuinfo`` says of a board's cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def cores_of(lines: Iterable[str]) -> list[dict[str, str]]:
    """Return the keys and values of each core."""
    cores: list[dict[str, str]] = []
    for line in lines:
        key, colon, value = line.partition(":")
        if not colon:
            continue
        if key.strip() == "processor":
            cores.append({})
        if cores:
            cores[-1][key.strip()] = value.strip()
    return cores


def common_features(cores: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the features that every core has, in the kernel's words and order."""
    features = [core.get("Features", core.get("flags", "")).split() for core in cores]
    common = set.intersection(*map(set, features)) if features else set()
    return tuple(name for name in features[0] if name in common) if features else ()
