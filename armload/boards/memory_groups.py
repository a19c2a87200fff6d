"""What a board's control groups leave of its memory."""

from __future__ import annotations

from collections.abc import Sequence

from armload.core.values import Value


class Group(Value):
    """A control group that limits memory.

    Attributes:
        limit_bytes: the lowest of its limits.
        left_bytes: what may be taken until then: page cache goes first, as in ``MemAvailable``.
    """

    limit_bytes: int
    left_bytes: int


def read_groups(lines: Sequence[str]) -> tuple[Group, ...]:
    """Read the lines of control groups: ``group``, then ``KEY VALUE`` for each; v1 and v2."""
    groups: list[dict[str, int]] = []
    for line in lines:
        key, _, value = line.strip().partition(" ")
        if key == "group":
            groups.append({})
        elif groups and value.isdecimal():  # no limit is the word max
            known = groups[-1].get(key)
            groups[-1][key] = int(value) if known is None else min(known, int(value))
    found = []
    for group in groups:
        if "limit" not in group or "used" not in group:
            continue
        # With v1, the plain counts leave out the groups inside.
        cache = sum(
            group.get(f"total_{name}", group.get(name, 0))
            for name in ("inactive_file", "active_file", "slab_reclaimable")
        )
        taken = max(0, group["used"] - cache)
        found.append(Group(limit_bytes=group["limit"], left_bytes=max(0, group["limit"] - taken)))
    return tuple(found)


def tightest(groups: Sequence[Group]) -> Group | None:
    """Return the group that leaves the least; none of none."""
    return min(groups, key=lambda group: group.left_bytes, default=None)
