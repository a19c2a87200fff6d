"""Commands in the documentation: the quick half of their tests, which runs none."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from invoke.parser import Parser

from armload.cli.program import namespace
from tests.command_line import typed
from tests.documentation import PAGES, ROOT, TUTORIALS, blocks, commands


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_every_command_on_a_page_has_options_that_exist_and_values_that_are_allowed(
    page: str,
) -> None:
    for command in commands(ROOT / page):
        parsed = Parser(contexts=namespace.to_contexts()).parse_argv(shlex.split(command)[1:])
        (verb,) = (each for each in parsed if each.name)
        namespace[verb.name]._read(verb.as_kwargs)


def test_most_pages_show_commands() -> None:
    assert sum(any(commands(page)) for page in PAGES) > len(PAGES) / 2


def test_the_prediction_for_a_board_that_does_not_answer_is_the_one_that_a_tutorial_shows(
    tmp_path: Path,
) -> None:
    (_, command), (_, shown), *_ = blocks(TUTORIALS / "too-large.md")
    said = typed(tmp_path, *shlex.split(command)[1:]).stdout
    assert [line for line in shown.splitlines() if line not in said] == []
