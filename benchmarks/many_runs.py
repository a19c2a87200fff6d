"""CPU time of what reads runs, among ten thousand of them on 20 boards.

    python benchmarks/many_runs.py [--runs 10000] [--repeats 3]

Prints medians. The runs are made in a temporary folder: five models, four thread counts and 128
tokens each; five boards have a label in common.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from armload.core.workspace import RUN_FILE
from armload.runs import store
from tests.unit.sweeps import Q8, made_run

ARMLOAD = str(Path(sys.executable).parent / "armload")
BOARDS, LABELLED = 20, 5
MODELS, THREADS, REPEATS = 5, (1, 2, 4, 8), 5
TOKENS = 128


def templates() -> list[tuple[str, str]]:
    """Return ids and content of runs on a board called kitchen."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(MODELS):
            model = Q8.model_copy(
                update={"name": f"model-{number}-Q8_0.gguf", "sha256": str(number) * 64}
            )
            for threads in THREADS:
                for repeat in range(REPEATS):
                    run = made_run(model, threads, repeat=repeat, tokens=TOKENS)
                    path = store.save(run, Path(folder))
                    found.append((run.id, path.read_text(encoding="utf-8")))
    return found


def make(folder: Path, runs: int) -> None:
    """Write boards and runs."""
    (folder / "boards").mkdir()
    for number in range(BOARDS):
        labels = "labels: [few]\n" if number < LABELLED else ""
        path = folder / "boards" / f"lab-{number:02}.yaml"
        path.write_text(f"extends: this-machine\n{labels}", encoding="utf-8")
    made, batch = 0, 0
    known = templates()
    while made < runs:
        for old, content in known:
            for number in range(BOARDS):
                board = f"lab-{number:02}"
                name = old.replace("kitchen", board)
                name = f"202611{10 + batch % 20:02}{name[8:-4]}{made % 0x10000:04x}"
                text = content.replace(old, name).replace('"kitchen"', f'"{board}"')
                if number < LABELLED:
                    text = text.replace('"labels": []', '"labels": ["few"]')
                path = folder / "runs" / name
                path.mkdir(parents=True)
                (path / RUN_FILE).write_text(text, encoding="utf-8")
                made += 1
        batch += 1


def cpu_s(folder: Path, *words: str) -> float:
    """Run a command and return the CPU time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [ARMLOAD, *words], cwd=folder, capture_output=True, text=True, check=False, env=os.environ
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure each command several times."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--runs", type=int, default=10_000)
    arguments.add_argument("--repeats", type=int, default=3)
    chosen = arguments.parse_args()
    commands = (
        ("show",),
        ("show", "latest"),
        ("show", "--board", "@few", "--model", "model-3"),
        ("show", "lab-07:model-3"),
        ("compare", "lab-07:model-3", "lab-07:model-2"),
        ("compare", "lab-00:model-3", "@few:model-2", "--since", "2026-11-01"),
        ("report", "--board", "@few", "--model", "model-3"),
        ("report", "--board", "lab-07"),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, chosen.runs)
        for words in commands:
            times = [cpu_s(folder, *words) for _ in range(chosen.repeats)]
            print(f"{statistics.median(times):6.2f} s  {' '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
