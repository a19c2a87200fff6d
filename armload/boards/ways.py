"""Which of several tools a board's work is done with, and why: the same order as in the scripts."""

from __future__ import annotations

from collections.abc import Collection

from armload.boards.host import ChosenWay

INSIDE = ("toybox sha256sum", "busybox sha256sum")
"""Tools inside of others that count as tools where they have no name of their own."""

# What is done, with what (the best first, each with what it is called when it is chosen), what
# is done without any of them, and why.
_CHOICES: tuple[tuple[str, tuple[tuple[str, str], ...], str], ...] = (
    (
        "checksums",
        (
            ("openssl", "openssl dgst -sha256"),
            ("sha256sum", "sha256sum"),
            ("toybox sha256sum", "toybox sha256sum"),
            ("busybox sha256sum", "busybox sha256sum"),
        ),
        "read the file back",
    ),
    (
        "cutting a file",
        (("truncate", "truncate"), ("dd", "dd"), ("head", "head, into a copy")),
        "not possible: a partial file can only be appended to",
    ),
    ("detaching a run", (("setsid", "setsid"),), "ignore SIGHUP"),
    ("end of a run", (("mkfifo", "a pipe that closes"),), "poll several times a second"),
    ("change detection", (("stat", "stat"), ("ls", "ls -lin")), "checksum it each time"),
    ("CPU pinning", (("taskset", "taskset"),), "armload's own program"),
)


_OWN_PROGRAM_FOR = ("aarch64", "x86_64")


def tool_ways(tools: Collection[str], machine: str) -> tuple[ChosenWay, ...]:
    """Return what is done how on a board that has these tools and is such a machine."""
    ways = [_way(purpose, choices, none, tools) for purpose, choices, none in _CHOICES]
    if machine in _OWN_PROGRAM_FOR:
        ways[0] = ChosenWay(
            purpose=ways[0].purpose,
            chosen="armload's own program",
            reason=f"faster than {ways[0].chosen}, and it can resume",
        )
    return tuple(ways)


def _way(
    purpose: str, choices: tuple[tuple[str, str], ...], none: str, tools: Collection[str]
) -> ChosenWay:
    lacking: list[str] = []
    for tool, words in choices:
        if tool in tools:
            return ChosenWay(purpose=purpose, chosen=words, reason=_reason(lacking))
        lacking.append(tool)
    return ChosenWay(purpose=purpose, chosen=none, reason=_reason(lacking))


def _reason(lacking: list[str]) -> str:
    return f"the board has no {' and no '.join(lacking)}" if lacking else "the best available"
