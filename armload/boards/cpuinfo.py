"""What ``/proc/cpuinfo`` says of a board's cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def cores_of(lines: Iterable[str]) -> list[dict[str, str]]:
    """Return the keys and values of each core.

    Old kernels list what all cores have in common once, before the first or after the last.
    """
    cores: list[dict[str, str]] = []
    common: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if not colon:
            continue
        if key.strip() == "processor":
            cores.append({})
        (cores[-1] if cores else common)[key.strip()] = value.strip()
    if len(cores) > 1:
        of_others = set().union(*cores[:-1])
        common |= {key: value for key, value in cores[-1].items() if key not in of_others}
    return [common | core for core in cores]


def common_features(cores: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the features that every core has, in the kernel's words and order."""
    features = [core.get("Features", core.get("flags", "")).split() for core in cores]
    common = set.intersection(*map(set, features)) if features else set()
    return tuple(name for name in features[0] if name in common) if features else ()
