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


def test_no_command_line_number_or_name_ends_in_a_traceback() -> None:
    wrong = given("some")
    assert not wrong, f"Repeat with: python -m tests.fuzzing some\n{wrong}"


@often
@pytest.mark.parametrize("seed", range(40))
def test_none_of_many_command_lines_ends_in_a_traceback(seed: int) -> None:
    wrong = given(str(seed))
    assert not wrong, f"Repeat one with: python -m tests.fuzzing {seed} NUMBER\n{wrong}"


@often
def test_each_number_has_bounds_that_are_checked_before_anything_starts() -> None:
    wrong = given("bounds")
    assert not wrong, wrong


@often
def test_no_name_that_is_no_utf_8_ends_in_a_traceback() -> None:
    wrong = given("names")
    assert not wrong, wrong
