"""What armload itself adds to an evaluation's time, beside the program that answers.

    python benchmarks/evaluation_overhead.py [--questions 500,2000] [--board this-machine]

Evaluates the model of word problems with each number of questions, on this machine unless another
board is named, and prints the wall time of the whole command, the scorer's own (from the start of
its process to the end of its last pass, both on the board's clock), and the rest: Python's start,
the connection, following the run, fetching, grading, and the page. The rest has a part that is the
same for every command and one that grows with the questions, so give at least two numbers. The
first, unmeasured command builds the engine and copies it and the model.

On a quiet machine with two cores the defaults take a few minutes once the engine is built.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from armload.runs import store

ARMLOAD = str(Path(sys.executable).parent / "armload")
MODEL = "word-problems:Q8_0"


def main() -> None:
    """Evaluate with each number of questions and print a line for each."""
    parser = argparse.ArgumentParser(description="Measure what an evaluation adds.")
    parser.add_argument("--questions", default="500,2000", help="numbers of questions")
    parser.add_argument("--board", default="this-machine")
    parser.add_argument("--threads", default="1")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        words = [ARMLOAD, "eval", "--board", chosen.board, "--model", MODEL, "--json", "--new"]
        words += ["--threads", chosen.threads]
        evaluated(words, 2)
        print("questions  whole command  the scorer  armload adds  share  armload's CPU time")
        for count in map(int, chosen.questions.split(",")):
            whole_s, scorer_s, cpu_s = evaluated(words, count)
            added_s = whole_s - scorer_s
            print(
                f"{count:9}  {whole_s:11.2f} s  {scorer_s:8.2f} s  {added_s:10.2f} s  "
                f"{added_s / scorer_s:5.1%}  {cpu_s:16.2f} s"
            )


def evaluated(words: list[str], questions: int) -> tuple[float, float, float]:
    """Return the seconds of a whole command, of its scorer's runs, and of its own CPU time.

    On the local board too, the scorer is detached from the command: its CPU time is not counted.
    """
    before = set(Path("runs").glob("*/run.json"))
    cpu_s, start = children_cpu_s(), time.perf_counter()
    subprocess.run([*words, "--limit", str(questions)], check=True, stdout=subprocess.DEVNULL)
    whole_s = time.perf_counter() - start
    cpu_s = children_cpu_s() - cpu_s
    runs = [store.load(path.parent) for path in set(Path("runs").glob("*/run.json")) - before]
    return whole_s, sum(run.summary.wall_s or 0.0 for run in runs), cpu_s


def children_cpu_s() -> float:
    """Return the CPU time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
