"""Words without a dash in front: the same in Invoke's own program and in armload's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import BIN

VERBS = '''
from typing import Annotated

from invoke.collection import Collection

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option


class Compare(OutputOptions):
    a: Annotated[str, Option("the first", is_argument=True)]
    b: Annotated[str, Option("the other", is_argument=True)]
    size: Annotated[int, Option("of it")] = 1


class Report(OutputOptions):
    runs: Annotated[tuple[str, ...], Option("some", several="repeat", is_argument=True)]


class Show(OutputOptions):
    run: Annotated[str, Option("one", usual="all", is_argument=True)] = ""


@verb(Compare)
def compare(options: Compare) -> None:
    """Compare two.

    Takes its time. Example: armload compare one other
    """
    print("compare", options.a, options.b, options.as_json, options.size)


@verb(Report)
def report(options: Report) -> None:
    """Report some.

    Example: armload report one other
    """
    print("report", *options.runs, options.as_json)


@verb(Show)
def show(options: Show) -> None:
    """Show one.

    Example: armload show one
    """
    print("show", repr(options.run))


namespace = Collection("verbs", compare, report, show)
namespace.add_collection(Collection("inner", show), name="inner")
'''
ARMLOAD = """
import sys
from tasks import namespace
from armload.cli import main
from armload.cli import program
program.namespace = namespace
main.main()
"""


FACES = [
    "armload",
    pytest.param("invoke", marks=pytest.mark.exhaustive(covers=["armload/cli", "tasks.py"])),
]
"""Both read all lines in the same way; some tests make sure of it in every run."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs")
    (folder / "tasks.py").write_text(VERBS)
    (folder / "armload_face.py").write_text(ARMLOAD)
    return folder


def typed(face: str, line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return given(face, line.split(), folder)


def given(face: str, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "invoke")] if face == "invoke" else [sys.executable, "armload_face.py"]
    return subprocess.run(
        [*command, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare one other", "compare one other False 1"),
        ("compare --json one other", "compare one other True 1"),
        ("compare one --json other", "compare one other True 1"),
        ("compare one other --json --size 7", "compare one other True 7"),
        ("compare --size 7 one --json other", "compare one other True 7"),
        ("compare --size=7 one other", "compare one other False 7"),
        ("compare -j one other", "compare one other True 1"),
        ("compare show report", "compare show report False 1"),
        ("report one", "report one False"),
        ("report one --json two three", "report one two three True"),
        ("report show compare", "report show compare False"),
        ("show", "show ''"),
        ("show one", "show 'one'"),
        ("inner.show one", "show 'one'"),
    ],
)
def test_words_fill_the_arguments_wherever_the_options_stand(
    face: str, line: str, said: str, folder: Path
) -> None:
    done = typed(face, line, folder)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, said, "")


@pytest.mark.parametrize("face", ["armload", "invoke"])
def test_behind_two_dashes_everything_is_a_word(face: str, folder: Path) -> None:
    behind = ["a b", "--json", "-x", "show", "--help", "--", "", "é=1"]
    done = given(face, ["report", "one", "--json", "--", *behind], folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"report {' '.join(['one', *behind, 'True'])}\n"
    assert given(face, ["show", "--"], folder).stdout == "show ''\n"


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("words", ["", "one", "one other", "one --json"])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_help_wherever_it_stands(face: str, words: str, option: str, folder: Path) -> None:
    done = typed(face, f"compare {words} {option}", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Compare two." in done.stdout
    assert "the other" in done.stdout


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("line", "missing", "example"),
    [
        ("compare", "A and B are missing.", "armload compare one other"),
        ("compare one", "B is missing.", "armload compare one other"),
        ("compare --json --size 3", "A and B are missing.", "armload compare one other"),
        ("report", "RUNS is missing.", "armload report one other"),
    ],
)
def test_a_missing_word_is_named_with_an_example(
    face: str, line: str, missing: str, example: str, folder: Path
) -> None:
    done = typed(face, line, folder)
    assert done.returncode == 2
    assert done.stderr == f"error: {missing}\nExample: {example}\n"
    told = json.loads(done.stdout)["error"]["message"] if "--json" in line else done.stdout
    assert told == (missing if "--json" in line else "")


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("line", "surplus"),
    [
        ("compare one other third", "third"),
        ("compare --jsno one other", "--jsno"),
        ("compare one -x other", "-x"),
        ("show one two", "two"),
        ("show one -- --two", "--two"),
        ("show -- one two", "two"),
    ],
)
def test_a_word_too_many_and_an_unknown_option_are_named(
    face: str, line: str, surplus: str, folder: Path
) -> None:
    done = typed(face, line, folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"'{surplus}'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("face", ["armload", "invoke"])
def test_an_option_takes_no_value_from_behind_the_dashes(face: str, folder: Path) -> None:
    done = typed(face, "compare one --size -- other", folder)
    assert done.returncode == 2
    assert "--size needs a value" in done.stderr


@pytest.mark.exhaustive(covers=["armload/cli", "tasks.py"])
def test_invoke_runs_two_tasks_one_after_the_other(folder: Path) -> None:
    done = typed("invoke", "compare one other show", folder)
    assert done.stdout == "compare one other False 1\nshow ''\n"


def test_two_verbs_are_refused_and_neither_runs(folder: Path) -> None:
    done = typed("armload", "compare one other show", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'compare' and 'show' are both verbs" in done.stderr


def test_help_of_armload_shows_words_apart_from_options(folder: Path) -> None:
    usages = {
        "compare": "Usage: armload compare A B [--options]",
        "report": "Usage: armload report RUNS... [--options]",
        "show": "Usage: armload show [RUN] [--options]",
    }
    for verb, usage in usages.items():
        assert usage in typed("armload", f"{verb} --help", folder).stdout
    lines = typed("armload", "compare --help", folder).stdout.splitlines()
    arguments, options = lines.index("Arguments:"), lines.index("Options:")
    assert [line.split() for line in lines[arguments + 1 : options] if line] == [
        ["A", "the", "first"],
        ["B", "the", "other"],
    ]
    assert not any("--a" in line or "--b" in line for line in lines)
