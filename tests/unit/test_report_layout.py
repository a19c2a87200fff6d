"""Tables and messages on narrow and wide terminals, and in pipes."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from armload.report.layout import Prose, whole
from tests.unit.tables import MODEL, every_table

TABLES = every_table()
PIPE = 100_000


def shown(renderable: RenderableType, width: int) -> str:
    console = Console(file=StringIO(), width=width, markup=False)
    console.print(renderable, crop=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def lines(renderable: RenderableType, width: int) -> list[str]:
    return [line.rstrip() for line in shown(renderable, width).splitlines()]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_word_is_lost_or_broken_at_any_width(name: str, width: int) -> None:
    def names_and_figures(at: int) -> set[str]:
        words = {word.strip(":") for word in shown(TABLES[name], at).split()}
        return {word for word in words if re.search(r"[\d/-]", word)} - {"tok/s", "-"}

    assert names_and_figures(PIPE) <= names_and_figures(width)


@pytest.mark.parametrize("name", TABLES)
def test_at_eighty_columns_only_what_is_copied_whole_runs_over_the_edge(name: str) -> None:
    for line in lines(TABLES[name], 80):
        longest = max(map(cell_len, line.split()), default=0)
        assert cell_len(line) <= 80 or longest > 60 or str(MODEL.parent) in line, line


@pytest.mark.parametrize("name", ["show", "bench, threads", "bench, two models", "compare"])
def test_at_eighty_columns_figures_stand_beneath_each_other(name: str) -> None:
    at_80 = shown(TABLES[name], 80)
    rows = [line for line in at_80.splitlines() if len(re.findall(r" m?s ", f"{line} ")) >= 2]
    assert len(rows) >= 2, at_80


def test_a_path_with_blanks_is_copied_whole() -> None:
    for name in ("build", "model.inspect", "inspect"):
        assert str(MODEL.parent) in shown(TABLES[name], 40)
    assert shown(Prose(whole(f"page  {MODEL}")), 40).rstrip() == f"page  {MODEL}"


@pytest.mark.parametrize(
    "command",
    [
        "armload board.release --board dayu200 --force",
        "armload pull --board kitchen",
        "armload report 20261121T021500Z-virtual-dayu200-1f2e",
        "mkdir -p '/home/a b/models'",
        "--wait 600",
        "165.0 MB/s",
    ],
)
@pytest.mark.parametrize("before", [*range(1, 30, 4), 19, 20])
def test_a_command_in_a_sentence_stays_on_one_line(command: str, before: int) -> None:
    sentence = f"{'x' * before} say: {command}, and {'go on with the work ' * 4}"
    assert command in shown(Prose(sentence), 50)
    assert max(map(len, lines(Prose(sentence), 60))) <= 60


def test_prose_is_broken_between_words_and_not_at_all_in_a_pipe() -> None:
    sentence = "Some words that go on and on, and on. " * 8
    assert len(lines(Prose(sentence), PIPE)) == 1
    assert max(map(len, lines(Prose(sentence), 40))) <= 40
    assert " ".join(shown(Prose(sentence), 40).split()) == sentence.strip()


def test_what_a_program_wrote_keeps_its_lines() -> None:
    log = "cmake failed:\n  /a/long/path.cpp:12: error: use of undeclared identifier 'x'\n  ^~~~"
    assert shown(Prose(log), 30).splitlines() == log.splitlines()


def test_styles_survive_the_breaking_of_lines() -> None:
    console = Console(file=StringIO(), width=20, force_terminal=True, color_system="standard")
    console.print(Prose(Text.assemble(("error:", "bold red"), " a few words that go on")))
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().startswith("\x1b[1;31merror:\x1b[0m a few words")
