"""What becomes of hostile input.

python -m tests.hostile SEED [TRIES_OF_EACH_AREA] prints what became of every area's tries.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.hostile.generator import impatient, tries
from tests.hostile.tries import Area, memory_bytes, outcome


def main(seed: int, each: int) -> int:
    counts: dict[Area, Counter[str]] = {}
    with impatient(), tempfile.TemporaryDirectory(prefix="armload-hostile-") as name:
        for area, one in tries(seed, Path(name), each):
            what, detail = outcome(one)
            counts.setdefault(area, Counter())[what] += 1
            if what != "right":
                say(f"{area}: {one.name}: {what}: {detail}")
    for area, found in counts.items():
        say(f"{area:8} {found.total():4} tries: {dict(found)}")
    say(f"seed {seed}, most memory {memory_bytes() >> 20} MiB")
    return sum(found.total() - found["right"] for found in counts.values())


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60)))
