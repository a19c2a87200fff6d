"""What llama.cpp says beforehand of a model's memory, beside what it allocates when it loads it.

    python benchmarks/footprints.py

A small model of each architecture, written by llama.cpp's own test, with two contexts, one sequence
and four. The last figures compare the estimate from the model's header.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.errors import ArmloadError
from armload.core.progress import Silent
from armload.models.gguf import read_model
from tests.footprints import Compared, architectures, compared


def main() -> None:
    """Compare all of them."""
    names = ("llama-completion", "llama-server")
    completion, server = build(load_target("host"), programs=names)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for model in architectures(Path(folder)):
            for each in compared(completion.path, server.path, model):
                counts["cases"] += 1
                _count(each, counts)
            counts[f"estimate {_estimate(model, each)}"] += 1
    for name, count in counts.items():
        print(f"{count:5} {name}")


def _count(each: Compared, counts: Counter[str]) -> None:
    simulated, allocated = each.simulated, each.allocated
    for name in ("context_bytes", "reserved_bytes", "work_bytes", "output_bytes"):
        same = getattr(simulated, name) == getattr(allocated, name)
        counts[f"{name} {'equal' if same else 'different'}"] += 1
        if not same:
            print(each.model, each.context, each.sequences, name, simulated, allocated)


def _estimate(path: Path, last: Compared) -> str:
    try:
        model = read_model(path, Silent())
    except ArmloadError:
        return "refused"
    context = model.context_memory
    estimated = context.size_bytes(last.context // last.sequences, sequences=last.sequences)
    actual = last.allocated.context_bytes
    if estimated == actual:
        return "equal"
    return "too small" if estimated < actual else "too large"


if __name__ == "__main__":
    main()
