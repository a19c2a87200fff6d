"""Whatever is typed, a verb ends with a documented status, a sentence, and one document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

often = pytest.mark.exhaustive(covers=["armload"])


def given(*words: str) -> str:
    """Give command lines in a process that can reach and change nothing; return what was wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzzing", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not done.stdout), done.stdout
    return done.stdout


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=often) for each in range(1, 40))])
def test_no_command_line_ends_in_a_traceback(seed: int) -> None:
    wrong = given(str(seed))
    assert not wrong, f"Repeat one with: python -m tests.fuzzing {seed} NUMBER\n{wrong}"


def test_each_number_has_bounds_that_are_checked_before_anything_starts() -> None:
    wrong = given("bounds")
    assert not wrong, wrong


def test_no_name_that_is_no_utf_8_ends_in_a_traceback() -> None:
    wrong = given("names")
    assert not wrong, wrong
