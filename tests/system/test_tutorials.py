"""The tutorials, as a reader follows them: their files are written and their commands typed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.documentation import TUTORIALS, blocks
from tests.person import Person
from tests.system.people import switched_on

ID = re.compile(r"\d{8}T\d{6}Z-\S+?-([0-9a-f]{4})\b")
FIRST, TIGHT = "first-board.md", "too-large.md"
OTHERS = sorted({path.name for path in TUTORIALS.glob("*.md")} - {FIRST, TIGHT})

pytestmark = [
    pytest.mark.machine,
    pytest.mark.build,
    pytest.mark.exhaustive(covers=["docs/tutorials", "armload/cli", "armload/report"]),
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody in whose network a board has the tutorials' address."""
    person = Person(tmp_path_factory.mktemp("reader"))
    shown = switched_on(person)
    (person.home / ".ssh" / "config").write_text(
        f"Host 192.168.1.50\n  HostName {shown['host']}\n  Port {shown['port']}\n"
        f"  User {shown['user']}\n  IdentityFile {shown['key']}\n"
    )
    try:
        yield person
    finally:
        person.types("board.down", "--board", "mine", "--yes")


@pytest.fixture(scope="module")
def kitchen(reader: Person) -> Person:
    """The same after the first tutorial."""
    follow(reader, FIRST)
    return reader


def test_a_first_board_is_added_and_measured(kitchen: Person) -> None:
    assert list(kitchen.runs.glob("*-kitchen-SmolLM2*/report.html"))


def test_a_model_that_is_too_large_runs_in_both_ways(reader: Person) -> None:
    try:
        follow(reader, TIGHT)
    finally:
        reader.types("board.down", "--board", "tight", "--yes")


@pytest.mark.parametrize("page", OTHERS)
def test_the_commands_of_the_other_tutorials_print_what_they_show(
    page: str, kitchen: Person
) -> None:
    follow(kitchen, page)


def follow(reader: Person, page: str) -> None:
    """Do what a page says; what is printed has the labels that the page shows.

    A block of YAML is a file and begins with its name; each line of an indented block is a command.
    """
    names: dict[str, str] = {}
    said = ""
    with ExitStack() as services:
        for language, block in blocks(TUTORIALS / page):
            text = block
            if language == "yaml":
                name, _, content = text.partition("\n")
                (reader.folder / name.removeprefix("# ")).write_text(content)
            elif language == "text":
                assert labels(text) <= labels(said), said
                names |= zip(ends_of_ids(text), ends_of_ids(said), strict=False)
            else:
                for shown, here in names.items():
                    text = re.sub(rf"\b{shown}\b", here, text)
                said = "".join(entered(reader, line, services) for line in text.splitlines())


def ends_of_ids(text: str) -> list[str]:
    return list(dict.fromkeys(ID.findall(text)))


def labels(text: str) -> set[str]:
    """Return the first cells of a table's rows, without those that are figures."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0] for row in rows if len(row) > 1 and not row[0][0].isdigit()}


def entered(reader: Person, line: str, services: ExitStack) -> str:
    """Type a command and return what it prints; a service is stopped before the next one."""
    words = shlex.split(line)
    if words[0] == "armload":
        services.close()
    match words:
        case ["curl", *_]:
            return subprocess.check_output(["sh", "-c", line], env=reader.environment, text=True)
        case ["armload", "serve", *options] if "--detach" not in options:
            return served(reader, options, services)
        case ["armload", "board.add", *options]:
            return reader.types("board.add", *options, "--yes").stdout
        case ["armload", *given] if "--fail-if-slower" in given:
            process = reader.start(*given)
            out, err = process.communicate(timeout=100)
            assert process.returncode in {0, 11, 12}, err
            return out
        case ["armload", *given]:
            return reader.types(*given).stdout
    raise AssertionError(f"What does a reader do with {line!r}?")


def served(reader: Person, options: list[str], services: ExitStack) -> str:
    process = reader.start("serve", *options)
    services.callback(process.communicate)
    services.callback(process.send_signal, signal.SIGINT)
    assert process.stdout is not None
    said = ""
    while not re.search(r"^stop ", said, re.MULTILINE):
        line = process.stdout.readline()
        assert line, process.communicate()
        said += line
    return said
