"""Commands in the documentation: the quick half of their tests, which runs none."""

from __future__ import annotations

import shlex

import pytest
from invoke.parser import Parser

from armload.cli.program import namespace
from tests.documentation import PAGES, ROOT, commands


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
