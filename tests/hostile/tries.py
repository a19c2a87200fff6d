"""What is tried, and what may become of it."""

from __future__ import annotations

import random
import resource
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from armload.core.bounds import within
from armload.core.errors import ArmloadError

HANG_S = 20.0
MOST_MEMORY_BYTES = 1 << 30

Area = Literal["plug", "command", "sensor", "tool", "hub", "file", "probe"]
Outcome = Literal[
    "right", "traceback", "hang", "memory", "wrong", "refused though right", "many lines"
]


class Try(NamedTuple):
    """Something hostile, or harmless in an unusual form.

    Attributes:
        name: it, for people.
        act: takes it in.
        right: what must be made of it; "any" is anything but a traceback.
    """

    name: str
    act: Callable[[], object]
    right: object


_MOST_LINES, _LONGEST_MESSAGE = 12, 2000
"""Of an error: a file with several mistakes has a line for each."""


def outcome(one: Try) -> tuple[Outcome, str]:
    """Take one in; return what became of it, and more about what is not right."""
    problem, before_bytes = "", memory_bytes()
    try:
        result = within(HANG_S, one.act)
    except TimeoutError:
        return "hang", f"more than {HANG_S:g} s"
    except ArmloadError as error:
        result, problem = "refused", error.message
        if problem.count("\n") > _MOST_LINES or len(problem) > _LONGEST_MESSAGE:
            return "many lines", problem[:300]
    except Exception:  # noqa: BLE001 - it is what is looked for
        return "traceback", traceback.format_exc(limit=-4)
    if memory_bytes() > max(before_bytes, MOST_MEMORY_BYTES):  # other tests may have taken more
        return "memory", f"{memory_bytes() >> 20} MiB"
    if one.right == "any" or result == one.right:
        return "right", ""
    return ("refused though right" if problem else "wrong"), f"{problem or result!r}"[:300]


def memory_bytes() -> int:
    """Return the most that this process or a program that it ran has taken so far."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) << 10


def kept(root: Path, content: bytes) -> Path:
    path = root / "hostile"
    path.write_bytes(content)
    return path


def mutated(content: bytes, rng: random.Random) -> bytes:
    spoilt = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(spoilt))
        change = rng.choice(("bits", "insert", "drop", "long", "cut"))
        if change == "bits":
            spoilt[at] = rng.getrandbits(8)
        elif change == "insert":
            spoilt[at:at] = rng.choice((b"\xff\xff\xff\xff", b"-1", b"9" * 400, b"\n", b"\0", b":"))
        elif change == "drop":
            del spoilt[at : at + rng.randint(1, 9)]
        elif change == "long":
            spoilt[at:at] = b"7" * rng.choice((20, 5000))
        elif len(spoilt) > 2000 or rng.random() < 0.2:
            del spoilt[at:]
        if not spoilt:
            return b"x"
    return bytes(spoilt)
