"""Tests marked ``exhaustive`` run when they are asked for, and when what they cover has changed.

Those that lack a file which is not in the repository are counted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePath

import pytest

from tests import conftest, outside_data

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

TESTS = """
import pytest

def test_default():
    pass

@pytest.mark.exhaustive(covers=["covered"])
def test_bulk():
    pass
"""
MARKERS = '[tool.pytest.ini_options]\nmarkers = ["exhaustive(covers): x", "build: x"]\n'


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    subprocess.run(["git", *who, "-c", "commit.gpgSign=false", *words], cwd=folder, check=True)


def commit(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("changed")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", name)


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of one commit with these hooks, one exhaustive test and one other."""
    folder = tmp_path_factory.mktemp("young")
    (folder / "tests").mkdir()
    (folder / "tests" / "__init__.py").touch()
    for module in (conftest, outside_data):
        shutil.copy(str(module.__file__), folder / "tests")
    (folder / "tests" / "test_x.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text(MARKERS)
    (folder / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "covered/file")
    return folder


@pytest.fixture(scope="module")
def old(young: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of which the last commits changed nothing that is covered."""
    folder = tmp_path_factory.mktemp("old") / "copy"
    shutil.copytree(young, folder)
    for number in range(conftest.COMMITS - 1):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"{number}")
    commit(folder, "other/file")
    return folder


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def passed(folder: Path, *words: str) -> set[str]:
    """Return which tests passed; none failed."""
    lines = [line.split() for line in run(folder, *words).splitlines() if "PASSED" in line]
    return {line[0].partition("::")[2] for line in lines}


def test_they_are_left_out_unless_asked_for_whatever_else_is_chosen(young: Path) -> None:
    assert passed(young) == passed(young, "-m", "not build") == {"test_default"}
    assert passed(young, "--exhaustive=all") == {"test_bulk"}


def test_those_that_have_not_begun_in_time_are_skipped(young: Path) -> None:
    assert passed(young, "--exhaustive=all", "--exhaustive-time=0") == set()
    assert passed(young, "--exhaustive=all", "--exhaustive-time=900") == {"test_bulk"}


def test_a_history_too_short_to_tell_makes_them_due(young: Path, old: Path, tmp_path: Path) -> None:
    assert passed(young, "--exhaustive=due") == {"test_bulk"}
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "3", old.as_uri(), str(shallow))
    assert conftest.changed_files(shallow) is None
    assert conftest.changed_files(tmp_path) is None
    assert conftest.changed_files(old) == frozenset({PurePath("other/file")})


@pytest.mark.parametrize("name", ["covered/new", "tests/test_x.py"])
def test_a_change_of_what_they_cover_or_of_their_own_file_makes_them_due(
    old: Path, name: str
) -> None:
    assert passed(old, "--exhaustive=due") == set()
    with (old / name).open("a") as file:
        file.write("\n")
    git(old, "add", "-A")
    try:
        assert passed(old, "--exhaustive=due") == {"test_bulk"}
    finally:
        git(old, "reset", "-q", "--hard")


def test_what_they_cover_must_exist(young: Path) -> None:
    git(young, "mv", "covered", "elsewhere")
    try:
        with pytest.raises(AssertionError, match="covers covered, which does not exist"):
            passed(young)
    finally:
        git(young, "reset", "-q", "--hard")


LACKING = """
import pytest
from tests.outside_data import GSM8K, needs, needs_stories, shared

@needs(GSM8K)
def test_marked():
    pass

@needs_stories
@pytest.mark.parametrize("number", [1, 2])
def test_marked_too(number):
    pass

def test_within():
    shared("stories260K.gguf")
"""


def test_those_that_lack_a_file_from_outside_are_counted_once_in_the_summary(young: Path) -> None:
    (young / "tests" / "test_lacking.py").write_text(LACKING)
    try:
        said = run(young)
    finally:
        (young / "tests" / "test_lacking.py").unlink()
    folder = young.parent / "shared" / "data"
    files = "gsm8k_test.jsonl, stories260K.gguf"
    assert said.count(f"4 tests were skipped, because {folder} has no {files}.") == 1
    assert "skipped, because" not in run(young)
